"""A measurement as the JSON document `kvwise/results/1`, and back from a file of a stranger."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from kvwise.errors import UsageError
from kvwise.results.record import (
    DeviceSeen,
    EngineSeen,
    Machine,
    Measurement,
    ModelSeen,
    Sample,
    canonical,
)

SCHEMA = "kvwise/results/1"
MOST_LINE = 1 << 20
"""Bytes of one document. A measurement has a few KiB."""
_MOST_SAMPLES = 10_000
_MOST_INT = 1 << 63
_DEPTH = 12
_COMPUTED = ("identity", "median", "spread", "unit")

T = TypeVar("T", DeviceSeen, EngineSeen, Machine, ModelSeen, Sample)


def to_json(found: Measurement) -> dict[str, Any]:
    """Plain values; identity, median, spread and unit stand beside what they come from."""
    shown = {"schema": SCHEMA} | {name: getattr(found, name) for name in _COMPUTED}
    return shown | {
        "kind": found.kind,
        "state": found.state,
        "at": found.at,
        "machine": _plain(found.machine) | {"id": found.machine.id},
        "engine": _plain(found.engine),
        "model": _plain(found.model),
        "settings": found.settings,
        "test": found.test,
        "samples": [_plain(each) for each in found.samples],
        "figures": found.figures,
        "findings": list(found.findings),
    }


def _plain(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(asdict(value), allow_nan=False))
    return plain


def line(found: Measurement) -> str:
    """One line of a file of results: the same text for the same measurement, always."""
    return canonical(to_json(found))


def from_line(text: str | bytes) -> Measurement:
    """Back from a line. Raises UsageError for anything that `line` does not write."""
    if len(text) > MOST_LINE:
        raise UsageError("it is longer than any result")
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise UsageError("it is no JSON") from None
    return from_json(value)


def from_json(value: Any) -> Measurement:
    """Back from `to_json`, whoever made the value. Raises UsageError.

    What can be computed (identity, median...) is computed again; unknown names are dropped, so a
    later kvwise may add some.
    """
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise UsageError("it is no result of kvwise ({schema})", schema=SCHEMA)
    try:
        _check(value, _DEPTH)
        return Measurement(
            kind=value["kind"],
            at=_number(value["at"]),
            machine=_machine(value["machine"]),
            engine=_made(EngineSeen, value["engine"]),
            model=_made(ModelSeen, value["model"]),
            settings=_mapping(value["settings"]),
            test=_mapping(value["test"]),
            samples=tuple(_sample(each) for each in _listed(value["samples"], _MOST_SAMPLES)),
            figures=_mapping(value["figures"]),
            findings=tuple(_mapping(each) for each in _listed(value["findings"], 1000)),
            state=value["state"],
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        what = str(error) if isinstance(error, KeyError) else type(error).__name__
        raise UsageError("it is a damaged result: {what}", what=what[:80]) from None


def _machine(value: Any) -> Machine:
    cards = tuple(_made(DeviceSeen, each) for each in _listed(value["devices"], 100))
    return _made(Machine, value, devices=cards)


def _sample(value: Any) -> Sample:
    flags = _listed(value["flags"], 20)
    if not all(isinstance(flag, str) for flag in flags):
        raise TypeError(flags)
    taken = {name: _number(value[name]) for name in ("value", "at")}
    return _made(Sample, value, flags=tuple(flags), **taken)


def _made(kind: type[T], value: Any, /, **known: Any) -> T:
    """A record out of texts and whole numbers that are not negative."""
    values = dict(known)
    for each in fields(kind):
        if each.name not in known:
            found = value[each.name]
            wanted = int if each.type == "int" else str
            if type(found) is not wanted or (isinstance(found, int) and found < 0):
                raise TypeError(each.name)
            values[each.name] = found
    return kind(**values)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(value)
    return float(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(value)
    return value


def _listed(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise TypeError(type(value))
    return value


def _check(value: Any, depth: int) -> None:
    """What no database, terminal or spreadsheet can hold is refused before anything is kept."""
    if depth < 0:
        raise ValueError("depth")
    if isinstance(value, str):
        value.encode("utf-8")  # a half of a surrogate pair is a ValueError
        if "\0" in value:
            raise ValueError("NUL")
    elif isinstance(value, dict):
        for name, each in value.items():
            _check(name, depth)
            _check(each, depth - 1)
    elif isinstance(value, list):
        for each in value:
            _check(each, depth - 1)
    elif isinstance(value, float):
        _number(value)
    elif isinstance(value, int) and abs(value) >= _MOST_INT:
        raise ValueError("number")


def _no_constant(name: str) -> None:
    raise ValueError(name)
