"""A unit's result as plain JSON values and back: what the database keeps."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from kvwise.engine.watch import Share
from kvwise.speculate.attempt import Answer, Measured, Proof
from kvwise.text import Phrase


def encode(unit: Measured) -> dict[str, Any]:
    """Everything that was measured; values in a sentence become text."""
    plain = asdict(replace(unit, error=None))
    error = unit.error
    if error is not None:
        plain["error"] = {"template": error.template, "fields": _fields(error)}
    return plain


def _fields(sentence: Phrase) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in sentence.fields.items():
        if isinstance(value, Phrase):
            found[name] = {"template": value.template, "fields": _fields(value)}
        else:
            found[name] = value if isinstance(value, str | int | float | None) else str(value)
    return found


def decode(plain: dict[str, Any]) -> Measured:
    """Back from `encode`, also after JSON."""
    values = dict(plain)
    values["answers"] = tuple(
        Answer(**{**each, "ids": tuple(each["ids"])}) for each in plain["answers"]
    )
    values["proof"] = Proof(**plain["proof"])
    values["load"] = None if plain["load"] is None else Share(**plain["load"])
    values["memory"] = tuple(tuple(row) for row in plain["memory"])
    for name in ("by_position", "flags", "findings"):
        values[name] = tuple(plain[name])
    features = plain["features"]
    values["features"] = None if features is None else tuple(features)
    values["error"] = None if plain["error"] is None else _phrase(plain["error"])
    return Measured(**values)


def _phrase(plain: dict[str, Any]) -> Phrase:
    fields = {
        name: _phrase(value) if isinstance(value, dict) else value
        for name, value in plain["fields"].items()
    }
    return Phrase(plain["template"], fields)
