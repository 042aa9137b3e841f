"""`kvwise plan`: the best settings for what I need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._learned import RESULTS
from kvwise.cli._planning import GOAL_OPTIONS, Planned, planned, refuse
from kvwise.cli._request import DEVICE_NAMES, DEVICE_OPTIONS, ENGINE, MODEL, SHAPE, companions_of
from kvwise.cli.output import Printer
from kvwise.errors import UsageError
from kvwise.plan.choose import Impossible
from kvwise.plan.goal import MOST_TOKENS, PURPOSES
from kvwise.plan.report import plan_json
from kvwise.text import phrase

if TYPE_CHECKING:
    from kvwise.confirm import Confirmation
    from kvwise.plan.outlook import WhatIf

FROM_OPTIONS = (
    click.Option(["--from", "source"], metavar="COMMAND|FILE",
                 help="Say what to change in a command line or settings file that you have."),
    click.Option(["--name"], metavar="NAME", help="Which model of the file of --from."),
    click.Option(["--keep"], multiple=True, metavar="FLAG",
                 help="With --from: this flag stays as it is; `all` for every one."),
)  # fmt: skip

_GOALS = ", ".join(
    name if terms.enough > MOST_TOKENS else f"{name} {terms.least:,}/{terms.enough:,}"
    for name, terms in PURPOSES.items()
)


@make_command(
    "Find the best settings for what you need.\n\n"
    "On the GPUs you have or name: the settings, why, what else is worth a look, and the command. "
    "Flags of llama.cpp that you give stay as they are. Exit code 3 with the nearest plan if the "
    "request cannot be met.",
    MODEL,
    *FROM_OPTIONS,
    *GOAL_OPTIONS,
    *DEVICE_OPTIONS,
    SHAPE,
    ENGINE,
    RESULTS,
    click.Option(
        ["--no-simulate"], is_flag=True, help="Do not let an engine confirm it by its own pass."
    ),
    click.Option(
        ["--explain"],
        is_flag=True,
        help="Also what the speed stands on, what more memory or another file would change, and "
        "every step down.",
    ),
    notes=[
        phrase(
            "Goals, with the tokens per slot that are needed and those that are enough: {goals}. "
            "What is left of the memory goes into a longer context, except for min-memory.",
            goals=_GOALS,
        )
    ],
    examples=(
        'kvwise plan model.gguf --gpu "RTX 4060" --prompt report.txt -n 1000',
        "kvwise plan model.gguf --goal max-context --min-quality high -ub 256",
        'kvwise plan --from "llama-server -m model.gguf -c 32768 -ngl 99" --keep -c',
    ),
)  # fmt: skip
def command(
    printer: Printer,
    *,
    shape: str | None,
    engine: str | None,
    no_simulate: bool,
    explain: bool,
    words: list[str],
    model: str | None,
    **options: Any,
) -> int:
    theirs = {name: options.pop(name) for name in ("source", "name", "keep")}
    words = words + [
        each for word in theirs["keep"] if word.isdecimal() for each in ("--keep", word)
    ]
    if theirs["source"] is not None:
        from kvwise.cli._from import advise  # noqa: PLC0415  (YAML and a dozen formats)

        return advise(printer, model=model, words=words, engine=engine, **theirs, **options)
    _alone(theirs)
    devices = {name: options.pop(name) for name in DEVICE_NAMES}
    try:
        made = planned(
            printer,
            words=words,
            model=model,
            shape=shape,
            engine=engine,
            devices=devices,
            **options,
        )
    except Impossible as impossible:
        return refuse(printer, impossible)
    confirmed = None
    if not no_simulate and shape is None:
        confirmed = _confirm(printer, made, engine, named=bool(devices["gpu"]))
    what_if = _what_if(printer, made) if explain else None
    if printer.json:
        _print_document(printer, made, confirmed, what_if)
    else:
        from kvwise.cli._plan_view import show_plan  # noqa: PLC0415  (not needed for --json)

        show_plan(
            printer,
            made.plan,
            made.kept,
            confirmed,
            explain=explain,
            what_if=what_if or (),
            measured=made.known.said,
        )
    return 0


def _alone(theirs: Mapping[str, Any]) -> None:
    """Refuse what only means something beside --from (a number is llama.cpp's own --keep)."""
    kept = [word for word in theirs["keep"] if not word.isdecimal()]
    if kept:
        raise UsageError(
            "--keep {flag} belongs to --from", flag=kept[0],
            hint="a flag that stands on this line stays as it is without being named",
        )  # fmt: skip
    if theirs["name"] is not None:
        raise UsageError("--name belongs to --from")


def _what_if(printer: Printer, made: Planned) -> tuple[WhatIf, ...]:
    """More memory and other quantizations; plans anew a few times."""
    from kvwise.plan.outlook import outlook  # noqa: PLC0415  (only when explained)

    with printer.working(phrase("planning other cases")):
        return outlook(
            made.plan,
            made.model,
            made.on.devices,
            host=made.on.host,
            companions=companions_of(made.plan.choice.launch),
            grades=made.known.grades,
            results=made.known.speeds,
        )


def _print_document(
    printer: Printer,
    made: Planned,
    confirmed: Confirmation | None,
    what_if: tuple[WhatIf, ...] | None,
) -> None:
    document = plan_json(made.plan, printer.language, what_if)
    document |= {"measured": made.known.as_json(printer.language), "confirmed": None}
    if confirmed:
        from kvwise.confirm import confirmation_json  # noqa: PLC0415

        document["confirmed"] = confirmation_json(confirmed, printer.language)
    printer.document(document)


def _confirm(
    printer: Printer, made: Planned, engine: str | None, *, named: bool
) -> Confirmation | None:
    """What an engine that is at hand says to the plan; None without one."""
    from kvwise.engine.find import at_hand, find  # noqa: PLC0415

    on = made.on
    used = at_hand(engine, gpus=bool(on.devices))
    if used is None:
        return None
    from kvwise.confirm import confirm  # noqa: PLC0415  (heavy, and starts an engine)

    own = bool(on.devices) and not named and find() == used  # the one that listed these devices
    with printer.working(phrase("asking {engine}", engine=used.name)):
        return confirm(
            made.plan, made.ref, on.devices, used, host=on.host, own=own,
            companions=companions_of(made.plan.choice.launch),
        )  # fmt: skip
