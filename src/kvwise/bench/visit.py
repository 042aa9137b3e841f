"""What one start of an engine brought."""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.engine.loaded import Loaded
from kvwise.engine.outcome import Outcome
from kvwise.text import Phrase


@dataclass(frozen=True, slots=True)
class Taken:
    """One sample: `value` in tokens per second, of `seconds`, taken at `at` (since 1970). `flags`
    say what disturbed it, `others` how many cores other processes used; one that was `discarded`
    was taken again."""

    test: str
    value: float
    seconds: float
    at: float
    flags: tuple[str, ...] = ()
    others: float = 0.0
    load: float | None = None
    discarded: bool = False


@dataclass(frozen=True, slots=True)
class Visit:
    """Samples of all tests, or why there are none. `ready_s` until the model was loaded, `seconds`
    altogether; `missing` are devices that were asked for and not used."""

    samples: tuple[Taken, ...] = ()
    loaded: Loaded | None = None
    outcome: Outcome | None = None
    error: Phrase | None = None
    ready_s: float | None = None
    seconds: float = 0.0
    tail: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    build: str = ""  # of llama.cpp, where the program says it with its figures
