"""`kvwise verify`: load and generate for real, and put the engine's figures beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._count import model_file
from kvwise.cli._request import (
    ENGINE,
    MODEL,
    companions_of,
    model_of,
    read_launch,
    with_model,
)
from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.errors import EngineError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.text import phrase
from kvwise.units import MIB

if TYPE_CHECKING:
    from kvwise.engine.find import Engine
    from kvwise.engine.printed import Total
    from kvwise.verify import Attempt, Row, Verification

EXIT_DIFFERS = 3


@make_command(
    "Load and generate for real: computed, simulated and measured bytes side by side.\n\n"
    "The engine loads the model with exactly these settings and answers a prompt; its own no-alloc "
    "pass stands beside it. Exit code 3 if a weights, cache or output line differs, or if one of "
    "several runs fails.",
    MODEL,
    ENGINE,
    click.Option(
        ["--runs"],
        metavar="N",
        type=click.IntRange(1),
        default=1,
        help="Load and generate N times.",
    ),
    click.Option(["--dry-run"], is_flag=True, help="Print the command instead of running it."),
    click.Option(["--no-simulate"], is_flag=True, help="Leave the engine's own pass out."),
    click.Option(["--logs"], metavar="FOLDER", help="Keep the engine's log of each run there."),
    examples=(
        "kvwise verify model.gguf -c 8192 -ctk q8_0 -ctv q8_0",
        "kvwise verify model.gguf -c 32768 --engine ./llama-server --runs 20",
    ),
)
def command(
    printer: Printer,
    *,
    words: list[str],
    model: str | None,
    engine: str | None,
    runs: int,
    dry_run: bool,
    no_simulate: bool,
    logs: str | None,
) -> int:
    from kvwise.engine.find import find  # noqa: PLC0415  (help should not load an engine)

    ref, reading = read_launch(words, model)
    described = model_of(ref)
    launch = with_model(reading.launch, ref, described)
    place = model_file(described)
    for note in reading.notes:
        printer.remark(note)
    used = find(engine)
    if dry_run:
        return _show_command(printer, place, launch, used)
    verification = _verify(
        printer, described, launch, engine=used, runs=runs, logs=logs, simulate=not no_simulate
    )
    if not verification.rows:
        raise EngineError(
            "the engine did not load the model: {why}",
            why=verification.attempts[0].error or phrase("it printed no figures"),
            log=verification.attempts[0].log,
            hint="its log is in {log}" if logs else "--logs FOLDER keeps its log",
        )
    if printer.json:
        from kvwise.verify import verification_json  # noqa: PLC0415

        printer.document(verification_json(verification, printer.language))
    else:
        _show(printer, verification)
    return 0 if verification.holds else EXIT_DIFFERS


def _verify(
    printer: Printer,
    model: Model,
    launch: Launch,
    *,
    engine: Engine,
    runs: int,
    logs: str | None,
    simulate: bool,
) -> Verification:
    from kvwise.verify import verify  # noqa: PLC0415

    folder = None
    if logs is not None:
        folder = Path(logs)
        folder.mkdir(parents=True, exist_ok=True)
    words = phrase("loading and generating on {engine}", engine=engine.name)
    with printer.progress(words, runs) as advance:
        return verify(
            model,
            launch,
            engine=engine,
            runs=runs,
            logs=folder,
            simulate=simulate,
            companions=companions_of(launch),
            progress=lambda number, _: advance(number),
        )


def _show_command(printer: Printer, place: str, launch: Launch, engine: Engine) -> int:
    from kvwise.engine.pretend import Pretend  # noqa: PLC0415

    would = Pretend(engine).start(place, launch)
    if printer.json:
        printer.document({"schema": "kvwise/dry-run/1", "commands": [list(would.argv)]})
    else:
        printer.text(str(would), "command")
    return 0


def _show(printer: Printer, verification: Verification) -> None:
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
    printer.table(_runs_table(verification.attempts))
    printer.text()
    _show_simulated(printer, verification)
    printer.text(*_verdict(verification))


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
