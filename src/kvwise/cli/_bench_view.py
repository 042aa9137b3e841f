"""What `kvwise bench` shows: a table per model, what to notice, and the plan of a dry run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.text import Phrase, phrase
from kvwise.units import MIB, clock, percent

if TYPE_CHECKING:
    from kvwise.bench.estimate import Row
    from kvwise.bench.run import Sweep
    from kvwise.bench.summary import Figure, Line
    from kvwise.memory.ledger import Ledger


def means_sentence(sweep: Sweep) -> Phrase:
    """What measures, so that nobody takes a server's figures for llama-bench's."""
    means = sweep.means
    ways = {each.way for each in sweep.ruled if each.skipped is None}
    fields = {
        "engine": means.engine.name,
        "bench": means.bench.name if means.bench else "",
        "threads": means.threads,
    }
    if ways == {"llama-bench"}:
        return phrase("measured by llama-bench: {bench}, threads: {threads}", **fields)
    if "llama-bench" in ways:
        return phrase(
            "measured by llama-bench where it can be told, else by the server: {bench}, "
            "threads: {threads}",
            **fields,
        )
    if all(each.case.launch.embeddings for each in sweep.ruled):
        return phrase(
            "measured by the server of {engine}, threads: {threads}; each request includes its "
            "answer over HTTP, which llama-bench has not",
            **fields,
        )
    return phrase(
        "measured by the server of {engine}, threads: {threads}; decoding includes its "
        "sampling and is some percent below llama-bench's",
        **fields,
    )


def show(printer: Printer, sweep: Sweep, lines: Sequence[Line]) -> None:
    """Everything that came out, for people."""
    from kvwise.bench.remarks import name, remarks, sentences  # noqa: PLC0415

    noticed = remarks(lines)
    printer.text(means_sentence(sweep), "title")
    for number, model in enumerate(sweep.models):
        mine = [line for line in lines if line.case.model == number]
        printer.text()
        printer.text(model.called, "title")
        printer.table(_table(mine, lines))
        _show_left_out(printer, mine)
        names = {line.case.key: name(line) for line in mine}
        about = [each for each in noticed if names.keys() & set(each.keys)]
        if about:
            printer.text(phrase("to be noticed:"), "warn")
            printer.bullets(sentences(about, names))
    printer.text()
    for doubt in _doubts(lines):
        printer.text(doubt, "warn")


def _table(lines: Sequence[Line], everything: Sequence[Line]) -> Table:
    shown = [line for line in lines if line.state != "skipped"]
    names = [name for name, _ in lines[0].case.varied] if lines else []
    tests = list(dict.fromkeys(t.name for line in lines for t in line.ruled.tests))
    shares = [_shares(line, everything, tests) for line in shown]
    compared = any(share.words for each in shares for share in each)
    columns = [
        *(Column(name) for name in names),
        Column(phrase("cache MiB"), right=True),
        Column(phrase("compute MiB"), right=True),
        Column(phrase("computed less measured"), right=True),
    ]
    for test in tests:
        columns.append(Column(f"{test} t/s", right=True))
        columns += [Column(phrase("of f16"), right=True)] if compared else []
    columns.append(Column(phrase("outcome")))
    rows = [
        _row(line, tests, share if compared else None)
        for line, share in zip(shown, shares, strict=True)
    ]
    return Table(columns, rows)


def _shares(line: Line, lines: Sequence[Line], tests: Sequence[str]) -> list[Cell]:
    """Speeds as shares of f16's, empty where there is nothing to compare with; marked like the
    figures where one of the two is of disturbed samples only."""
    from kvwise.bench.summary import base_of, doubted, ratio  # noqa: PLC0415

    base = base_of(line, lines)
    found = []
    for test in tests:
        share = ratio(line, base, test) if base is not line else None
        doubtful = share is not None and doubted(line, base, test)
        text = "" if share is None else percent(share) + ("?" if doubtful else "")
        found.append(Cell(text, "warn" if doubtful else ""))
    return found


def _row(line: Line, tests: Sequence[str], shares: Sequence[Cell] | None) -> list[Cell | Words]:
    cells: list[Cell | Words] = [value for _, value in line.case.varied]
    parts = line.parts
    cells += [_size(parts["cache"]), _size(parts["compute"]), _difference(line)]
    for number, test in enumerate(tests):
        cells.append(_figure(line.figure(test)))
        cells += [shares[number]] if shares else []
    cells.append(_outcome(line))
    return cells


def _size(part: dict[str, int | None]) -> str:
    size = part["measured_bytes"] if part["measured_bytes"] is not None else part["computed_bytes"]
    return "" if size is None else f"{size / MIB:,.2f}"


def _difference(line: Line) -> Cell | Words:
    known = [part["difference_bytes"] for part in line.parts.values()]
    if all(each is None for each in known):
        return ""
    total = sum(each or 0 for each in known)
    off = any(each for each in known)
    return Cell(f"{total / MIB:+,.2f}", "warn") if off else Cell("0", "good")


def _figure(figure: Figure | None) -> Cell | Words:
    """The median, how far it is to be trusted, and half of what the middle half lies apart."""
    if figure is None:
        return ""
    mark = "?" if figure.doubtful else ""
    spread = "" if figure.share is None else f" ±{percent(figure.share, '.1f')}"
    return Cell(f"{figure.median:,.1f}{mark}{spread}", "warn" if figure.doubtful else "")


def _outcome(line: Line) -> Cell | Words:
    if line.state == "ok":
        lost = [message for _, message, gone in line.effects if gone]
        return Cell(lost[0], "warn") if lost else Cell(phrase("measured"), "good")
    return Cell(line.why or phrase("failed"), "bad")


def _show_left_out(printer: Printer, lines: Sequence[Line]) -> None:
    """Settings that were not started, those of one reason together."""
    reasons: dict[str, list[Line]] = {}
    for line in lines:
        if line.state == "skipped" and line.why:
            reasons.setdefault(printer.say(line.why), []).append(line)
    if not reasons:
        return
    printer.text(phrase("not started:"), "dim")
    printer.bullets(
        [
            phrase("{settings}: {why}", why=why,
                   settings=_some([line.case.label or "-" for line in mine]))
            for why, mine in reasons.items()
        ],
        "dim",
    )  # fmt: skip


def _some(names: Sequence[str], most: int = 6) -> Words:
    if len(names) <= most:
        return ", ".join(names)
    return phrase("{names} and {more} more", names=", ".join(names[:most]), more=len(names) - most)


def _doubts(lines: Sequence[Line]) -> Iterator[Words]:
    """Samples that do not count, and figures that have no others."""
    figures = [figure for line in lines for figure in line.figures]
    disturbed = sum(figure.disturbed for figure in figures if not figure.doubtful)
    doubtful = sum(figure.doubtful for figure in figures)
    if disturbed:
        yield phrase(
            "{count} samples were disturbed by other work or heat and do not count",
            count=disturbed,
        )
    if doubtful:
        yield phrase(
            "every sample of {count} figure(s) marked ? was disturbed by other work or heat; "
            "they are what those say: measure again when the machine is quiet",
            count=doubtful,
        )


def show_plan(printer: Printer, sweep: Sweep) -> int:
    """What would be measured, by what, and for how long; the command of each start."""
    from kvwise.bench.estimate import estimate  # noqa: PLC0415

    plan = estimate(sweep)
    if printer.json:
        printer.document(plan.as_json(printer.language))
        return 0
    printer.text(means_sentence(sweep), "title")
    printer.table(_plan_table(plan.rows))
    printer.text()
    if plan.seconds is not None:
        printer.text(
            phrase(
                "{starts} starts, about {time} (estimated; the first starts tell better)",
                starts=plan.starts,
                time=clock(plan.seconds),
            )
        )
    else:
        printer.text(phrase("{starts} starts; how long is not known", starts=plan.starts))
    for command in plan.shown[:1] if printer.verbosity < 1 else plan.shown:
        printer.text(command, "command")
    return 0


def _plan_table(rows: Sequence[Row]) -> Table:
    """Each setting with what it will take: its caches, its compute buffers, and all of it on each
    device; empty where llama.cpp refuses it."""
    ledgers = [row.ruled.ledger for row in rows]
    places = list(dict.fromkeys(name for each in ledgers if each for name in _totals(each)))
    columns = [
        Column(phrase("setting")),
        Column(phrase("tests")),
        Column(phrase("starts"), right=True),
        Column(phrase("cache MiB"), right=True),
        Column(phrase("compute MiB"), right=True),
        *(Column(phrase("{device} MiB", device=name), right=True) for name in places),
        Column(phrase("outcome")),
    ]
    return Table(columns, [_plan_row(row, places) for row in rows])


def _plan_row(row: Row, places: Sequence[str]) -> list[Cell | Words]:
    from kvwise.bench.memory import predicted  # noqa: PLC0415

    ledger = row.ruled.ledger
    parts = predicted(ledger) if ledger else {}
    totals = _totals(ledger) if ledger else {}
    sizes = [parts.get("cache"), parts.get("compute"), *(totals.get(name) for name in places)]
    return [
        row.label or "-",
        " ".join(row.tests),
        str(row.starts),
        *("" if size is None else f"{size / MIB:,.2f}" for size in sizes),
        Cell(row.why, "warn") if row.why else Cell(phrase("to be measured"), "good"),
    ]


def _totals(ledger: Ledger) -> dict[str, int]:
    """Bytes of each device by the name of its buffer, what stands beside the model included."""
    return {line.buffer: line.total_bytes for line in ledger.lines}
