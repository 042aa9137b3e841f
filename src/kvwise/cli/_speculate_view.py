"""What `kvwise speculate` shows: do the files go together, memory, speeds, the advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.speculate.documents import argv, flags
from kvwise.speculate.memory import measured_sum, rows, sum_of
from kvwise.text import phrase
from kvwise.units import MIB, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvwise.memory.ledger import Ledger
    from kvwise.speculate.judge import Range, Summary
    from kvwise.speculate.memory import Sum
    from kvwise.speculate.run import Asked, Speculation
    from kvwise.speculate.vocabulary import Check, Compatibility
    from kvwise.text import Phrase

_WIDEST = 24
_MOST = 6


def show_check(printer: Printer, asked: Asked, told: Sequence[Phrase], ledger: Ledger) -> None:
    """Before anything is loaded: the checks of the vocabularies, and the computed memory."""
    _show_pair(printer, asked, told)
    if asked.compatibility is not None and asked.compatibility.holds is False:
        return
    printer.table(_memory_table([(phrase("computed"), sum_of(ledger))]))


def show(printer: Printer, done: Speculation, told: Sequence[Phrase]) -> None:
    """Everything that came out, for people."""
    asked = done.asked
    _show_pair(printer, asked, told)
    printer.text(
        phrase(
            "{engine}, threads: {threads}, -c {n_ctx}, prompts: {prompts}, rounds: {rounds}",
            engine=asked.engine.name, threads=done.threads, n_ctx=asked.launch.n_ctx,
            prompts=len(asked.prompts), rounds=asked.rounds,
        ),
        "title",
    )  # fmt: skip
    printer.table(_speeds(done))
    printer.text()
    printer.table(_memory(done))
    printer.text()
    remarks = _remarks(done)
    if remarks:
        printer.bullets(remarks)
        printer.text()
    _advise(printer, done)


def _show_pair(printer: Printer, asked: Asked, told: Sequence[Phrase]) -> None:
    if asked.draft is not None:
        printer.text(
            phrase("{model}, drafted by {draft}",
                   model=asked.model.called, draft=asked.draft.called), "title",
        )  # fmt: skip
    if asked.compatibility is not None:
        printer.table(_checks(asked.compatibility))
        printer.text(*_compatible(asked.compatibility))
        printer.text()
    for each in told:
        printer.text(phrase("warning: {text}", text=each), "warn")


def _checks(found: Compatibility) -> Table:
    columns = [
        Column(phrase("vocabulary")), Column(phrase("model")), Column(phrase("draft")),
        Column(""), Column(phrase("rule")),
    ]  # fmt: skip
    return Table(columns, [_check_row(each) for each in found.checks])


def _check_row(check: Check) -> list[Cell | Words]:
    name = {
        "type": phrase("type"), "bos": phrase("BOS"), "eos": phrase("EOS"),
        "size": phrase("tokens"), "tokens": phrase("texts"),
    }[check.subject]  # fmt: skip
    verdict = {
        True: Cell(phrase("same"), "good"),
        False: Cell(phrase("differs"), "bad"),
        None: Cell(phrase("unknown"), "warn"),
    }[check.agrees]
    if check.subject == "size" and check.agrees and check.target != check.draft:
        verdict = Cell(phrase("close enough"), "good")
    return [name, _short(check.target), _short(check.draft), verdict, check.sentence]


def _short(text: str) -> str:
    shown = text.replace("\n", "\\n")
    return shown if len(shown) <= _WIDEST else shown[: _WIDEST - 1] + "…"


def _compatible(found: Compatibility) -> tuple[Words, str]:
    failed = found.failed
    if failed is None:
        if found.holds is None:
            text = phrase("the texts of the tokens are not in the header at hand: not compared")
            return text, "warn"
        return phrase("the vocabularies agree: the draft can be used"), "good"
    if failed.difference is not None:
        number, one, other = failed.difference
        return phrase(
            "the vocabularies differ at token {number}: {one!r} and {other!r}; the engine would "
            "load the draft and never use it",
            number=number, one=one, other=other,
        ), "bad"  # fmt: skip
    return phrase(
        "the vocabularies do not agree ({rule}: {one} and {other}); the engine would load the "
        "draft and never use it",
        rule=failed.sentence, one=failed.target, other=failed.draft,
    ), "bad"  # fmt: skip


def _speeds(done: Speculation) -> Table:
    columns = [
        Column(phrase("speculation")),
        Column(phrase("tokens/s"), right=True),
        Column("±", right=True),
        Column(phrase("gain"), right=True),
        Column(phrase("answers"), right=True),
        Column(phrase("accepted"), right=True),
        Column(phrase("per draft"), right=True),
        Column(phrase("passes per 1,000"), right=True),
        Column(phrase("memory, MiB"), right=True),
        Column(phrase("text")),
        Column(phrase("state")),
    ]
    return Table(columns, [_speed_row(done, each) for each in done.summaries])


def _speed_row(done: Speculation, summary: Summary) -> list[Cell | Words]:
    best = done.verdict.best
    chosen = best is not None and summary.variant == best.variant
    name = Cell(summary.variant.key, "good" if chosen else "")
    speed = summary.speed
    unit = next((each for each in summary.units if each.memory), None)
    total = measured_sum(unit) if unit else None
    speculates = summary.variant.speculates
    return [
        name,
        f"{speed.median:,.1f}" if speed else "",
        percent(speed.width / 2) if speed and summary.rounds > 1 else "",
        _gain(summary.gain) if speculates else "",
        _gain(summary.whole_gain) if speculates else "",
        percent(summary.rate) if summary.rate is not None else "",
        f"{summary.accepted_length:.2f}" if summary.accepted_length is not None else "",
        f"{summary.passes:,.0f}" if summary.passes is not None else "",
        f"{total.total / MIB:,.1f}" if total else "",
        _text(summary),
        _state(summary),
    ]


def _gain(found: Range | None) -> Cell | Words:
    if found is None:
        return ""
    return Cell(percent(found.median - 1, "+.0f"), "good" if found.median > 1 else "bad")


def _text(summary: Summary) -> Cell | Words:
    if summary.same_text is None:
        return ""
    return Cell(phrase("same"), "good") if summary.same_text else Cell(phrase("differs"), "warn")


def _state(summary: Summary) -> Cell | Words:
    return {
        "plain": Cell(phrase("plain")),
        "on": Cell(phrase("on"), "good"),
        "idle": Cell(phrase("on, drafted nothing"), "warn"),
        "off": Cell(phrase("NOT ON"), "bad"),
        "failed": Cell(phrase("failed"), "bad"),
    }[summary.state]


def _memory(done: Speculation) -> Table:
    key = done.asked.largest.key
    lines: list[tuple[Words, Sum | None]] = [(phrase("computed"), sum_of(done.computed[key]))]
    if done.simulated is not None:
        lines.append((phrase("simulated"), sum_of(done.simulated)))
    summary = next(each for each in done.summaries if each.variant.key == key)
    unit = next((each for each in summary.units if each.memory), None)
    if unit is not None:
        lines.append((phrase("measured"), measured_sum(unit)))
    return _memory_table(lines, key)


def _memory_table(lines: Sequence[tuple[Words, Sum | None]], key: str = "") -> Table:
    heading = phrase("memory of {variant}, MiB", variant=key) if key else phrase("memory, MiB")
    columns = [
        Column(heading),
        Column(phrase("model"), right=True),
        Column(phrase("draft"), right=True),
        Column(phrase("output of speculation"), right=True),
        Column(phrase("together"), right=True),
    ]
    table: list[list[Cell | Words]] = []
    for words, found in lines:
        if found is None:
            continue
        more = "" if found.speculation is None else f"{found.speculation / MIB:,.2f}"
        sizes = [f"{size / MIB:,.2f}" for size in (found.model, found.draft)]
        table.append([words, *sizes, more, f"{found.total / MIB:,.2f}"])
    return Table(columns, table)


def _remarks(done: Speculation) -> list[Words]:
    found: list[Words] = []
    for summary in done.summaries:
        if summary.why is not None:
            found.append(phrase("{variant}: {why}", variant=summary.variant.key, why=summary.why))
        found += [
            phrase(
                "{variant}: the text for {prompt} leaves plain generation at token {token}: "
                "{plain!r} became {here!r}",
                variant=summary.variant.key, prompt=each.prompt, token=each.token + 1,
                plain=each.plain, here=each.here,
            )
            for each in summary.divergences[:1]
        ]  # fmt: skip
    found += _doubts(done)
    return found


def _doubts(done: Speculation) -> list[Words]:
    found: list[Words] = []
    flagged = sum(summary.flagged for summary in done.summaries)
    if flagged:
        found.append(
            phrase("{count} of the runs were measured beside other work: run it again on a quiet "
                   "machine", count=flagged)
        )  # fmt: skip
    if done.unsimulated is not None:
        found.append(phrase("not simulated: {why}", why=done.unsimulated))
    summary = next(each for each in done.summaries if each.variant == done.asked.largest)
    unit = next((each for each in summary.units if each.memory), None)
    wrong = [row for row in rows(done.computed[summary.variant.key], unit) if not row.agrees] if (
        unit
    ) else []  # fmt: skip
    found += [
        phrase("{whose} {part} in {buffer}: {computed} MiB computed, {measured} measured",
               whose=row.whose, part=row.part, buffer=row.buffer,
               computed=f"{(row.computed or 0) / MIB:,.2f}",
               measured=f"{(row.measured or 0) / MIB:,.2f}")
        for row in wrong[:_MOST]
    ]  # fmt: skip
    return found


def _advise(printer: Printer, done: Speculation) -> None:
    best = done.verdict.best
    if best is None:
        printer.text(phrase("leave speculation off"), "good")
    elif best.variant.depth is None:
        printer.text(phrase("use {kind}", kind=best.variant.kind), "good")
    else:
        printer.text(
            phrase("use {kind} at depth {depth}",
                   kind=best.variant.kind, depth=best.variant.depth), "good",
        )  # fmt: skip
    printer.bullets(done.verdict.why)
    if best is not None:
        printer.text(phrase("flags: {flags}", flags=" ".join(flags(done))))
    from kvwise.plan.commands import bash  # noqa: PLC0415

    printer.text(bash(argv(done)), "command")
