"""Launch -> argv or environment of its tool, as short as the tool's defaults allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

from kvwise.errors import UsageError
from kvwise.launch import ZOO_BUILD, Launch
from kvwise.options.kinds import SWITCH
from kvwise.options.reading import read, walk
from kvwise.options.resolve import MMAP_MODES, derived
from kvwise.options.row import BENCH, SERVER, Option
from kvwise.options.table import OPTIONS, number

_TOGETHER = {  # fields that are written by hand below
    "tool", "build", "model", "model_draft", "mmproj", "n_ctx", "n_seq_max", "kv_unified",
    "mmap", "load_mode", "n_outputs_max", "n_rs_seq", "load_mtp", "mtp", "extra", "fit",
    "build_from",
}  # fmt: skip


REMOTE = ("--rpc", "-rpc")


def defaults(tool: str, build: str = ZOO_BUILD) -> Launch:
    """What `tool` does when it is given nothing."""
    return read((), tool=tool, build=build).launch


def to_argv(launch: Launch, *, ours: bool = False) -> list[str]:
    """The command line (without the program's name) that asks `launch.tool` for this launch.

    What the tool cannot be told is left out; `unsayable` names it. With `ours`, kvwise's own
    options are added, so that `Launch.parse` gives the same launch back.
    """
    words = _identity(launch) if ours else []
    remote, extra = _remote_first(launch.extra)
    words += _models(launch) + remote + _context(launch)
    base = defaults(launch.tool, launch.build)
    for field in fields(Launch):
        value = getattr(launch, field.name)
        if field.name not in _TOGETHER and value != getattr(base, field.name):
            words += _spell(launch, field.name, value)
    words += _load_mode(launch)
    if launch.fit != base.fit and launch.tool != BENCH:
        words += _spell(launch, "fit", launch.fit)
    return words + (_own(launch) if ours else []) + extra


def _remote_first(extra: Sequence[str]) -> tuple[list[str], list[str]]:
    """(`--rpc` and its value, the rest): `-dev` and `-ot` know no device that is named behind them.

    Source: parse_device_list and parse_tensor_buffer_overrides, common/arg.cpp, b10605.
    """
    remote: list[str] = []
    rest: list[str] = []
    words = iter(extra)
    for word in words:
        if word in REMOTE:
            remote += [word, *islice(words, 1)]
        else:
            rest.append(word)
    return remote, rest


def to_env(launch: Launch, *, ours: bool = False) -> tuple[dict[str, str], list[str]]:
    """(LLAMA_ARG_ variables, the flags that have none). llama-bench reads no variables."""
    spoken = list(walk(to_argv(launch, ours=ours), launch.tool, launch.build))
    times = Counter(option for option, *_ in spoken)
    environ: dict[str, str] = {}
    rest: list[str] = []
    for option, positive, words, flag in spoken:
        if not option.env or times[option] > 1 or launch.tool == BENCH:
            rest += [flag, *words]
        else:
            environ[option.env] = words[0] if words else "1" if positive else "0"
    return environ, rest


def unsayable(launch: Launch) -> tuple[str, ...]:
    """Fields that no command line of the tool can ask for (kvwise may still compute them)."""
    try:
        heard = read(to_argv(launch), tool=launch.tool, build=launch.build).launch
    except UsageError:
        return ("n_ctx",)
    names = (field.name for field in fields(Launch))
    return tuple(name for name in names if getattr(heard, name) != getattr(launch, name))


def _spell(launch: Launch, name: str, value: Any) -> list[str]:
    """The words for one field; empty if the tool has none."""
    tool = launch.tool
    for option in _rows(launch, name):
        if option.extra:
            continue
        if option.on == ((name, value),):
            return [option.spellings(tool)[0], *(["1"] if option.kind_in(tool).takes else [])]
        if option.off == ((name, value),):
            return ["-mmp", "0"] if tool == BENCH else [option.negative[0]]
    for option in _rows(launch, name):
        if option.field != name:
            continue
        kind = option.kind_in(tool)
        if kind.takes:
            return [option.spellings(tool)[0], kind.write(value)]
        if value:
            return [option.spellings(tool)[0]]
        return [option.negative[0]] if kind is SWITCH else []
    return []


def _rows(launch: Launch, name: str) -> Iterator[Option]:
    """Rows that set the field in this build; the deprecated ones only where the new is not sure."""
    build = number(launch.build)
    for option in OPTIONS:
        if launch.tool not in option.tools or option.gone(build) or build <= option.lacking:
            continue
        if option.deprecated and build >= number(ZOO_BUILD):
            continue
        if option.field == name or any(field == name for field, _ in option.on):
            yield option


def _models(launch: Launch) -> list[str]:
    words = _source(launch, launch.model, ("_path", "_url", "_hf", "_hf_file"))
    draft = ("_draft_path", "", "_draft_hf", "_draft_path")
    words += _source(launch, launch.model_draft, draft)
    return words + _source(launch, launch.mmproj, ("mmproj", "_mmproj_url", "", ""))


def _source(launch: Launch, model: str, names: tuple[str, str, str, str]) -> list[str]:
    """The words for a model that is a path, an address, or on a hub."""
    path, url, hub, file = names
    if not model:
        return []
    repo, colon, name = model.removeprefix("hf:").partition(":")
    if hub and repo and model.startswith("hf:"):
        if colon and name.lower().endswith(".gguf"):
            return _spell(launch, hub, repo) + _spell(launch, file, name)
        return _spell(launch, hub, model.removeprefix("hf:"))
    if model.startswith("docker:") and path == "_path" and model != "docker:":
        return _spell(launch, "_docker", model.removeprefix("docker:"))
    if url and model.startswith(("http://", "https://")):
        return _spell(launch, url, model)
    return _spell(launch, path, model)


def _context(launch: Launch) -> list[str]:
    base = defaults(launch.tool, launch.build)
    words = []
    if launch.n_ctx != base.n_ctx:
        if launch.tool == BENCH:
            words = ["-p", str(launch.n_ctx), "-n", "0"]
        else:
            words = _spell(launch, "n_ctx", launch.n_ctx)
    slots = (launch.n_seq_max, launch.kv_unified)
    if slots == (4, True) != (base.n_seq_max, base.kv_unified):
        words += _spell(launch, "n_seq_max", -1)  # auto: all that llama-cli has for it
    elif slots != (base.n_seq_max, base.kv_unified):
        words += _spell(launch, "n_seq_max", launch.n_seq_max)
        if launch.kv_unified and launch.tool == SERVER:
            words += _spell(launch, "kv_unified", True)
    return words


def _load_mode(launch: Launch) -> list[str]:
    mode = launch.load_mode
    if (mode in MMAP_MODES) != launch.mmap:
        mode = "auto" if launch.mmap else "none"
    return [] if mode == "auto" else _spell(launch, "load_mode", mode)


def _identity(launch: Launch) -> list[str]:
    words = [] if launch.tool == SERVER else ["--tool", launch.tool]
    return words if launch.build == ZOO_BUILD else [*words, "--engine-build", launch.build]


def _own(launch: Launch) -> list[str]:
    words = []
    for name, value in (*derived(launch).items(), ("mtp", False)):
        if getattr(launch, name) != value:
            words += _spell(launch, name, getattr(launch, name))
    return words
