"""Results as JSON and back: frozen dataclasses by their name, tuples as lists.

Only the classes listed here come back, so a file cannot name any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from kvwise.device import Device
from kvwise.engine.outcome import Ending, Outcome
from kvwise.engine.printed import Printed, Total
from kvwise.text import Phrase
from kvwise.verify.attempt import Attempt, CardUse, MemoryUse, Seen
from kvwise.verify.compare import Row

_CLASSES = {
    each.__name__: each
    for each in (Attempt, CardUse, Device, MemoryUse, Outcome, Phrase, Printed, Row, Seen, Total)
}
_TYPE = "@"


def encode(value: Any) -> Any:
    """Plain JSON values; what has no place in JSON becomes its text (a field of a sentence)."""
    if isinstance(value, Ending):
        return {_TYPE: "Ending", "value": str(value)}
    if isinstance(value, Enum):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        kept = {each.name: encode(getattr(value, each.name)) for each in fields(value)}
        return {_TYPE: type(value).__name__, **kept}
    if isinstance(value, tuple | list):
        return [encode(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): encode(each) for key, each in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def decode(value: Any) -> Any:
    """Back from `encode`. Raises KeyError or TypeError for what it never made."""
    if isinstance(value, list):
        return tuple(decode(each) for each in value)
    if not isinstance(value, dict):
        return value
    if _TYPE not in value:
        return {key: decode(each) for key, each in value.items()}
    kept = {key: decode(each) for key, each in value.items() if key != _TYPE}
    if value[_TYPE] == "Ending":
        return Ending(kept["value"])
    return _CLASSES[value[_TYPE]](**kept)
