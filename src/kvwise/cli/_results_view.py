"""What `kvwise results` shows: the list, one result, and two sides beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.results import Measurement, total_of
from kvwise.results.called import PARTS, figure_name, figure_text, settings_text, test_text
from kvwise.results.compare import Pair, Side
from kvwise.results.label import labels, metric_of, task_of
from kvwise.results.wording import flags_said, listed, number, outcome, unit_said, when
from kvwise.text import phrase
from kvwise.units import percent, show

_SHORT = 8


# -- the list --------------------------------------------------------------------------------------


def show_list(printer: Printer, found: Sequence[Measurement]) -> None:
    """A row per measurement; what is the same for all stands above."""
    common: list[Words] = []
    columns = [Column(phrase("result")), Column(phrase("measured"))]
    cells: list[list[Cell | Words]] = [
        [Cell(each.identity[:_SHORT], "dim"), when(each.at)] for each in found
    ]
    for heading, texts in (
        (phrase("machine"), [_machine(each) for each in found]),
        (phrase("engine"), [_engine(each) for each in found]),
        (phrase("model"), [each.model.name for each in found]),
    ):
        if len(set(texts)) == 1:
            common.append(phrase("{name}: {text}", name=heading, text=texts[0]))
            continue
        columns.append(Column(heading))
        for row, text in zip(cells, texts, strict=True):
            row.append(text)
    columns += [Column(phrase("what")), Column(phrase("settings")), Column(phrase("outcome"), True),
                Column(phrase("samples"), True)]  # fmt: skip
    for row, each, label in zip(cells, found, labels(found), strict=True):
        row += [task_of(each), label, _styled(each), _samples(each)]
    for words in common:
        printer.text(words, "title")
    printer.table(Table(columns, cells))
    if any(len(each.values) < len(each.samples) for each in found):
        printer.remark(
            phrase("samples: those that count of those taken, the others were disturbed; "
                   "`kvwise results show RESULT` says by what")
        )  # fmt: skip


def _styled(found: Measurement) -> Cell:
    return Cell(outcome(found), "bad" if found.state == "failed" else "")


def _samples(found: Measurement) -> Words:
    count, taken = len(found.values), len(found.samples)
    return f"{count}" if count == taken else phrase("{count} of {all}", count=count, all=taken)


def _machine(found: Measurement) -> str:
    machine = found.machine
    what = " + ".join(each.name for each in machine.devices) or machine.cpu
    return f"{machine.name or machine.id} ({what})"


def _engine(found: Measurement) -> str:
    engine = found.engine
    return f"{engine.tool} {engine.build or '?'} ({engine.kind})"


# -- one result ------------------------------------------------------------------------------------


def show_one(printer: Printer, found: Sequence[Measurement]) -> None:
    """Everything about one result; each time that it was measured with its samples."""
    last = found[-1]
    printer.text(phrase("{what} of {model}", what=metric_of(last), model=last.model.name), "title")
    rows: list[list[Cell | Words]] = [
        [phrase("result"), last.identity],
        [phrase("machine"), f"{_machine(last)}, {last.machine.os}, id {last.machine.id}"],
        *_drivers(last),
        [phrase("engine"), f"{_engine(last)} {last.engine.version}".rstrip()],
        [phrase("model"), _model(last)],
        [phrase("settings"), settings_text(last)],
        [phrase("test"), test_text(last)],
    ]
    printer.table(Table([Column(""), Column("")], rows))
    for each in found:
        printer.text()
        printer.text(
            phrase("{when}: {outcome}", when=when(each.at), outcome=outcome(each)), "title"
        )
        _show_samples(printer, each)
        _show_figures(printer, each)
        printer.bullets([str(one.get("cause") or one.get("kind")) for one in each.findings], "warn")


def _drivers(found: Measurement) -> list[list[Cell | Words]]:
    return [[phrase("driver"), driver] for driver in found.machine.drivers if driver]


def _model(found: Measurement) -> str:
    model = found.model
    return f"{model.name}, {model.architecture}, {show(model.tensor_bytes)}, {model.path}".rstrip(
        ", "
    )


def _show_samples(printer: Printer, found: Measurement) -> None:
    if not found.samples:
        return
    shown = [number(each.value) for each in found.samples if not each.flags]
    dropped = [
        phrase("{value} ({why})", value=number(each.value), why=flags_said(each.flags))
        for each in found.samples
        if each.flags
    ]
    printer.text(
        phrase(
            "samples, {unit}: {values}", unit=unit_said(found.unit), values=", ".join(shown) or "-"
        )
    )
    if dropped:
        printer.text(phrase("not counted: {values}", values=listed(dropped)), "warn")


def _show_figures(printer: Printer, found: Measurement) -> None:
    figures = {
        name: value for name, value in found.figures.items() if name not in ("memory", "work")
    }
    plain = {
        name: figure_text(name, value)
        for name, value in figures.items()
        if not isinstance(value, dict | list)
    }
    for name, text in plain.items():
        if text:
            printer.text(phrase("{name}: {text}", name=figure_name(name), text=text))
    memory = found.figures.get("memory")
    if isinstance(memory, dict):
        for side, words in (
            ("predicted", phrase("memory predicted")),
            ("measured", phrase("memory measured")),
        ):
            totals = total_of(memory.get(side))
            if totals:
                parts = [
                    phrase("{part} {size}", part=PARTS[name], size=show(size))
                    for name, size in totals.items()
                ]
                printer.text(phrase("{name}: {text}", name=words, text=listed(parts)))


# -- two sides -------------------------------------------------------------------------------------

_VERDICTS = {
    "more": (phrase("more"), "good"),
    "less": (phrase("less"), "bad"),
    "noise": (phrase("within noise"), "dim"),
    "unsure": (phrase("too few samples"), "warn"),
}


def show_comparison(printer: Printer, first: Side, second: Side, pairs: Sequence[Pair]) -> None:
    """A row per measurement that both sides have."""
    printer.text(phrase("{a} against {b}", a=first.word, b=second.word), "title")
    both = [pair.a for pair in pairs]
    columns = [
        Column(phrase("model")),
        Column(phrase("what")),
        Column(phrase("settings")),
        Column(first.word, right=True),
        Column(second.word, right=True),
        Column(phrase("change"), right=True),
        Column(phrase("noise"), right=True),
        Column(phrase("verdict")),
    ]
    rows: list[list[Cell | Words]] = [
        [
            pair.a.model.name,
            task_of(pair.a),
            label,
            outcome(pair.a),
            outcome(pair.b),
            *_verdict(pair),
        ]
        for pair, label in zip(pairs, labels(both), strict=True)
    ]
    printer.table(Table(columns, rows))
    printer.remark(
        phrase("noise: what chance alone would do in 19 of 20 cases (Welch), at least 1 %")
    )


def _verdict(pair: Pair) -> list[Cell | Words]:
    found = pair.difference
    if found is None:
        return ["", "", Cell(*_VERDICTS["unsure"])]
    words, style = _VERDICTS[found.verdict]
    noise = "" if found.noise is None else percent(found.noise, ".1f")
    return [percent(found.change, "+.1f"), noise, Cell(words, style)]


def comparison_json(first: Side, second: Side, pairs: Sequence[Pair]) -> dict[str, Any]:
    """The document kvwise/results-comparison/1."""
    rows = []
    for pair in pairs:
        found = pair.difference
        rows.append({
            "kind": pair.a.kind,
            "model": pair.a.model.name,
            "settings": pair.a.settings,
            "test": pair.a.test,
            "a": _side_json(pair.a, pair.values_a),
            "b": _side_json(pair.b, pair.values_b),
            "change": found.change if found else None,
            "noise": found.noise if found else None,
            "verdict": found.verdict if found else None,
        })  # fmt: skip
    schema = "kvwise/results-comparison/1"
    return {"schema": schema, "a": first.word, "b": second.word, "pairs": rows}


def _side_json(found: Measurement, values: Sequence[float]) -> dict[str, Any]:
    return {"identity": found.identity, "at": found.at, "unit": found.unit, "values": list(values)}
