"""What `kvwise tune` shows: what was tried, the best beside the start, and the command to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.plan.commands import bash
from kvwise.text import phrase
from kvwise.tune.documents import argv, chosen
from kvwise.tune.knobs import key_of
from kvwise.units import clock, percent

if TYPE_CHECKING:
    from kvwise.tune.judge import Candidate
    from kvwise.tune.run import Asked, Tuned

_MOST_TRIED = 8


def show_space(printer: Printer, asked: Asked) -> None:
    """The knobs and their values, before anything is measured."""
    start = dict(asked.space.start)
    rows: list[list[Cell | Words]] = [
        [knob.name, " ".join(str(value) for value in knob.values), str(start[knob.name])]
        for knob in asked.space.knobs
    ]
    columns = [Column(phrase("knob")), Column(phrase("values")), Column(phrase("start"))]
    printer.table(Table(columns, rows))
    printer.text(
        phrase(
            "{size:,} settings; at most {most:,} evaluations, for a prompt of {prompt:,} tokens "
            "and an answer of {answer:,}; budget {budget}",
            size=asked.space.size, most=asked.limits.most, prompt=asked.meter.request.prompt,
            answer=asked.meter.request.answer, budget=clock(asked.limits.seconds),
        )
    )  # fmt: skip
    printer.text(bash(argv(asked, asked.space.start)), "command")


def show(printer: Printer, done: Tuned) -> None:
    """Everything that came out, for people."""
    asked = done.asked
    printer.text(
        phrase(
            "{engine}: {count} evaluations of {size:,} settings, a prompt of {prompt:,} tokens and "
            "an answer of {answer:,}",
            engine=asked.meter.engine.name, count=len(done.units), size=asked.space.size,
            prompt=asked.meter.request.prompt, answer=asked.meter.request.answer,
        ),
        "title",
    )  # fmt: skip
    printer.table(_tried(done))
    printer.text()
    if done.confirmed:
        printer.table(_confirmed(done))
        printer.text()
    _show_doubts(printer, done)
    if done.verdict.best is None:
        printer.text(phrase("stay with the start"), "good")
    else:
        printer.text(phrase("use {point}", point=key_of(done.verdict.best.point)), "good")
    printer.bullets([done.verdict.why])
    printer.text(bash(argv(asked, chosen(done))), "command")


def _tried(done: Tuned) -> Table:
    """The best of what was tried, once each."""
    good = [(point, taken) for point, taken in done.tried if taken.seconds is not None]
    ordered = sorted(good, key=lambda each: each[1].seconds or 0.0)[:_MOST_TRIED]
    rows: list[list[Cell | Words]] = [
        [
            Cell(key_of(point), "good" if point == chosen(done) else ""),
            f"{taken.seconds:,.2f}",
            f"{taken.prompt_per_s:,.1f}",
            f"{taken.decode_per_s:,.1f}",
        ]
        for point, taken in ordered
    ]
    return Table(
        (
            Column(phrase("tried once")),
            Column(phrase("seconds"), right=True),
            Column(phrase("prompt tokens/s"), right=True),
            Column(phrase("tokens/s"), right=True),
        ),
        rows,
    )


def _confirmed(done: Tuned) -> Table:
    columns = [
        Column(phrase("measured again")),
        Column(phrase("seconds"), right=True),
        Column("±", right=True),
        Column(phrase("gain"), right=True),
        Column(phrase("prompt tokens/s"), right=True),
        Column(phrase("tokens/s"), right=True),
    ]
    return Table(columns, [_row(done, each) for each in done.confirmed])


def _row(done: Tuned, each: Candidate) -> list[Cell | Words]:
    start = each.point == done.asked.space.start
    name = phrase("start: {point}", point=key_of(each.point)) if start else key_of(each.point)
    return [
        Cell(name, "good" if each.point == chosen(done) else ""),
        f"{each.median:,.2f}",
        percent(each.width / 2),
        "" if start else Cell(percent(each.gain, "+.0f"), "good" if each.gain > 0 else "bad"),
        f"{each.prompt_per_s:,.1f}",
        f"{each.decode_per_s:,.1f}",
    ]


def _show_doubts(printer: Printer, done: Tuned) -> None:
    found: list[Words] = []
    flagged = sum(bool(taken.flags) for _, taken in done.units)
    if flagged:
        found.append(
            phrase("{count} of the runs were measured beside other work: run it again on a quiet "
                   "machine", count=flagged)
        )  # fmt: skip
    for point, taken in done.tried:
        if taken.error:
            found.append(phrase("{point} failed: {why}", point=key_of(point), why=taken.error))
    if found:
        printer.bullets(found)
        printer.text()
