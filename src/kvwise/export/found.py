"""What a file or a command of someone else asks for, in llama.cpp's own words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvwise.errors import SourceError
from kvwise.options.row import SERVER
from kvwise.text import Phrase


@dataclass(frozen=True, slots=True)
class Found:
    """One model's settings. `words` are flags of `tool` (the program's name left out).

    A program with other defaults than llama.cpp's has them among its words. `share` is the part
    of the layers on GPUs where a program counts no layers; `unread` says what was not understood.
    `wrapper` are the words before llama.cpp's flags (`sudo llama-server`, `docker run ... IMAGE`),
    `model_there` is what the model is called behind them, if that is not where it lies here.
    """

    words: tuple[str, ...]
    name: str = ""
    program: str = SERVER
    tool: str = SERVER
    environ: Mapping[str, str] = field(default_factory=dict)
    share: float | None = None
    wrapper: tuple[str, ...] = ()
    model_there: str = ""
    unread: tuple[Phrase, ...] = ()


def number(values: Mapping[str, Any], key: str, default: int | None = None) -> int | None:
    """A whole number under a key; None if it is absent. Raises SourceError for anything else."""
    value = values.get(key)
    if value is None:
        return default
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,18}\s*", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise SourceError("{key} is not a whole number: {value!r}", key=key, value=_short(value))
    return value


def truth(values: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """A yes or no under a key. Raises SourceError for anything else."""
    value = values.get(key)
    if value is None:
        return default
    if isinstance(value, str):
        value = {"true": True, "on": True, "false": False, "off": False}.get(value.lower(), value)
    if isinstance(value, bool) or value in (0, 1):
        return bool(value)
    raise SourceError("{key} is neither true nor false: {value!r}", key=key, value=_short(value))


def string(values: Mapping[str, Any], key: str, default: str = "") -> str:
    """A text under a key. Raises SourceError for a list or a table."""
    value = values.get(key)
    if value is None:
        return default
    if isinstance(value, Mapping | list | tuple):
        raise SourceError("{key} is not a text: {value!r}", key=key, value=_short(value))
    return str(value)


def strings(values: Mapping[str, Any], key: str) -> list[str]:
    """A list of texts under a key, a single one counts as such. Raises SourceError."""
    value = values.get(key)
    if value is None:
        return []
    items = value if isinstance(value, list | tuple) else [value]
    return [string({key: item}, key) for item in items]


def flags(*pairs: tuple[str, object | None]) -> tuple[str, ...]:
    """(flag, value) pairs as words: None leaves the flag out, True gives it alone."""
    words: list[str] = []
    for flag, value in pairs:
        if value is True:
            words.append(flag)
        elif value is not None and value is not False and value != "":
            words += [flag, str(value)]
    return tuple(words)


def _short(value: object) -> str:
    return repr(value)[:60]
