"""What `kvwise verify` shows: the comparison, the runs, and a few figures of many runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvwise.cli._finding import finding_of
from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.text import phrase
from kvwise.units import MIB

if TYPE_CHECKING:
    from kvwise.engine.printed import Total
    from kvwise.verify import Attempt, Row, Verification
    from kvwise.verify.summary import Spread, Summary

_MOST_RUNS = 10
"""More than so many are not listed one by one."""


def show(printer: Printer, verification: Verification) -> None:
    """Everything that came out, for people."""
    engine = verification.engine
    launch, context = verification.computed.launch, verification.computed.context
    printer.text(
        phrase(
            "{engine}, -c {n_ctx}, {slots} slot(s), K {k}, V {v}, {runs} run(s)",
            engine=engine.name,
            n_ctx=context.n_ctx,
            slots=context.n_seq_max,
            k=launch.type_k,
            v=launch.type_v,
            runs=len(verification.attempts),
        ),
        "title",
    )
    printer.text()
    printer.table(_rows_table(verification))
    printer.text()
    _show_runs(printer, verification)
    _show_simulated(printer, verification)
    printer.text(*_verdict(verification))


def _show_runs(printer: Printer, verification: Verification) -> None:
    """Every run, or of many only those that failed; of several also their summary."""
    listed = verification.attempts
    if len(listed) > _MOST_RUNS and printer.verbosity < 1:
        listed = tuple(attempt for attempt in listed if attempt.failed)[:_MOST_RUNS]
    if listed:
        printer.table(_runs_table(listed))
        printer.text()
    if len(verification.attempts) < 2:
        return
    from kvwise.verify.summary import summarise  # noqa: PLC0415

    summary = summarise(verification)
    printer.table(_summary_table(summary))
    printer.text()
    printer.bullets(_sentences(verification, summary))
    printer.text()


def _summary_table(summary: Summary) -> Table:
    rows: list[tuple[Words, Spread | None, float, int]] = [
        (phrase("seconds to load"), summary.load_s, 1, 2),
        (phrase("prompt tokens/s"), summary.prompt_per_s, 1, 1),
        (phrase("tokens/s"), summary.decode_per_s, 1, 1),
        (phrase("memory peak, MiB"), summary.peak_bytes, MIB, 1),
        (phrase("of its own, MiB"), summary.own_bytes, MIB, 1),
    ]
    columns = [
        Column(phrase("{count} runs", count=summary.runs)),
        Column(phrase("least"), right=True),
        Column(phrase("median"), right=True),
        Column(phrase("most"), right=True),
    ]
    cells: list[list[Cell | Words]] = [
        [words, *(f"{value / unit:,.{digits}f}" for value in (each.least, each.median, each.most))]
        for words, each, unit, digits in rows
        if each is not None
    ]
    return Table(columns, cells)


def _sentences(verification: Verification, summary: Summary) -> list[Words]:
    found: list[Words] = []
    if verification.fill is not None:
        found.append(
            phrase(
                "each run filled every slot with a prompt of {tokens:,} tokens",
                tokens=verification.fill,
            )
        )
    for cause in summary.causes:
        found.append(
            phrase(
                "{count} runs failed ({which}): {why}",
                count=len(cause.runs),
                which=", ".join(str(number + 1) for number in cause.runs[:_MOST_RUNS]),
                why=cause.why,
            )
        )
        finding = finding_of(verification.attempts[cause.runs[0]])
        if finding:
            from kvwise.diagnose.failed_run import sentences  # noqa: PLC0415  (a run failed)

            found += sentences(finding)
    if summary.own_bytes is not None:
        host = verification.computed.host
        found.append(
            phrase(
                "of the {own} MiB of its own, {computed} are computed; the rest is the program "
                "itself",
                own=f"{summary.own_bytes.median / MIB:,.1f}",
                computed=f"{host.unmapped_bytes / MIB:,.1f}",
            )
        )
    if summary.growth is not None:
        template = (
            phrase("memory grows: the last third of the runs took {size} MiB more than the first",
                   size=f"{summary.growth / MIB:,.1f}")
            if summary.grows
            else phrase("memory does not grow: {size} MiB from the first to the last third of the "
                        "runs", size=f"{summary.growth / MIB:+,.1f}")
        )  # fmt: skip
        found.append(template)
    found += [
        phrase("{name} had {size} MiB less free before the last loads than before the first",
               name=name, size=f"{size / MIB:,.0f}")
        for name, size in summary.card_growth.items()
        if size > 0
    ]  # fmt: skip
    if summary.contended:
        found.append(
            phrase(
                "the machine was busy before {count} runs (about {busy} of {cores} cores, {threads}"
                " are the engine's): it is faster alone",
                count=summary.contended,
                busy=f"{summary.busy_cores:.1f}",
                cores=summary.cores,
                threads=summary.threads,
            )
        )
    return found


def _rows_table(verification: Verification) -> Table:
    columns = [
        Column(phrase("what")),
        Column(phrase("where")),
        Column(phrase("computed bytes"), right=True),
        Column(phrase("computed MiB"), right=True),
        Column(phrase("simulated MiB"), right=True),
        Column(phrase("measured MiB"), right=True),
        Column(phrase("difference"), right=True),
    ]
    rows = [_cells(row) for row in verification.rows]
    if verification.simulated is None:
        at = 4
        columns.pop(at)
        for row in rows:
            row.pop(at)
    return Table(columns, rows)


def _show_simulated(printer: Printer, verification: Verification) -> None:
    """What the engine's own pass got wrong, or why there is none."""
    if verification.simulated:
        for note in verification.simulated.simulation.ledger.notes:
            printer.text(phrase("note: {text}", text=note.message), "dim")
        if any(row.name.endswith("_Mapped") for row in verification.rows):
            text = phrase("the engine's pass reads weights into memory and maps no file")
            printer.text(phrase("note: {text}", text=text), "dim")
    if verification.unsimulated:
        printer.text(phrase("not simulated: {why}", why=verification.unsimulated), "warn")
    for row in verification.misjudged:
        printer.text(
            phrase(
                "llama.cpp's own estimate is the one that is wrong on {where}: its pass shows "
                "{shown} MiB of compute, it reserved {reserved}, as computed",
                where=row.name,
                shown=_printed(row.simulated),
                reserved=_printed(row.measured),
            ),
            "warn",
        )


def _printed(total: Total | None) -> str:
    return "" if total is None else " + ".join(str(part) for part in total.parts)


def _cells(row: Row) -> list[Cell | Words]:
    kind = {
        "weights": phrase("weights"),
        "cache": phrase("cache"),
        "context": phrase("cache buffer"),
        "output": phrase("output"),
        "compute": phrase("compute"),
    }[row.kind]
    difference: Cell | Words = Cell("0", "good")
    if not row.agrees:
        difference = Cell(f"{row.difference / MIB:+,.2f} MiB", "bad" if row.decisive else "warn")
    return [
        kind,
        row.name,
        "" if row.computed is None else f"{row.computed:,}",
        "" if row.computed is None else f"{row.computed / MIB:,.2f}",
        _printed(row.simulated),
        _printed(row.measured),
        difference,
    ]


def _runs_table(attempts: tuple[Attempt, ...]) -> Table:
    rows = []
    for attempt in attempts:
        outcome: Cell | Words = Cell(phrase("generated"), "good")
        if attempt.error:
            outcome = Cell(attempt.error, "bad")
        speeds = [
            f"{speed:,.1f}" if speed else ""
            for speed in (attempt.prompt_per_s, attempt.decode_per_s)
        ]
        tokens = str(attempt.tokens or "")
        rows.append((str(attempt.number + 1), f"{attempt.seconds:.1f}", tokens, *speeds, outcome))
    return Table(
        (
            Column(phrase("run")),
            Column(phrase("seconds"), right=True),
            Column(phrase("tokens"), right=True),
            Column(phrase("prompt tokens/s"), right=True),
            Column(phrase("tokens/s"), right=True),
            Column(phrase("outcome")),
        ),
        rows,
    )


def _verdict(verification: Verification) -> tuple[Words, str]:
    decisive = [row for row in verification.rows if row.decisive]
    wrong = [row for row in decisive if not row.agrees]
    if wrong:
        places = ", ".join(f"{row.name} {row.difference / MIB:+,.2f} MiB" for row in wrong)
        return phrase("differs from the engine: {places}", places=places), "bad"
    if verification.differs:
        return phrase("a later run differs from the computed figures"), "bad"
    if verification.failures:
        return (
            phrase(
                "no difference, but {count} of {all} runs failed",
                count=verification.failures,
                all=len(verification.attempts),
            ),
            "bad",
        )
    return (
        phrase(
            "no difference: all {count} weights, cache and output lines agree with the engine",
            count=len(decisive),
        ),
        "good",
    )
