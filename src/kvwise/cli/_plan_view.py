"""A plan as a person reads it: the settings, why, what else, and the command to paste."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kvwise.cli._ledger_view import lines_table, show_bars, show_launch, show_notes
from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.options import to_argv
from kvwise.plan.choose import Choice, Plan, shell_commands
from kvwise.plan.experts import count_on_host
from kvwise.plan.speed.words import span
from kvwise.plan.why import details
from kvwise.text import Phrase, phrase
from kvwise.units import show

if TYPE_CHECKING:
    from kvwise.confirm import Confirmation
    from kvwise.plan.outlook import WhatIf


def show_plan(
    printer: Printer,
    plan: Plan,
    kept: Sequence[str],
    confirmed: Confirmation | None = None,
    *,
    explain: bool = False,
    what_if: Sequence[WhatIf] = (),
    measured: Sequence[Phrase] = (),
) -> None:
    """The plan on stdout; `kept` are the flags and variables that were not touched, `measured`
    says what was measured before.

    Short: settings, reasons, bytes, what else is worth a look, the command. With `explain` also
    what the speed stands on, what would change with more memory or another file, and every step
    down.
    """
    choice = plan.choice
    show_launch(printer, choice.ledger)
    printer.text()
    printer.bullets([*choice.why, *measured])
    if kept:
        flags = ", ".join(dict.fromkeys(kept))
        printer.bullets([phrase("kept as you asked: {flags}", flags=flags)])
    printer.text()
    printer.table(_lines(choice))
    printer.text()
    show_bars(printer, choice.ledger, host=explain or not choice.ledger.devices)
    _show_alternatives(printer, plan, explain=explain)
    if explain:
        _show_details(printer, plan, what_if)
    printer.text()
    show_notes(printer, choice.ledger)
    if confirmed:
        from kvwise.cli._tiers_view import show_confirmation  # noqa: PLC0415

        show_confirmation(printer, confirmed)
    show_commands(printer, plan)


def _lines(choice: Choice) -> Table:
    """The bytes of each device by the engine's name for it, within 80 columns: the bars below
    have the long one."""
    table = lines_table(choice.ledger)
    names = [Cell(line.buffer, "title") for line in choice.ledger.lines]
    rows = [(name, *row[1:]) for name, row in zip(names, table.rows, strict=True)]
    return replace(table, rows=rows)


def _show_alternatives(printer: Printer, plan: Plan, *, explain: bool) -> None:
    if not plan.alternatives:
        return
    printer.text()
    printer.text(phrase("What else is worth a look"), "title")
    printer.bullets([_alternative(plan.choice, each) for each in plan.alternatives])
    if explain:
        printer.text()
        printer.table(_alternatives(plan))


def _alternative(chosen: Choice, other: Choice) -> Words:
    """What an alternative trades, and the flags that make it."""
    flags = " ".join(_flags_beyond(chosen, other))
    return phrase("{trades}: {flags}", trades=other.trades or "", flags=flags)


def _flags_beyond(chosen: Choice, other: Choice) -> Iterator[str]:
    """Flags to change in the choice's command to have the other."""
    have, wanted = _flags(chosen), _flags(other)
    for flag, value in wanted.items():
        if have.get(flag) != value:
            yield f"{flag} {value}".rstrip()
    for flag in have:
        if flag not in wanted:  # its default is meant
            yield f"{flag} f16" if flag in {"-ctk", "-ctv"} else f"(no {flag})"


def _flags(choice: Choice) -> dict[str, str]:
    """Flag -> its value, empty for a switch."""
    words = to_argv(choice.launch)
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        if word.startswith("-") and not word[1:].isdigit():
            value = words[at + 1] if at + 1 < len(words) else "-"
            takes = not value.startswith("-") or value[1:].isdigit()
            found[word] = value if takes else ""
    return found


def _show_details(printer: Printer, plan: Plan, what_if: Sequence[WhatIf]) -> None:
    printer.text()
    printer.text(phrase("What the speed stands on"), "title")
    printer.bullets(details(plan.choice))
    if what_if:
        printer.text()
        printer.text(phrase("What if"), "title")
        printer.bullets([each.sentence for each in what_if])
    if plan.ladder:
        printer.text()
        printer.text(phrase("If it fails after all, in this order"), "title")
        printer.bullets([_rung(rung) for rung in plan.ladder], "dim")


def _rung(choice: Choice) -> Words:
    """What a step down gives up, and what is then taken."""
    if choice.step is None:
        return brief(choice)
    return phrase(
        "{step}: {tokens} tokens per slot, {size}",
        step=choice.step, tokens=f"{choice.slot_tokens:,}", size=_sizes(choice),
    )  # fmt: skip


def show_nearest(printer: Printer, plan: Plan) -> None:
    """What could be asked instead, with its command."""
    printer.text(phrase("The nearest that can be met:"), "title")
    printer.bullets(plan.choice.why)
    show_commands(printer, plan)


def show_commands(printer: Printer, plan: Plan) -> None:
    """The command for the shell of this system; all of them with -v."""
    commands = shell_commands(plan.choice.launch)
    for shell in ("bash", "powershell", "cmd"):
        if shell == shell_here() or printer.verbosity > 0:
            printer.text(phrase("{shell}:", shell=shell), "dim")
            printer.text(str(commands[shell]), "command")


def shell_here() -> str:
    """Whose rules a command line follows here: bash, powershell or cmd."""
    if os.name != "nt":
        return "bash"
    return "powershell" if os.environ.get("PSMODULEPATH") else "cmd"


def _alternatives(plan: Plan) -> Table:
    """The choice and the alternatives in figures, within 80 columns."""
    rows: list[list[Cell | Words]] = []
    for choice in (plan.choice, *plan.alternatives):
        style = "title" if choice is plan.choice else ""
        launch, speed = choice.launch, choice.speed
        rows.append(
            [
                Cell(f"{choice.slot_tokens:,}", style),
                f"{launch.type_k}/{launch.type_v}",
                phrase(choice.quality),
                _where(choice),
                str(launch.n_ubatch),
                span(speed.decode) if speed.decode else "",
                span(speed.prompt) if speed.prompt else "",
            ]
        )
    columns = [
        Column(phrase("per slot"), right=True),
        Column("K/V"),
        Column(phrase("quality")),
        Column(phrase("on GPU")),
        Column("-ub", right=True),
        Column(phrase("answer/s"), right=True),
        Column(phrase("prompt/s"), right=True),
    ]
    used = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    return Table([columns[at] for at in used], [[row[at] for at in used] for row in rows])


def _where(choice: Choice) -> Words:
    """What is on the GPUs: layers, and what of them is not."""
    launch = choice.launch
    layers = f"{choice.ledger.placement.gpu_layers}/{choice.ledger.model.n_layer_all + 1}"
    if away := count_on_host(choice.ledger):
        return phrase("{layers} -{count} exp", layers=layers, count=away)
    return layers if launch.offload_kqv else phrase("{layers} -kv", layers=layers)


def brief(choice: Choice) -> Words:
    """A choice in one line, with what each device then holds."""
    launch = choice.launch
    return phrase(
        "{tokens} tokens per slot, K {k}, V {v}, -ub {ubatch}, {layers} layers on GPU: {size}",
        tokens=f"{choice.slot_tokens:,}",
        k=launch.type_k,
        v=launch.type_v,
        ubatch=launch.n_ubatch,
        layers=choice.ledger.placement.gpu_layers,
        size=_sizes(choice),
    )


def _sizes(choice: Choice) -> str:
    """Bytes on the GPU, on each where there are several, on the host where there is none."""
    gpus = [line for line in choice.ledger.lines if not line.host]
    if len(gpus) > 1:
        return ", ".join(f"{line.buffer} {show(line.total_bytes)}" for line in gpus)
    return show((gpus[0] if gpus else choice.ledger.host).total_bytes)
