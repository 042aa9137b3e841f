"""Which of the measurements are meant: by words that people use."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kvwise.errors import UsageError
from kvwise.results.keep import load
from kvwise.results.record import Measurement
from kvwise.store import Store

_AGE = re.compile(r"\s*([0-9]{1,6})\s*([mhdwy]?)\s*")
_UNITS = {"m": 60, "h": 3600, "": 86400, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filters; empty = any. `model` and `machine` are part of a name or of an id, `engine` a build,
    a tool, or `binary` or `embedded`; `age_s` the most seconds since it was measured."""

    model: str = ""
    kind: str = ""
    engine: str = ""
    machine: str = ""
    state: str = ""
    age_s: float | None = None

    def takes(self, found: Measurement) -> bool:
        """Everything but kind, state and age, which the database knows."""
        machine, model, engine = found.machine, found.model, found.engine
        return (
            _within(self.model, model.name, model.fingerprint, model.path)
            and _within(self.machine, machine.name, machine.id)
            and (not self.engine or self.engine in (engine.build, engine.tool, engine.kind))
        )


def select(store: Store, wanted: Wanted, now: float | None = None) -> list[Measurement]:
    """The measurements that are meant, oldest first. Raises StoreError."""
    now = time.time() if now is None else now
    since = None if wanted.age_s is None else now - wanted.age_s
    found = load(store, kind=wanted.kind or None, state=wanted.state or None, since=since)
    return [each for each in found if wanted.takes(each)]


def _within(part: str, *texts: str) -> bool:
    return not part or any(part.casefold() in text.casefold() for text in texts)


def seconds(text: str) -> float:
    """`30m`, `12h`, `7d` (or `7`), `2w`, `1y`. Raises UsageError."""
    match = _AGE.fullmatch(text)
    if not match:
        raise UsageError("{text!r} is not an age", text=text, hint="write 12h, 7d or 4w")
    return float(match[1]) * _UNITS[match[2]]


def starting(found: Sequence[Measurement], identity: str) -> list[Measurement]:
    """All times of the one result whose identity begins so. Raises UsageError."""
    named = [each for each in found if each.identity.startswith(identity)]
    if len({each.identity for each in named}) != 1:
        raise UsageError(
            "{word} is the beginning of {count} results" if named else "there is no result {word}",
            word=identity, count=len({each.identity for each in named}),
            hint="`kvwise results list` shows what there is",
        )  # fmt: skip
    return named
