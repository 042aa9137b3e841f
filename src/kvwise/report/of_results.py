"""A report of what was measured: per model, machine and engine the picture, the tables, remarks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvwise.diagnose.titles import TITLES
from kvwise.report.charts.contexts import Curve, contexts
from kvwise.report.charts.memory import memory
from kvwise.report.charts.overview import overview
from kvwise.report.charts.runs import embedding, search, speculation
from kvwise.report.charts.tradeoff import pareto, tradeoff
from kvwise.report.document import Block, Bullets, Grid, Heading, Picture, Report, Section, Words
from kvwise.report.lines import Group, Line, Task, groups, newest, tests_of
from kvwise.report.of_plain import by_model, plain_section
from kvwise.results import Machine, Measurement, to_json
from kvwise.results.called import VERDICTS
from kvwise.results.files import csv_text
from kvwise.results.wording import number, when, with_spread
from kvwise.text import Phrase, phrase
from kvwise.units import MIB, percent

SCHEMA = "kvwise/report/1"

Curves = Callable[[Measurement], Sequence[Curve]]
"""Memory by context of a model that was measured; empty where its header is not at hand."""


def results_report(
    found: Sequence[Measurement], title: Words | None = None, curves: Curves | None = None
) -> Report:
    """The report of measurements, in any order."""
    made = [section for group in groups(found) for section in _of_group(group, curves)]
    for kind, picture, name in (
        ("speculation", speculation, phrase("Speculation")),
        ("embedding", embedding, phrase("Embedding")),
        ("tune", search, phrase("Tuning")),
    ):
        members_of = list if kind == "tune" else newest  # a search may ask again
        some = [each for each in members_of(found) if each.kind == kind]
        made += [plain_section(name, members, picture) for members in by_model(some)]
    document = {"schema": SCHEMA, "results": [to_json(each) for each in found]}
    return Report(
        title or _title(found), _facts(found), tuple(made), document, csv_text(list(found))
    )


def _title(found: Sequence[Measurement]) -> Phrase:
    names = list(dict.fromkeys(each.model.name for each in found))
    if len(names) > 3:
        return phrase("What was measured: {count} models", count=len(names))
    return phrase("What was measured: {models}", models=", ".join(names))


def _facts(found: Sequence[Measurement]) -> tuple[tuple[Words, Words], ...]:
    """Who measured what, when: what all sections share is said once, here."""
    rows: list[tuple[Words, Words]] = []
    machines = {each.machine.id: each.machine for each in found}
    rows += [(phrase("machine"), _machine_words(machine)) for machine in machines.values()]
    engines = dict.fromkeys(
        f"{each.engine.tool} {each.engine.build or '?'} ({each.engine.kind})" for each in found
    )
    rows.append((phrase("engine"), ", ".join(engines)))
    models = {each.model.fingerprint: each.model for each in found}
    for model in models.values():
        rows.append((phrase("model"), phrase("{name}: {architecture}, {size} MiB of weights",
                     name=model.name, architecture=model.architecture,
                     size=number(round(model.tensor_bytes / MIB, 1)))))  # fmt: skip
    first, last = min(each.at for each in found), max(each.at for each in found)
    days = (when(first), when(last))
    rows.append((phrase("measured"), " - ".join(dict.fromkeys(days))))
    rows.append((phrase("samples"), _samples(found)))
    return tuple(rows)


def _samples(found: Sequence[Measurement]) -> Phrase:
    """Where every sample of a figure was disturbed, they are what is shown of it."""
    count = sum(len(each.values) for each in found)
    flagged = sum(len(each.samples) - len(each.values) for each in found if not each.disturbed)
    said = phrase("{count} counted, {flagged} set aside", count=count, flagged=flagged)
    disturbed = sum(len(each.samples) for each in found if each.disturbed)
    if not disturbed:
        return said
    return phrase("{said}, {count} disturbed and shown for want of others",
                  said=said, count=disturbed)  # fmt: skip


def _machine_words(machine: Machine) -> Phrase:
    """`desk: RTX 4060 (8,188 MiB, driver 550.54.14); AMD Ryzen 7 5800X, 8 cores`"""
    cards = []
    for each in machine.devices:
        driver = each.driver.partition(" #")[0]
        size = f"{each.total_bytes / MIB:,.0f} MiB"
        cards.append(f"{each.name} ({size}{', ' if driver else ''}{driver})")
    what = phrase("{cpu}, {cores} cores", cpu=machine.cpu, cores=machine.cores)
    if cards:
        what = phrase("{cards}; {cpu}", cards=" + ".join(cards), cpu=what)
    return phrase("{name}: {text}", name=machine.name or machine.id, text=what)


# -- speeds, memory, fidelity ----------------------------------------------------------------------


def _of_group(group: Group, curves: Curves | None) -> list[Section]:
    first = group.first
    name = phrase("{model} on {machine}, {engine}", model=first.model.name, machine=_machine(first),
                  engine=f"{first.engine.tool} {first.engine.build}".rstrip())  # fmt: skip
    shallow = [line for line in group.lines if line.depth == group.lines[0].depth]
    lines = shallow if len(shallow) > 1 else list(group.lines)
    decodes = tests_of(lines, "decode")
    blocks: list[Block | None] = [
        overview(group.lines),
        _table(group),
        memory(lines),
        _memory_table(lines),
        *(tradeoff(lines, test, alone=len(decodes) == 1) for test in decodes),
        _curves(first, curves),
        _remarks(group),
    ]
    kept = tuple(block for block in blocks if block is not None)
    return [Section(name, kept)] if kept else []


def _machine(found: Measurement) -> str:
    machine = found.machine
    return " + ".join(each.name for each in machine.devices) or machine.cpu


def _curves(first: Measurement, curves: Curves | None) -> Picture | None:
    if curves is None:
        return None
    total = sum(each.total_bytes for each in first.machine.devices)
    limit: tuple[Words, int] | None = None
    if total:
        text = phrase("{size} MiB: all of the GPU's memory", size=number(total // MIB))
        limit = (text, total)
    return contexts(
        curves(first), limit, caption=phrase("Weights, cache and buffers on the devices, computed "
                                             "from the model's header.")
    )  # fmt: skip


def _table(group: Group) -> Grid | None:
    lines = group.lines
    tests = group.tests
    faithful = any(line.fidelity for line in lines)
    if not tests and not faithful:
        return None
    columns = [Heading(phrase("settings"))]
    for test in tests:
        columns += [Heading(_speed(test, tests), True), Heading(phrase("against f16"), True)]
    columns += [Heading(phrase("KV cache, MiB"), True), Heading(phrase("compute, MiB"), True)]
    if faithful:
        columns += [Heading(phrase("KL mean"), True), Heading(phrase("same top"), True)]
        columns += [Heading(phrase("perplexity ratio"), True), Heading(phrase("fidelity"))]
    rows = [tuple(_row(group, line, tests, faithful=faithful)) for line in lines]
    best = _best(lines)
    return Grid(
        tuple(columns),
        tuple(rows),
        phrase("± is half of what the middle half of the samples lies apart. A change in brackets "
               "is within noise; one with a question mark stands on samples that something else "
               "disturbed."),
        best,
    )  # fmt: skip


def _speed(test: Task, tests: Sequence[Task]) -> Phrase:
    """A column's heading; it says how many tokens where several lengths stand side by side."""
    if sum(each.metric == test.metric for each in tests) > 1:
        return phrase("{test}, tokens/s", test=test.name)
    return phrase("prompt, tokens/s") if test.metric == "prompt" else phrase("generating, tokens/s")


def _best(lines: Sequence[Line]) -> frozenset[int]:
    """The settings that no other beats in fidelity and a speed of generating; none without
    fidelity."""
    best: set[int] = set()
    for test in tests_of(lines, "decode"):
        known = [
            (number_, line.figure("kl_mean") or 0.0, statistics.median(line.speeds[test].shown))
            for number_, line in enumerate(lines)
            if line.figure("kl_mean") is not None
            and test in line.speeds
            and not line.speeds[test].disturbed
        ]
        if len(known) > 1:
            best |= {known[place][0] for place in pareto([(kl, speed) for _, kl, speed in known])}
    return frozenset(best)


def _row(group: Group, line: Line, tests: Sequence[Task], *, faithful: bool) -> list[Words]:
    base = group.base(line)
    cells: list[Words] = [line.label]
    for test in tests:
        found = line.speeds.get(test)
        cells.append(with_spread(found, unit=False) if found else _why(line))
        cells.append(_change(line, base, test))
    cells += [_mib(line.memory.get(part)) for part in ("context_bytes", "compute_bytes")]
    if faithful:
        same = line.figure("same_top")
        cells += [_number(line.figure("kl_mean")), "" if same is None else percent(same, ".1f")]
        ratio = line.figure("ppl_ratio")
        cells += ["" if ratio is None else f"{ratio:.4f}", VERDICTS.get(line.verdict, line.verdict)]
    return cells


def _why(line: Line) -> Words:
    """The cause stands among the remarks."""
    if not line.failed:
        return ""
    return phrase("failed") if line.failed[0].state == "failed" else phrase("skipped")


def _change(line: Line, base: Line | None, test: Task) -> str:
    found = line.than(base, test)
    if found is None:
        found = line.than(base, test, disturbed=True)
        return f"{percent(found.change, '+.1f')}?" if found else ""
    text = percent(found.change, "+.1f")
    return text if found.verdict in ("more", "less") else f"({text})"


def _mib(size: int | None) -> str:
    return "" if size is None else f"{size / MIB:,.2f}"


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


_PARTS = (
    ("weights_bytes", phrase("weights")),
    ("context_bytes", phrase("KV cache")),
    ("compute_bytes", phrase("compute buffers")),
    ("output_bytes", phrase("output")),
)


def _memory_table(lines: Sequence[Line]) -> Grid | None:
    """Predicted beside measured, to the hundredth of a MiB; nothing where one side is missing."""
    known = [line for line in lines if line.predicted and line.measured]
    if not known:
        return None
    columns = [Heading(phrase("settings"))]
    columns += [Heading(phrase("{part}, MiB", part=words), True) for _, words in _PARTS]
    columns.append(Heading(phrase("bytes off"), True))
    rows = []
    for line in known:
        pairs = [(line.predicted.get(part), line.measured.get(part)) for part, _ in _PARTS]
        off = sum(abs(a - b) for a, b in pairs if a is not None and b is not None)
        rows.append((line.label, *(_both(a, b) for a, b in pairs), f"{off:,}"))
    note = phrase(
        "Measured; what was predicted stands in brackets where it differs. Bytes off = how far the "
        "two lie apart, over these kinds."
    )
    return Grid(tuple(columns), tuple(rows), note)


def _both(predicted: int | None, measured: int | None) -> str:
    if predicted == measured or measured is None:
        return _mib(predicted)
    return _mib(measured) if predicted is None else f"{_mib(measured)} ({_mib(predicted)})"


def _remarks(group: Group) -> Bullets | None:
    """Slower than f16 beyond noise, failures with their cause, samples that were set aside."""
    items: list[Words] = []
    for line in group.lines:
        base = group.base(line)
        for test in group.tests:
            found = line.than(base, test)
            if found and found.verdict == "less":
                items.append(phrase("{label}: {what} is {change} slower than f16, noise is {noise}",
                                    label=line.label, what=_doing(test, group.tests),
                                    change=percent(-found.change, ".1f"),
                                    noise=percent(found.noise or 0, ".1f")))  # fmt: skip
        members = (*line.failed, *line.speeds.values(), *([line.fidelity] if line.fidelity else ()))
        for each in members:
            items += [
                phrase("{name}: {text}", name=line.label, text=_said(finding))
                for finding in each.findings
            ]
    return Bullets(tuple(items)) if items else None


def _doing(test: Task, tests: Sequence[Task]) -> Phrase:
    what = phrase("reading the prompt") if test.metric == "prompt" else phrase("generating")
    if sum(each.metric == test.metric for each in tests) > 1:
        return phrase("{what} ({test})", what=what, test=test.name)
    return what


def _said(finding: Mapping[str, Any]) -> Words:
    """The finding's name in any language, and its cause as it was told."""
    title = TITLES.get(str(finding.get("kind")))
    cause = str(finding.get("cause") or finding.get("title") or finding.get("kind") or "")
    return phrase("{name}: {text}", name=phrase(title), text=cause) if title else cause
