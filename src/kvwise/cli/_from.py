"""`kvwise plan --from`: what to change in settings that are there already."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvwise.cli._learned import known
from kvwise.cli._planning import goal_of, refuse
from kvwise.cli._request import DEVICE_NAMES, companions_of, machine, model_of, with_model
from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.errors import SourceError, UsageError
from kvwise.export import files, target
from kvwise.export.settings import plain_name, settings_of
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.options import Reading, read, to_argv
from kvwise.options.row import BENCH
from kvwise.plan import commands
from kvwise.plan.choose import Impossible, Plan, plan
from kvwise.plan.report import plan_json
from kvwise.text import Phrase, phrase
from kvwise.theirs import Given, of_file, of_text
from kvwise.theirs.compare import Comparison, compare, fields_kept
from kvwise.theirs.repair import repair
from kvwise.theirs.report import comparison_json
from kvwise.units import show

_STORED, _MODELFILE = "ollama:", "Modelfile"
_SHELLS = {"bash": commands.bash, "powershell": commands.powershell, "cmd": commands.cmd}


@dataclass(frozen=True, slots=True)
class _Asked:
    """Theirs, understood: the model and the reading with it."""

    given: Given
    model: Model
    ref: str
    reading: Reading
    notes: tuple[Phrase, ...]
    named: str  # what they call the model


def advise(
    printer: Printer,
    source: str,
    *,
    model: str | None,
    name: str | None,
    keep: tuple[str, ...],
    words: list[str],
    engine: str | None,
    results: str | None,
    **options: Any,
) -> int:
    """Compare and show; returns the exit code. Raises what reading and planning raise."""
    asked = _understood(source, model, name, words)
    devices = {each: options.pop(each) for each in DEVICE_NAMES}
    on = machine(**devices)
    here = not any(devices[each] for each in ("gpu", "device_file", "ram"))
    measured = known(asked.model, on, asked.reading.launch.build, here=here, file=results)
    goal = goal_of(printer, asked.model, engine=engine, **options)
    companions = companions_of(asked.reading.launch)

    def ledger_of(launch: Launch) -> Ledger:
        return account(asked.model, launch, on.devices, host=on.host, companions=companions)

    def planner(launch: Launch, fixed: Any, wanted: Any) -> Plan:
        return plan(asked.model, on.devices, wanted, launch=launch, fixed=fixed, host=on.host,
                    companions=companions, grades=measured.grades,
                    results=measured.speeds)  # fmt: skip

    kept = fields_kept([word for word in keep if not word.isdecimal()], asked.reading)
    try:
        made = compare(asked.reading, kept, goal, planner, ledger_of, host=on.host)
    except Impossible as impossible:
        return refuse(printer, impossible)
    if printer.json:
        document = plan_json(made.plan, printer.language)
        document["commands"] = commands.all_shells([made.advised.tool, *to_argv(made.advised)])
        document |= comparison_json(asked.given, made, asked.notes, printer.language)
        document["measured"] = measured.as_json(printer.language)
        printer.document(document)
    else:
        _show(printer, asked, made, source, measured.said)
    return 0


def _understood(source: str, model: str | None, name: str | None, words: list[str]) -> _Asked:
    given = _given(source, name)
    found = given.found
    repaired = repair([*found.words, *words], found.tool, _build(words))
    environ = {**os.environ, **found.environ} if found.environ else dict(os.environ)
    reading = read(repaired.words, tool=found.tool, environ=environ)
    ref = model or _expanded(reading.launch.model)
    if not ref:
        raise UsageError("{source} names no model", source=_short(source),
                         hint="name it as well: kvwise plan MODEL --from ...")  # fmt: skip
    described = model_of(ref)
    launch = with_model(reading.launch, ref, described)
    if reading.launch.model and not reading.launch.model.startswith("ollama:"):
        launch = replace(launch, model=reading.launch.model)
    if found.share is not None and "n_gpu_layers" not in reading.origins:
        layers = round(found.share * (described.n_layer_all + 1))
        launch = replace(launch, n_gpu_layers=layers)
    notes = (*found.unread, *repaired.notes, *reading.notes)
    named = reading.launch.model
    return _Asked(given, described, ref, replace(reading, launch=launch), notes, named)


def _build(words: list[str]) -> str:
    at = words.index("--engine-build") + 1 if "--engine-build" in words else 0
    return words[at] if 0 < at < len(words) else Launch().build


def _given(source: str, name: str | None) -> Given:
    if not source.strip():
        raise UsageError("--{option} says nothing", option="from")
    if source == "-":
        if sys.stdin is None:
            raise UsageError("there is nothing to read: stdin is closed")
        return _of_any("-", sys.stdin.read(4 << 20), name)
    if source.startswith(_STORED):
        return of_file(_MODELFILE, _modelfile(source.removeprefix(_STORED)), name)
    path = Path(source) if len(source) < 4096 and "\n" not in source else None
    if path is not None and _is_there(path):
        old = files.read(path)
        return of_file(str(path), old.text if old else "", name)
    if path is not None and " " not in source and path.suffix and not source.startswith("-"):
        raise SourceError("there is no file {path}", path=source)
    return of_text(source)


def _modelfile(name: str) -> str:
    """What Ollama's store says of a model, as `ollama show --modelfile` would."""
    from kvwise.gguf.ollama import parameters  # noqa: PLC0415

    lines = [f"PARAMETER {key} {value}" for key, value in parameters(name).items()]
    return "\n".join([f"FROM {name}", *lines, ""])


def _of_any(path: str, text: str, name: str | None) -> Given:
    """From a pipe: a settings file if it looks like one, else a command line."""
    from kvwise.theirs import kind_of  # noqa: PLC0415

    return of_file(path, text, name) if kind_of(path, text) else of_text(text)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _expanded(model: str) -> str:
    return os.path.expanduser(model) if model.startswith("~") else model  # noqa: PTH111


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) < 60 else f"{line[:57]}..."


# -- the text -----------------------------------------------------------------


def _show(
    printer: Printer, asked: _Asked, made: Comparison, source: str, measured: Sequence[Phrase]
) -> None:
    printer.text(_verdict(made), "title")
    for note in asked.notes:
        printer.bullets([note])
    printer.text()
    if any(each.changes for each in made.changes):
        printer.table(_table(made))
    else:
        printer.text(phrase("nothing to change"))
    printer.text()
    printer.bullets([*made.plan.choice.why, *measured])
    printer.text()
    for heading, text in _corrected(asked, made, source):
        printer.text(heading, "dim")
        printer.content(text if text.endswith("\n") else f"{text}\n")


def _verdict(made: Comparison) -> Phrase:
    if made.problem is not None:
        return phrase("now: refused: {problem}", problem=made.problem.phrase)
    ledger = made.ledger
    assert ledger is not None  # noqa: S101  (without a problem there is one)
    tokens = f"{ledger.context.n_ctx:,}"
    if not ledger.fits:
        return phrase("now: {tokens} tokens of context, and {size} are missing",
                      tokens=tokens, size=show(ledger.misses_by_bytes))  # fmt: skip
    if ledger.launch.fit and ledger.launch.n_ctx == 0:
        return phrase("now: the engine decides; up to {tokens} tokens of context", tokens=tokens)
    lines = [line for line in ledger.lines if line.headroom_bytes is not None]
    if not lines:
        return phrase("now: {tokens} tokens of context, and it fits", tokens=tokens)
    line = min(lines, key=lambda each: (each.host, each.headroom_bytes))
    return phrase("now: {tokens} tokens of context; it fits, {size} stay free on {device}",
                  tokens=tokens, size=show(line.headroom_bytes or 0),
                  device=line.device or phrase("the host"))  # fmt: skip


def _table(made: Comparison) -> Table:
    rows: list[list[Cell | Words]] = []
    for each in made.changes:
        style = "title" if each.changes else "dim"
        arrow = each.advised if each.changes else ""
        rows.append([Cell(each.flag, style), each.now, Cell(arrow, style), each.why])
    columns = [Column(phrase("flag")), Column(phrase("now")), Column(phrase("advised")),
               Column(phrase("why"))]  # fmt: skip
    return Table(columns, rows)


def _corrected(asked: _Asked, made: Comparison, source: str) -> list[tuple[Phrase, str]]:
    """The same thing with the changes in it: a command for its shell, or the file's difference."""
    launch = made.advised
    kind, found = asked.given.kind, asked.given.found
    if kind in _SHELLS and found.wrapper and found.tool != BENCH:
        there = replace(launch, model=found.model_there or launch.model)
        return [(phrase("{shell}:", shell=kind), _SHELLS[kind]([*found.wrapper, *to_argv(there)]))]
    if kind in _SHELLS:
        argv = [launch.tool, *to_argv(launch)]
        heading = phrase("the same for llama-server; `kvwise export` has it for other programs:")
        return [(heading, _SHELLS[kind](argv))]
    if kind == "text-generation-webui" and found.name:
        launch = replace(launch, model=found.name)
    settings = settings_of(
        replace(made.plan.choice.ledger, launch=launch),
        found.name or plain_name(asked.model.called),
        source=asked.named or asked.ref,
        program=found.program,
    )
    stored = source.startswith(_STORED)
    old = files.read(Path(source)) if source != "-" and not stored else None
    text = target(kind).write(settings, old.text if old else None).text
    shown = files.diff(Path(source), old.text, text) if old else text
    heading = phrase("{path} would change so; `kvwise export {target} ... --out {path}` does it",
                     path=_MODELFILE if stored else source, target=kind)  # fmt: skip
    return [(heading, shown)]
