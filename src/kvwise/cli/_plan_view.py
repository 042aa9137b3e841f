"""A plan as a person reads it: the settings, why, what else, and the command to paste."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvwise.cli._ledger_view import lines_table, show_bars, show_launch, show_notes
from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.plan.choose import Choice, Plan, shell_commands
from kvwise.text import phrase
from kvwise.units import show

if TYPE_CHECKING:
    from kvwise.confirm import Confirmation


def show_plan(
    printer: Printer, plan: Plan, kept: Sequence[str], confirmed: Confirmation | None = None
) -> None:
    """The whole plan on stdout; `kept` are the flags and variables that were not touched."""
    choice = plan.choice
    show_launch(printer, choice.ledger)
    printer.text()
    printer.bullets(choice.why)
    if kept:
        flags = ", ".join(dict.fromkeys(kept))
        printer.bullets([phrase("kept as you asked: {flags}", flags=flags)])
    printer.text()
    printer.table(lines_table(choice.ledger))
    printer.text()
    show_bars(printer, choice.ledger)
    if plan.alternatives:
        printer.text()
        printer.table(_alternatives(plan))
    if plan.ladder:
        printer.text()
        printer.text(phrase("If it fails after all, in this order"), "title")
        printer.bullets([_brief(rung) for rung in plan.ladder], "dim")
    printer.text()
    show_notes(printer, choice.ledger)
    if confirmed:
        from kvwise.cli._tiers_view import show_confirmation  # noqa: PLC0415

        show_confirmation(printer, confirmed)
    show_commands(printer, plan)


def show_nearest(printer: Printer, plan: Plan) -> None:
    """What could be asked instead, with its command."""
    printer.text(phrase("The nearest that can be met:"), "title")
    printer.bullets(plan.choice.why)
    show_commands(printer, plan)


def show_commands(printer: Printer, plan: Plan) -> None:
    """The command for the shell of this system; all of them with -v."""
    commands = shell_commands(plan.choice.launch)
    for shell in ("bash", "powershell", "cmd"):
        if shell == _shell_here() or printer.verbosity > 0:
            printer.text(phrase("{shell}:", shell=shell), "dim")
            printer.text(str(commands[shell]), "command")


def _shell_here() -> str:
    if os.name != "nt":
        return "bash"
    return "powershell" if os.environ.get("PSMODULEPATH") else "cmd"


def _alternatives(plan: Plan) -> Table:
    rows: list[list[Cell | Words]] = []
    for choice in (plan.choice, *plan.alternatives):
        launch = choice.launch
        style = "title" if choice is plan.choice else ""
        speed = choice.speed.decode_tokens_per_s
        rows.append(
            [
                Cell(f"{choice.slot_tokens:,}", style),
                f"{launch.type_k}/{launch.type_v}",
                phrase(choice.quality),
                f"{choice.ledger.placement.gpu_layers}/{choice.ledger.model.n_layer_all + 1}",
                str(launch.n_cpu_moe or ""),
                "" if launch.offload_kqv else phrase("host"),
                str(launch.n_ubatch),
                show(choice.speed.read_bytes_host) if choice.speed.read_bytes_host else "",
                f"{speed:,.1f}" if speed else "",
            ]
        )
    columns = [
        Column(phrase("tokens per slot"), right=True),
        Column("K/V"),
        Column(phrase("quality")),
        Column(phrase("layers on GPU"), right=True),
        Column(phrase("experts on CPU"), right=True),
        Column(phrase("cache on")),
        Column("-ub", right=True),
        Column(phrase("host reads per token"), right=True),
        Column(phrase("tokens/s at most"), right=True),
    ]
    used = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    return Table(
        [columns[at] for at in used],
        [[row[at] for at in used] for row in rows],
        title=phrase("The choice and what else is worth a look"),
    )


def _brief(choice: Choice) -> Words:
    launch = choice.launch
    return phrase(
        "{tokens} tokens per slot, K {k}, V {v}, -ub {ubatch}, {layers} layers on GPU: {size}",
        tokens=f"{choice.slot_tokens:,}",
        k=launch.type_k,
        v=launch.type_v,
        ubatch=launch.n_ubatch,
        layers=choice.ledger.placement.gpu_layers,
        size=show(max((line.total_bytes for line in choice.ledger.lines if not line.host),
                      default=choice.ledger.host.total_bytes)),
    )  # fmt: skip
