"""Two sides of the same question: two builds, machines, models, settings, or two results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvwise.errors import UsageError
from kvwise.results.record import Measurement, canonical
from kvwise.results.select import starting
from kvwise.results.stats import Difference, difference
from kvwise.text import Phrase, phrase

_RESULT = re.compile(r"[0-9a-f]{6,64}")
_SETTING = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_PAIR = re.compile(r"([a-z0-9_]+)/([a-z0-9_]+)")


@dataclass(frozen=True, slots=True)
class Side:
    """What a word selects: `aspect` is what must not be compared then, because it differs."""

    word: str
    aspect: str
    takes: Callable[[Measurement], bool]


@dataclass(frozen=True, slots=True)
class Pair:
    """The same measurement on both sides; each side's samples of all its times together."""

    a: Measurement
    b: Measurement
    values_a: tuple[float, ...]
    values_b: tuple[float, ...]

    @property
    def difference(self) -> Difference | None:
        return difference(self.values_a, self.values_b)


def sides(found: Sequence[Measurement], words: Sequence[str]) -> tuple[Side, Side]:
    """What two words mean among the measurements. Raises UsageError.

    Tried in this order: a setting (`n_ubatch=512`, or cache types `q8_0/f16`), a build, a machine
    (name or id), a tool, an engine kind, a model's name, the beginning of a result's identity.
    """
    if len(words) != 2:
        raise UsageError("two things to compare are needed", hint="like b10605 b11549")
    first, second = (_side(found, word) for word in words)
    if first.aspect != second.aspect:
        raise UsageError(
            "{a} is a {kind_a} and {b} is a {kind_b}: they cannot be compared",
            a=first.word,
            b=second.word,
            kind_a=_called(first.aspect),
            kind_b=_called(second.aspect),
        )
    return first, second


def pairs(found: Sequence[Measurement], first: Side, second: Side) -> list[Pair]:
    """What both sides have measured, in the order of the first side's."""
    left, right = (_grouped(filter(side.takes, found), side.aspect) for side in (first, second))
    made = []
    for key, mine in left.items():
        theirs = right.get(key, [])
        if theirs:
            made.append(Pair(mine[-1], theirs[-1], _values(mine), _values(theirs)))
    return made


def _values(found: Iterable[Measurement]) -> tuple[float, ...]:
    return tuple(value for each in found for value in each.values)


def _grouped(found: Iterable[Measurement], aspect: str) -> dict[str, list[Measurement]]:
    groups: dict[str, list[Measurement]] = {}
    for each in found:
        if each.state == "ok":
            groups.setdefault(_key(each, aspect), []).append(each)
    return groups


def _key(found: Measurement, aspect: str) -> str:
    """What must be the same on both sides. Two results are compared whatever they are, by what
    they measure."""
    if aspect == "result":
        return canonical([found.kind, found.test.get("metric"), found.unit])
    settings = dict(found.settings)
    if aspect.startswith("setting "):
        for name in aspect.removeprefix("setting ").split(","):
            settings.pop(name, None)
    if aspect == "machine":  # each has its own number of cores
        settings = {name: value for name, value in settings.items() if "threads" not in name}
    parts: dict[str, Any] = {
        "machine": [found.machine.id, found.machine.drivers],
        "engine": [found.engine.kind, found.engine.build, found.engine.tool],
        "model": found.model.fingerprint,
    }
    skipped = {"machine": "machine", "build": "engine", "tool": "engine", "kind": "engine",
               "model": "model"}.get(aspect)  # fmt: skip
    if aspect == "build":
        parts["tool"] = found.engine.tool
    parts.pop(skipped or "", None)
    return canonical([found.kind, parts, settings, found.test])


def _side(found: Sequence[Measurement], word: str) -> Side:
    setting = _SETTING.fullmatch(word)
    if setting:
        name, value = setting.groups()
        return Side(word, f"setting {name}", lambda each: _said(each.settings, name) == value)
    pair = _PAIR.fullmatch(word)
    if pair and any(_types(each) == pair.groups() for each in found):
        return Side(word, "setting type_k,type_v", lambda each: _types(each) == pair.groups())
    for aspect, of in _NAMES.items():
        if any(word in of(each) for each in found):
            return Side(word, aspect, lambda each, of=of: word in of(each))  # type: ignore[misc]
    if _RESULT.fullmatch(word):
        identity = starting(found, word)[0].identity
        return Side(word, "result", lambda each: each.identity == identity)
    raise UsageError(
        "nothing that was measured is called {word}", word=word,
        hint="`kvwise results list` shows what there is",
    )  # fmt: skip


_NAMES: Mapping[str, Callable[[Measurement], tuple[str, ...]]] = {
    "build": lambda each: (each.engine.build,),
    "machine": lambda each: (each.machine.name, each.machine.id),
    "tool": lambda each: (each.engine.tool,),
    "kind": lambda each: (each.engine.kind,),
    "model": lambda each: (each.model.name, each.model.fingerprint),
}


def _types(found: Measurement) -> tuple[str, str]:
    return str(found.settings.get("type_k")), str(found.settings.get("type_v"))


def _said(settings: Mapping[str, Any], name: str) -> str:
    value = settings.get(name)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _called(aspect: str) -> Phrase:
    names = {
        "build": phrase("build"),
        "machine": phrase("machine"),
        "tool": phrase("tool"),
        "kind": phrase("kind of engine"),
        "model": phrase("model"),
        "result": phrase("result"),
    }
    return names.get(aspect) or phrase("setting")
