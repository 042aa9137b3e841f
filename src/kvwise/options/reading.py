"""argv and environment -> Launch, with llama.cpp's own precedence and defaults.

Order (common/arg.cpp common_params_parse_ex, b10605): the tool's defaults, the environment in
table order, the command line from left to right. llama-bench reads no LLAMA_ARG_ variables.
Reads no file and no real environment: the caller passes one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from kvwise.errors import UsageError
from kvwise.launch import TOOLS, ZOO_BUILD, Launch
from kvwise.options.kinds import ALL_LAYERS, BUILD, FLAG, MAX_LAYERS, SWITCH, truth
from kvwise.options.resolve import TOGETHER, resolve
from kvwise.options.row import BENCH, Option
from kvwise.options.table import OPTIONS, RANK, find, normal, number
from kvwise.text import Phrase, phrase

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"


@dataclass(frozen=True, slots=True)
class Reading:
    """A launch, where its values came from (field -> flag or variable; absent = the tool's
    default), and what the reader should be told."""

    launch: Launch
    origins: Mapping[str, str]
    notes: tuple[Phrase, ...]


@dataclass(slots=True)
class _Draft:
    """Collected so far. `extra` holds (rank of the row, words, came from the environment)."""

    values: dict[str, Any]
    origins: dict[str, str] = field(default_factory=dict)
    extra: list[tuple[int, tuple[str, ...], bool]] = field(default_factory=list)
    notes: list[Phrase] = field(default_factory=list)


def read(
    argv: Sequence[str],
    *,
    tool: str = "llama-server",
    environ: Mapping[str, str] | None = None,
    build: str = ZOO_BUILD,
) -> Reading:
    """What the tool would make of this; raises UsageError, never anything else."""
    tool = _last(argv, "--tool") or tool
    if tool not in TOOLS:
        raise UsageError("{tool!r} is not one of {tools}", tool=tool, tools=", ".join(TOOLS))
    build = BUILD.read(_last(argv, "--engine-build") or build)
    draft = _Draft({"tool": tool, "build": build})
    if tool != BENCH:
        _environment(draft, environ or {})
    for option, positive, words, flag in walk(argv, tool, build):
        _argument(draft, option, positive, words, flag)
    if (draft.values["tool"], draft.values["build"]) != (tool, build):
        raise UsageError("--tool or --engine-build was given twice")
    launch = resolve(draft.values, _extra(draft))
    return Reading(launch, _origins(draft.origins), tuple(draft.notes))


def _origins(found: Mapping[str, str]) -> dict[str, str]:
    """By field of Launch: what several options are put together from goes under its field."""
    named = {name: source for name, source in found.items() if not name.startswith("_")}
    for name, parts in TOGETHER.items():
        sources = [found[part] for part in parts if part in found]
        if sources:
            named[name] = sources[0]
    return named


def walk(
    argv: Sequence[str], tool: str, build: str
) -> Iterator[tuple[Option, bool, tuple[str, ...], str]]:
    """(option, not negated, its words, flag as typed) from left to right."""
    at = 0
    while at < len(argv):
        option = find(argv[at], tool, build)
        flag = normal(argv[at])
        takes = option.kind_in(tool).takes
        words = tuple(argv[at + 1 : at + 1 + takes])
        if len(words) < takes:
            raise UsageError("{flag} needs a value", flag=flag)
        yield option, tool == BENCH or flag not in option.negative, words, flag
        at += 1 + takes


def _last(argv: Sequence[str], flag: str) -> str | None:
    """The value after the last mention: tool and build decide how all the rest is read."""
    values = [value for word, value in pairwise(argv) if normal(word) == flag]
    return values[-1] if values else None


def _environment(draft: _Draft, environ: Mapping[str, str]) -> None:
    tool = draft.values["tool"]
    for option in OPTIONS:
        if not option.env or tool not in option.tools:
            continue
        name = option.no_env if option.no_env in environ else option.env
        text = "0" if option.negative and name == option.no_env else environ.get(name)
        if text is None:
            continue
        build = number(draft.values["build"])
        if build <= option.lacking or (option.lost and option.gone(build)):
            draft.notes.append(
                phrase("llama.cpp {build} does not read {name}", build=f"b{build}", name=name)
            )
            continue
        if option.gone(build):
            raise UsageError(
                "{name} was removed from llama.cpp", name=name, instead=option.removed,
                hint="use {instead}",
            )  # fmt: skip
        if option.kind is FLAG and text not in ("on", "enabled", "true", "1"):
            continue
        value = _value(option, draft.values["tool"], text, name)
        _apply(draft, option, value, (text,) if option.kind.takes else (), name, env=True)


def _argument(
    draft: _Draft, option: Option, positive: bool, words: tuple[str, ...], flag: str
) -> None:
    tool = draft.values["tool"]
    if tool == BENCH and not option.ours and option.settings(None):
        _one_value_only(draft, option, words, flag)
    kind = option.kind_in(tool)
    value = positive if kind.takes == 0 else _value(option, tool, words[0], flag)
    _check_build(draft, option, flag)
    if option.deprecated and number(draft.values["build"]) >= number(ZOO_BUILD):
        draft.notes.append(
            phrase("{flag} is deprecated; use {instead}", flag=flag, instead=option.deprecated)
        )
    _apply(draft, option, value, words, flag, env=False)


def _one_value_only(draft: _Draft, option: Option, words: tuple[str, ...], flag: str) -> None:
    """llama-bench tries every value of a list; a launch is one of them."""
    if option.field.startswith("_") and not option.flags:
        return
    again = any(name in draft.origins for name, _ in option.settings(None))
    if again or any("," in word for word in words):
        raise UsageError(
            "llama-bench tries several values of {flag}; a launch has one",
            flag=flag, hint="give one value",
        )  # fmt: skip


def _value(option: Option, tool: str, text: str, flag: str) -> Any:
    kind = option.kind_in(tool)
    try:
        return truth(text) if kind in (FLAG, SWITCH) else kind.read(text)
    except UsageError as error:
        raise UsageError(
            "{flag}: {problem}", flag=flag, problem=error.phrase, hint=error.hint
        ) from None


def _apply(
    draft: _Draft, option: Option, value: Any, words: tuple[str, ...], source: str, *, env: bool
) -> None:
    tool = draft.values["tool"]
    for name, new in option.settings(value):
        draft.values[name] = _merged(draft.values, name, new)
        draft.origins[name] = source
    for extra_option, positive, extra_words, _ in walk(option.extra, tool, draft.values["build"]):
        _pass_on(draft, extra_option, positive, extra_words, env=env)
    if option.passed_on:
        kind = option.kind_in(tool)
        spelled = (kind.write(value),) if kind.takes == 1 else words
        _pass_on(draft, option, kind.takes > 0 or bool(value), spelled, env=env)


def _merged(values: Mapping[str, Any], name: str, new: Any) -> Any:
    """Most options replace; some of llama.cpp's add to a list (tensor_buft_overrides, types)."""
    old = values.get(name)
    if name == "override_tensor":
        return _experts_first(values) + new if old is None else old + new
    if old is None:
        return new
    if name == "spec_types":
        return tuple(dict.fromkeys(old + new))
    if name in ("n_cpu_moe", "draft_n_cpu_moe", "_p", "_n", "_pg", "_d"):
        return max(old, new)
    return new


def _experts_first(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The first matching pattern wins, so -cmoe and -ncmoe before an -ot go before its patterns.

    Launch.override_tensor is matched before n_cpu_moe. Source: common.h llm_ffn_exps_cpu_override,
    llm_ffn_exps_block_regex, b10605.
    """
    return experts_on_cpu(values.get("n_cpu_moe", 0))


def experts_on_cpu(layers: int) -> tuple[tuple[str, str], ...]:
    """What -ncmoe puts into the list of -ot; -cmoe has a count above every layer."""
    if layers >= ALL_LAYERS:
        return ((EXPERTS, "CPU"),)
    return tuple((f"blk\\.{layer}{EXPERTS}", "CPU") for layer in range(min(layers, MAX_LAYERS)))


def _pass_on(
    draft: _Draft, option: Option, positive: bool, words: tuple[str, ...], *, env: bool
) -> None:
    rank, tool = RANK[option], draft.values["tool"]
    if not option.adds:
        draft.extra = [each for each in draft.extra if each[0] != rank]
    flag = option.spellings(tool)[0] if positive or tool == BENCH else option.negative[0]
    draft.extra.append((rank, (flag, *words), env))


def _extra(draft: _Draft) -> tuple[str, ...]:
    """In table order, so that the same request is the same launch wherever it came from."""
    ordered = sorted(draft.extra, key=lambda each: each[0])
    return tuple(word for _, words, _ in ordered for word in words)


def _check_build(draft: _Draft, option: Option, flag: str) -> None:
    build = draft.values["build"]
    if number(build) <= option.lacking:
        raise UsageError("llama.cpp {build} has no {flag} yet", build=build, flag=flag)
    if number(build) < option.since:
        draft.notes.append(
            phrase(
                "{flag} may be newer than {build}: it is known from b{since} on",
                flag=flag,
                build=build,
                since=option.since,
            )
        )
