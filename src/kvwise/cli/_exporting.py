"""What `export` is to write: a plan made now, flags as they are given, or a plan of before."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvwise.cli._build import of_zoo
from kvwise.cli._planning import GOAL_OPTIONS, planned
from kvwise.cli._request import (
    DEVICE_NAMES,
    companions_of,
    machine,
    model_of,
    read_launch,
    with_model,
)
from kvwise.cli.output import Printer
from kvwise.engine.on_disk import is_gguf
from kvwise.errors import SourceError, UsageError
from kvwise.export import files
from kvwise.export.settings import Settings, StandIn, plain_name, settings_of
from kvwise.gguf.open import open_header
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.options import read
from kvwise.plan.report import PLAN

_ADDRESSES = ("hf:", "http://", "https://", "docker:")
_SOMEWHERE = "/path/to"
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


def settings_for(
    printer: Printer,
    name: str | None,
    program: str | None,
    model_path: str | None,
    options: dict[str, Any],
) -> Settings:
    """What is to be exported: planned, as given, or saved."""
    saved, as_given = options.pop("saved"), options.pop("as_given")
    _one_source(saved is not None, as_given, options)
    if saved is not None:
        ledger, source = _saved(saved, options)
    elif as_given:
        ledger, source = _given(options)
    else:
        devices = {each: options.pop(each) for each in DEVICE_NAMES}
        made = planned(printer, shape=None, devices=devices, **options)
        ledger, source = made.plan.choice.ledger, made.ref
    launch, stand_ins = _placed(ledger, source, model_path)
    found = settings_of(replace(ledger, launch=launch), "", source="" if model_path else source,
                        program=program or launch.tool, exact=as_given)  # fmt: skip
    called = plain_name(name or _stem(ledger, source))
    return replace(found, name=called, stand_ins=stand_ins)


def _one_source(saved: bool, as_given: bool, options: dict[str, Any]) -> None:
    """Raises UsageError where one request asks for two things."""
    ways = ["--plan"] * saved + ["--as-given"] * as_given
    if ways:
        ways += [option.opts[-1] for option in GOAL_OPTIONS if options.get(option.name or "")]
    if len(ways) > 1:
        raise UsageError("{one} and {other} exclude each other", one=ways[0], other=ways[1])


def _stem(ledger: Ledger, source: str) -> str:
    kind, _, rest = source.partition(":")
    if kind in ("ollama", "hf") and rest:
        return rest.rpartition("/")[2].replace(":", "-")
    return _base(source or ledger.model.called)


def _base(ref: str) -> str:
    """The name of a file without its folder and what it is packed in."""
    base = ref.replace("\\", "/").rpartition("/")[2]
    for ending in (".gz", ".json", ".gguf"):
        base = base.removesuffix(ending)
    return base


def _placed(
    ledger: Ledger, source: str, model_path: str | None
) -> tuple[Launch, tuple[StandIn, ...]]:
    """The launch with files that a program can open wherever it is started, and the paths in it
    that only stand for one: of a model known by its header alone nobody knows where it will lie."""
    launch = ledger.launch
    stand_ins = []

    def place(written: str, ref: str, name: str, flag: str) -> str:
        if not _is_header(ref):
            if ref.startswith(_ADDRESSES):
                return written
            path = open_header(ref).path if ref.startswith("ollama:") else written
            if is_gguf(path):
                return os.path.abspath(path)  # noqa: PTH100  (links stay)
        stand_in = StandIn(f"{_SOMEWHERE}/{_ODD.sub('-', name).strip('-') or 'model'}.gguf", flag)
        stand_ins.append(stand_in)
        return stand_in.path

    where = model_path
    if where is None:
        name = ledger.model.called if _is_header(source) else _stem(ledger, source)
        where = place(launch.model, source or launch.model, name, "--model-path")
    draft, mmproj = (
        ref and place(ref, ref, _base(ref), flag)
        for ref, flag in ((launch.model_draft, "-md"), (launch.mmproj, "--mmproj"))
    )
    return replace(launch, model=where, model_draft=draft, mmproj=mmproj), tuple(stand_ins)


def _is_header(ref: str) -> bool:
    """Is MODEL the description of a file, without the file?"""
    return of_zoo(ref) or not ref


def _given(options: dict[str, Any]) -> tuple[Ledger, str]:
    ref, reading = read_launch(options["words"], options["model"])
    model = model_of(ref)
    on = machine(**{each: options[each] for each in DEVICE_NAMES})
    launch = with_model(reading.launch, ref, model)
    return account(model, launch, on.devices, host=on.host, companions=companions_of(launch)), ref


def _saved(path: str, options: dict[str, Any]) -> tuple[Ledger, str]:
    """The choice of a saved plan; its figures are computed again for what is here now."""
    old = files.read(Path(path))
    if old is None:
        raise SourceError("no file {path}", path=path, hint="check the name and the folder")
    launch = _launch_of(old.text)
    if launch is None:
        raise SourceError("{path} is no plan of `kvwise plan --json`", path=path)
    ref = options["model"] or launch.model
    if not options["model"] and not ref.startswith(_ADDRESSES) and not is_gguf(ref):
        raise UsageError("the file of this plan's model, {path}, is not here", path=ref,
                         hint="name the model beside --plan")  # fmt: skip
    described = model_of(ref)
    on = machine(**{each: options[each] for each in DEVICE_NAMES})
    if options["model"]:
        launch = with_model(launch, ref, described)
    companions = companions_of(launch)
    return account(described, launch, on.devices, host=on.host, companions=companions), ref


def _launch_of(text: str) -> Launch | None:
    """The chosen launch of a kvwise/plan/1 document; None for anything else."""
    try:
        document = json.loads(text)
        launch = document["choice"]["launch"]
        argv, build = launch["argv"], launch["build"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if document.get("schema") != PLAN or not isinstance(argv, list):
        return None
    return read([str(each) for each in argv], build=str(build)).launch
