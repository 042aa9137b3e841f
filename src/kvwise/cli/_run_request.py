"""What `kvwise run` is asked for: which engine, which launch, and what may move when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvwise.cli._build import read_for_build
from kvwise.cli._count import model_file
from kvwise.cli._planning import fixed_of, goal_of, known_of, machine_of
from kvwise.cli._request import Machine, companions_of, machine, model_of, with_model
from kvwise.cli.output import Printer
from kvwise.engine.find import Engine
from kvwise.errors import KvwiseError, UsageError
from kvwise.gguf.model import Model
from kvwise.guard.case import Case, short
from kvwise.guard.line import Given
from kvwise.launch import Launch
from kvwise.options import spellings
from kvwise.options.row import SERVER as TOOL
from kvwise.plan.choose import Plan
from kvwise.plan.choose import plan as make_plan
from kvwise.plan.step import KNOBS
from kvwise.text import Phrase, phrase
from kvwise.units import show


@dataclass(slots=True)
class Wanted:
    """A run that is ready to start; `plan` None = the flags are taken as they were given."""

    given: Given
    case: Case
    launch: Launch
    plan: Plan | None = None
    notes: list[Phrase] = field(default_factory=list)


def wanted_of(
    printer: Printer,
    *,
    words: Sequence[str],
    strangers: Sequence[str],
    model: str | None,
    engine: Engine,
    engine_wanted: str | None,
    devices: dict[str, Any],
    goal: dict[str, Any],
    may_change: Sequence[str],
    dry_run: bool,
    results: str | None = None,
) -> Wanted:
    """Read the line. A model that stands alone is planned for as `plan` does; a command with -m is
    taken as it is.

    Raises UsageError, Impossible, and what opening the model raises.
    """
    _check_strangers(strangers, engine)
    planned = bool(model) or any(goal[name] for name in goal if name != "predict")
    more = ["-n", goal["predict"]] if goal["predict"] and not planned else []
    line = [*_plain_numbers(words), *more]
    reading = read_for_build([*words, *more], model, engine_wanted)
    if model and "model" in reading.origins and reading.launch.model != model:
        raise UsageError("two models: {one} and {other}", one=model, other=reading.launch.model)
    ref = model or reading.launch.model
    notes = [*reading.notes]
    described = _described(ref, notes, needed=planned or engine.kind == "embedded")
    base = reading.launch
    if described is not None:
        base = with_model(base, ref, described)
    on = _machine(engine, base, devices, notes, needed=planned)
    if not dry_run and (devices["gpu"] or devices["device_file"]):
        names = ", ".join(each.name for each in on.devices) or phrase("no GPU")
        notes.append(
            phrase("planned for {names} as asked; the engine uses the devices that it finds here",
                   names=names)
        )  # fmt: skip
    case = Case(
        described,
        on.devices,
        on.host,
        fixed=frozenset(fixed_of(reading)),
        may_change=frozenset(KNOBS if "all" in may_change else may_change),
        companions=companions_of(base),
    )
    given = Given(
        engine,
        tuple(line),
        tuple(strangers),
        _place(described, engine, dry_run=dry_run),
        base,
        case.fixed,
        planned,
        named=bool(model),
    )
    if not planned or described is None:
        wanted = Wanted(given, case, base, notes=notes)
        notes += _misses(wanted)
        return wanted
    aim = goal_of(printer, described, engine=engine_wanted, **goal)
    measured = known_of(described, on, base.build, devices, results)
    made = make_plan(
        described,
        on.devices,
        aim,
        launch=base,
        fixed=case.fixed,
        host=on.host,
        companions=case.companions,
        grades=measured.grades,
        results=measured.speeds,
    )
    case = replace(case, goal=aim, plan=made)
    return Wanted(given, case, made.choice.launch, made, [*notes, *measured.said])


def _check_strangers(strangers: Sequence[str], engine: Engine) -> None:
    """What stands first must be a flag; a flag that the program does not know is a slip."""
    if strangers and not strangers[0].startswith("-"):
        raise UsageError("one word too many: {word}", word=strangers[0][:80])
    if engine.kind == "binary" and engine.flags:
        for word in strangers:
            if word.startswith("--") and not engine.knows(word.partition("=")[0]):
                raise UsageError(
                    "{engine} does not know {flag}", engine=engine.name, flag=word[:80],
                    hint="leave it out, or use a newer llama.cpp",
                )  # fmt: skip


def _plain_numbers(words: Sequence[str]) -> list[str]:
    """The words without kvwise's own, and `-c 32k` as the engine reads it (it would take 32)."""
    known = spellings(TOOL)
    line: list[str] = []
    at = 0
    while at < len(words):
        option = known.get(words[at])
        takes = option.kind_in(TOOL).takes if option else 0
        values = list(words[at + 1 : at + 1 + takes])
        if option is not None and option.ours:
            if option.field == "tool" and values != [TOOL]:
                raise UsageError("kvwise run starts llama-server and nothing else")
        elif option is not None and option.kind.name == "count" and values:
            line += [words[at], option.kind.write(option.kind.read(values[0]))]
        else:
            line += [words[at], *values]
        at += 1 + takes
    return line


def _described(ref: str, notes: list[Phrase], *, needed: bool) -> Model | None:
    """The model's header. A command that is taken as it is can do without; its engine will say
    what is wrong with the file, and a model of a hub is not looked up for it."""
    if needed or not ref:
        return model_of(ref)
    if ref.startswith(("hf:", "docker:", "http://", "https://")):
        return None
    try:
        return model_of(ref)
    except KvwiseError as error:
        notes.append(phrase("kvwise cannot read the model: {why}", why=error.phrase))
        return None


def _machine(
    engine: Engine, base: Launch, devices: dict[str, Any], notes: list[Phrase], *, needed: bool
) -> Machine:
    """The devices that the engine will have; none where they cannot be listed and need not."""
    try:
        return machine_of(base, devices, engine)
    except KvwiseError as error:
        if needed:
            raise
        notes.append(phrase("kvwise does not see the GPUs: {why}", why=error.phrase))
        return machine(cpu_only=True)


def _place(model: Model | None, engine: Engine, *, dry_run: bool) -> str:
    """The model's file, for an engine that takes nothing else."""
    if model is None:
        return ""
    if dry_run:
        return model.path or ""
    return model_file(model) if engine.kind == "embedded" else model.path or ""


def _misses(wanted: Wanted) -> list[Phrase]:
    """What kvwise expects of flags that it did not choose."""
    ledger = wanted.case.ledger(wanted.launch)
    if ledger is None or wanted.launch.fit:
        return []
    return [
        phrase(
            "these flags need {need} on {device} and {free} is free: expect a refusal",
            need=show(line.total_bytes),
            device=line.device or line.buffer,
            free=show(line.free_bytes or 0),
        )
        for line in short(ledger)
    ]
