"""`kvwise plan`: the best settings for what I need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._request import (
    DEVICE_OPTIONS,
    ENGINE,
    MODEL,
    SHAPE,
    Machine,
    companions_of,
    machine,
    model_of,
    read_launch,
    with_model,
)
from kvwise.cli.output import Printer
from kvwise.errors import UsageError
from kvwise.gguf.model import Model
from kvwise.plan.choose import Impossible, Plan
from kvwise.plan.choose import plan as make_plan
from kvwise.plan.goal import MOST_TOKENS, PURPOSES, Goal
from kvwise.plan.quality import QUALITIES
from kvwise.plan.report import plan_json
from kvwise.text import phrase
from kvwise.units import parse_count

if TYPE_CHECKING:
    from kvwise.confirm import Confirmation

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
    click.Option(
        ["--goal"],
        type=click.Choice(list(PURPOSES)),
        help="What it is for [default: chat, or document with a prompt].",
    ),
    click.Option(
        ["--prompt"], metavar="FILE", help="The prompt; counted by the model's own tokenizer."
    ),
    click.Option(["--prompt-tokens"], metavar="N", help="The prompt's length, if it is known."),
    click.Option(["-n", "--predict", "--n-predict"], "predict", metavar="N",
                 help="Tokens of the answer."),
    click.Option(["--slots"], metavar="N", type=click.IntRange(1),
                 help="Requests at the same time."),
    click.Option(
        ["--min-quality"],
        type=click.Choice(QUALITIES),
        help="The least quality of the cache types [default: by goal].",
    ),
    click.Option(["--never-offload"], is_flag=True, help="Keep every layer on the GPUs."),
    *DEVICE_OPTIONS,
    SHAPE,
    ENGINE,
    click.Option(
        ["--no-simulate"], is_flag=True, help="Do not let an engine confirm it by its own pass."
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
    ),
)  # fmt: skip
def command(
    printer: Printer,
    *,
    words: list[str],
    model: str | None,
    shape: str | None,
    goal: str | None,
    prompt: str | None,
    prompt_tokens: str | None,
    predict: str | None,
    slots: int | None,
    min_quality: str | None,
    never_offload: bool,
    engine: str | None,
    no_simulate: bool,
    **devices: Any,
) -> int:
    ref, reading = read_launch(words, model)
    described = model_of(ref, shape)
    on = machine(**devices)
    tokens = _prompt_tokens(printer, described, prompt, prompt_tokens, engine)
    wanted = Goal(
        purpose=goal or ("chat" if tokens is None else "document"),
        prompt_tokens=tokens,
        predict_tokens=None if predict is None else parse_count(predict),
        slots=slots,
        min_quality=min_quality,
        never_offload=never_offload,
    )
    launch = with_model(reading.launch, ref, described)
    fixed = set(reading.origins) - {"model", "tool", "build"}
    try:
        made = make_plan(
            described,
            on.devices,
            wanted,
            launch=launch,
            fixed=fixed,
            host=on.host,
            companions=companions_of(launch),
        )
    except Impossible as impossible:
        return _refuse(printer, impossible)
    confirmed = None
    if not no_simulate and shape is None:
        confirmed = _confirm(printer, made, ref, on, engine, named=bool(devices["gpu"]))
    if printer.json:
        _print_document(printer, made, confirmed)
    else:
        from kvwise.cli._plan_view import show_plan  # noqa: PLC0415  (not needed for --json)

        kept = [reading.origins[name] for name in sorted(fixed)]
        show_plan(printer, made, kept, confirmed)
    return 0


def _print_document(printer: Printer, made: Plan, confirmed: Confirmation | None) -> None:
    document = plan_json(made, printer.language) | {"confirmed": None}
    if confirmed:
        from kvwise.confirm import confirmation_json  # noqa: PLC0415

        document["confirmed"] = confirmation_json(confirmed, printer.language)
    printer.document(document)


def _confirm(
    printer: Printer, made: Plan, ref: str, on: Machine, engine: str | None, *, named: bool
) -> Confirmation | None:
    """What an engine that is at hand says to the plan; None without one."""
    from kvwise.confirm import confirm, engine_for  # noqa: PLC0415  (starts an engine)
    from kvwise.engine.find import find  # noqa: PLC0415

    used = engine_for(on.devices, engine)
    if used is None:
        return None
    own = bool(on.devices) and not named and find() == used  # the one that listed these devices
    with printer.working(phrase("asking {engine}", engine=used.name)):
        return confirm(made, ref, on.devices, used, host=on.host, own=own)


def _refuse(printer: Printer, impossible: Impossible) -> int:
    nearest = impossible.nearest
    if printer.json:
        extra = plan_json(nearest, printer.language) if nearest else None
        printer.error(impossible, {"nearest": extra})
        return impossible.exit_code
    printer.error(impossible)
    if nearest:
        from kvwise.cli._plan_view import show_nearest  # noqa: PLC0415

        show_nearest(printer, nearest)
    return impossible.exit_code


def _prompt_tokens(
    printer: Printer, model: Model, prompt: str | None, known: str | None, engine: str | None
) -> int | None:
    if prompt is None:
        return None if known is None else parse_count(known)
    if known is not None:
        raise UsageError("--prompt and --prompt-tokens say the same thing twice")
    from kvwise.cli._count import count_text, model_file  # noqa: PLC0415  (starts an engine)

    model_file(
        model, hint="give a .gguf file on this machine, or the prompt's length as --prompt-tokens N"
    )
    return count_text(printer, model, prompt, engine=engine).tokens
