"""`kvwise simulate`: the ledger from the engine's own no-alloc pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._request import (
    DEVICE_OPTIONS,
    MODEL,
    Machine,
    companions_of,
    machine,
    model_of,
    read_launch,
)
from kvwise.cli.output import Printer
from kvwise.errors import Refused
from kvwise.memory.report import ledger_json
from kvwise.memory.reserves import keeping
from kvwise.text import phrase

if TYPE_CHECKING:
    from kvwise.engine.find import Engine
    from kvwise.launch import Launch
    from kvwise.memory.parts.companions import Companions
    from kvwise.simulate import Simulation
    from kvwise.tiers import Tiers

EXIT_DOES_NOT_FIT = 3


@dataclass(frozen=True, slots=True)
class _Question:
    """Whom to ask about what; `own` = the engine's own devices, not stand-ins for them."""

    ref: str
    launch: Launch
    engine: Engine
    on: Machine
    own: bool
    companions: Companions


@make_command(
    "Ask the engine itself what these settings take, also on GPUs that are not here.\n\n"
    "llama.cpp's own no-alloc pass gives the ledger; nothing is loaded. Its figures stand beside "
    "the computed ones; what no pass measures (adapters, caches that grow with use) is computed "
    "and says so. A llama.cpp of yours is asked about any GPUs, the embedded engine only "
    "about this processor. Exit code 3 if it does not fit or llama.cpp refuses it.",
    MODEL,
    click.Option(
        ["--engine"],
        metavar="PATH",
        help="llama-server, llama-fit-params or the folder of a llama.cpp built with "
        "-DGGML_RPC=ON [default: the embedded engine; the one on PATH for GPUs].",
    ),
    *DEVICE_OPTIONS,
    click.Option(["--dry-run"], is_flag=True, help="Print the command instead of running it."),
    examples=(
        "kvwise simulate model.gguf -c 8192 --cpu-only",
        'kvwise simulate model.gguf -c 32768 --gpu "RTX 4060" --engine ~/llama.cpp',
    ),
)
def command(
    printer: Printer,
    *,
    words: list[str],
    model: str | None,
    engine: str | None,
    dry_run: bool,
    **devices: Any,
) -> int:
    ref, reading = read_launch(words, model, engine)
    model_of(ref)  # what is no model is told before any engine starts
    launch = reading.launch
    for note in reading.notes:
        printer.remark(note)
    question = _question(ref, launch, engine, **devices)
    if dry_run:
        return _show_command(printer, question)
    simulated = _simulate(printer, question)
    beside = _beside(printer, simulated, question.on)
    if printer.json:
        from kvwise.tiers import tiers_json  # noqa: PLC0415

        document = ledger_json(simulated.ledger, printer.language)
        if beside:
            document |= {"beside": tiers_json(beside)}
        printer.document(document)
    else:
        _show(printer, simulated, beside)
    return 0 if simulated.ledger.fits else EXIT_DOES_NOT_FIT


def _question(ref: str, launch: Launch, engine: str | None, **devices: Any) -> _Question:
    """GPUs that are named need not be here; otherwise the engine is asked about its own."""
    from kvwise import here  # noqa: PLC0415
    from kvwise.engine.find import find, for_gpus  # noqa: PLC0415  (help should not load one)

    companions = companions_of(launch)
    if devices["gpu"] or devices["device_file"]:
        on = machine(**devices)
        used = for_gpus(engine) or find(engine)
        return _Question(ref, launch, used, on, own=False, companions=companions)
    used = find(engine)
    gpus = [] if devices["cpu_only"] else here.devices(used)
    on = machine(**devices | {"cpu_only": True})
    on = Machine(tuple(gpus), on.host)
    return _Question(ref, launch, used, on, own=bool(gpus), companions=companions)


def _simulate(printer: Printer, asked: _Question) -> Simulation:
    from kvwise.simulate import simulation  # noqa: PLC0415

    with printer.working(phrase("asking {engine}", engine=asked.engine.name)):
        said = simulation(
            asked.ref,
            asked.launch,
            asked.on.devices,
            engine=asked.engine,
            host=asked.on.host,
            own=asked.own,
            companions=asked.companions,
        )
        return replace(said, ledger=keeping(said.ledger))


def _beside(printer: Printer, simulated: Simulation, on: Machine) -> Tiers | None:
    from kvwise.tiers import tiers  # noqa: PLC0415

    try:
        return tiers(simulated, on.host)
    except Refused as refused:
        printer.remark(
            phrase("our rules refuse what the engine took: {why}", why=refused.phrase), "bad"
        )
        return None


def _show_command(printer: Printer, asked: _Question) -> int:
    from kvwise.cli._dry_run import show_commands  # noqa: PLC0415
    from kvwise.engine.pretend import Pretend  # noqa: PLC0415
    from kvwise.engine.server import shown  # noqa: PLC0415
    from kvwise.simulate import command as simulate_command  # noqa: PLC0415

    argv = simulate_command(
        asked.ref,
        asked.launch,
        asked.on.devices,
        engine=asked.engine,
        own=asked.own,
        companions=asked.companions,
    )
    embedded = asked.engine.kind == "embedded"
    readable = shown(asked.ref, asked.launch, asked.engine) if embedded else ()
    would = Pretend(asked.engine).tool(argv, readable)
    return show_commands(printer, [would])


def _show(printer: Printer, simulated: Simulation, beside: Tiers | None) -> None:
    from kvwise.cli._ledger_view import (  # noqa: PLC0415  (not needed for --json)
        extras_table,
        lines_table,
        show_launch,
        show_notes,
        verdict,
    )
    from kvwise.cli._tiers_view import show_tiers  # noqa: PLC0415

    ledger = simulated.ledger
    show_launch(printer, ledger)
    printer.text(phrase("simulated by {engine}", engine=simulated.engine.name), "dim")
    printer.text()
    printer.table(lines_table(ledger))
    printer.text()
    if ledger.extras:
        printer.table(extras_table(ledger, bases=True))
        printer.text()
    if beside:
        show_tiers(printer, beside)
    show_notes(printer, ledger)
    printer.text(*verdict(ledger))
