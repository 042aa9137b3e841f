"""Planning as `plan` and `export` ask for it: the options of a goal, and the plan they lead to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from kvwise import here
from kvwise.cli._learned import NOTHING, Known, known
from kvwise.cli._request import (
    Machine,
    companions_of,
    machine,
    model_of,
    read_launch,
    with_model,
)
from kvwise.cli._request import with_reserve as kept_free
from kvwise.cli.output import Printer
from kvwise.errors import EngineError, UsageError
from kvwise.gguf.model import Model
from kvwise.here import with_reserve
from kvwise.launch import Launch
from kvwise.options import Reading, asked
from kvwise.plan.choose import Impossible, Plan
from kvwise.plan.choose import plan as make_plan
from kvwise.plan.goal import PURPOSES, Goal
from kvwise.plan.quality import QUALITIES
from kvwise.plan.report import plan_json
from kvwise.units import parse_count, parse_size

if TYPE_CHECKING:
    from kvwise.engine.find import Engine

GOAL_OPTIONS = (
    click.Option(
        ["--goal"],
        type=click.Choice(list(PURPOSES)),
        help="What it is for [default: chat, document with a prompt, multi-turn with --turns].",
    ),
    click.Option(
        ["--prompt"], metavar="FILE", help="The prompt; counted by the model's own tokenizer."
    ),
    click.Option(["--prompt-tokens"], metavar="N", help="The prompt's length, if it is known."),
    click.Option(["-n", "--predict", "--n-predict"], "predict", metavar="N",
                 help="Tokens of the answer."),
    click.Option(["--turns"], metavar="N", type=click.IntRange(1),
                 help="Questions of a conversation that stays in the context [default: 16]."),
    click.Option(["--tokens-per-turn"], metavar="N",
                 help="Tokens of a question and its answer [default: 512]."),
    click.Option(["--slots"], metavar="N", type=click.IntRange(1),
                 help="Requests at the same time."),
    click.Option(
        ["--min-quality"],
        type=click.Choice(QUALITIES),
        help="The least quality of the cache types [default: by goal].",
    ),
    click.Option(["--never-offload"], is_flag=True, help="Keep every layer on the GPUs."),
)  # fmt: skip

RPC = "rpc"
"""Kind of a device that is another machine's."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with what it was asked for."""

    plan: Plan
    model: Model
    ref: str
    on: Machine
    kept: tuple[str, ...]  # flags and variables that were not touched
    known: Known = NOTHING  # what was measured


def planned(
    printer: Printer,
    *,
    words: list[str],
    model: str | None,
    shape: str | None,
    engine: str | None,
    devices: dict[str, Any],
    results: str | None = None,
    **goal: Any,
) -> Planned:
    """The plan for a command line; `goal` holds the values of GOAL_OPTIONS, `results` names a file
    of what another machine measured.

    Raises what `plan` raises (Impossible among them), and what opening the model raises.
    """
    ref, reading = read_launch(words, model, engine)
    described = model_of(ref, shape)
    launch = with_model(reading.launch, ref, described)
    on = machine_of(launch, devices, _engine_here(launch, engine))
    wanted = goal_of(printer, described, engine=engine, **goal)
    fixed = fixed_of(reading)
    measured = known_of(described, on, launch.build, devices, results, shape=shape)
    made = make_plan(
        described,
        on.devices,
        wanted,
        launch=launch,
        fixed=fixed,
        host=on.host,
        companions=companions_of(launch),
        grades=measured.grades,
        results=measured.speeds,
    )
    kept = tuple(reading.origins[each] for each in sorted(fixed))
    return Planned(made, described, ref, on, kept, measured)


def machine_of(launch: Launch, devices: dict[str, Any], engine: Engine | None) -> Machine:
    """The devices that an engine (None = the default one) will have for a launch, the RPC servers
    that it names among them; `devices` holds the values of DEVICE_OPTIONS.

    Raises UsageError, SourceError, EngineError.
    """
    remote = asked.values(launch, "--rpc")
    named = devices["gpu"] or devices["cpu_only"] or devices["device_file"]
    if not remote or named or engine is None or engine.kind != "binary":
        return machine(**devices, engine=engine)
    from kvwise.engine.devices import list_devices  # noqa: PLC0415  (starts a process)

    own = machine(**devices, engine=engine)
    listed = list_devices(engine, ("--rpc", remote[-1]))
    here_too = {each.name for each in own.devices}
    there = [
        replace(each, kind=RPC)
        for each in listed
        if each.kind == "generic" and each.name not in here_too
    ]
    reserve = devices["reserve"]
    kept = [
        with_reserve(each) if reserve is None else kept_free(each, parse_size(reserve))
        for each in there
    ]
    return replace(own, devices=(*kept, *own.devices))  # in the engine's order: remote ones first


def _engine_here(launch: Launch, wanted: str | None) -> Engine | None:
    """The engine whose GPUs are planned for: the one that `run` would start. None where there is
    none, or no GPU that it could see. Raises UsageError for a wanted one that is not there."""
    if not here.may_have_gpu() and not asked.values(launch, "--rpc"):
        return None
    from kvwise.engine.find import serving  # noqa: PLC0415  (starts a process)

    try:
        return serving(wanted)
    except EngineError:
        if wanted:
            raise
        return None


def known_of(
    model: Model,
    on: Machine,
    build: str,
    devices: dict[str, Any],
    results: str | None,
    *,
    shape: str | None = None,
) -> Known:
    """What was measured and counts for a plan on these devices; `devices` holds the values of
    DEVICE_OPTIONS, because speeds of this machine count for its own alone."""
    own = shape is None and not any(devices[name] for name in ("gpu", "device_file", "ram"))
    return known(model, on, build, here=own, file=results)


def refuse(printer: Printer, impossible: Impossible) -> int:
    """Say that a request cannot be met and what the nearest one is; returns the exit code."""
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


def fixed_of(reading: Reading) -> Collection[str]:
    """Launch fields that the user gave and a plan keeps."""
    return set(reading.origins) - {"model", "tool", "build"}


def goal_of(
    printer: Printer,
    model: Model,
    *,
    engine: str | None,
    goal: str | None,
    prompt: str | None,
    prompt_tokens: str | None,
    predict: str | None,
    turns: int | None,
    tokens_per_turn: str | None,
    slots: int | None,
    min_quality: str | None,
    never_offload: bool,
) -> Goal:
    """What is wanted; a prompt's file is counted by an engine. Raises UsageError, EngineError."""
    tokens = _prompt_tokens(printer, model, prompt, prompt_tokens, engine)
    usual = "chat" if tokens is None else "document"
    if turns is not None or tokens_per_turn is not None:
        usual = "multi-turn"
    return Goal(
        purpose=goal or usual,
        turns=turns,
        tokens_per_turn=None if tokens_per_turn is None else parse_count(tokens_per_turn),
        prompt_tokens=tokens,
        predict_tokens=None if predict is None else parse_count(predict),
        slots=slots,
        min_quality=min_quality,
        never_offload=never_offload,
    )


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
