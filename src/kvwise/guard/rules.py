"""How long the guard waits and how often it tries; and what one start reports to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvwise.engine.process import Limits
from kvwise.guard.keep import Keeper
from kvwise.guard.memory import Reader, read_cards
from kvwise.guard.signals import Signals
from kvwise.guard.tee import Shown
from kvwise.guard.tell import Event, Tell
from kvwise.text import Phrase, phrase


@dataclass(frozen=True, slots=True)
class Rules:
    """`tries` starts in all, and `restarts` after an end while it served.

    Silent and idle for `silence_s` (silent and computing for `busy_s`) is a hang; `load_s` is the
    most that a load may take; `unhealthy_s` without an answer and without work while it serves is
    a hang too. `settled_s` of serving make earlier restarts count no more; `backoff_s` are the
    pauses before the first, second... restart.
    """

    tries: int = 7
    restarts: int = 0
    silence_s: float = 120.0
    busy_s: float = 600.0
    load_s: float = 3600.0
    unhealthy_s: float = 120.0
    settled_s: float = 600.0
    backoff_s: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
    limits: Limits = field(default_factory=Limits)


@dataclass(slots=True)
class Desk:
    """Where a run reports to and where it reads from: the same for all its starts.

    `outputs` are the descriptors of the engine's stdout and stderr, -1 = nowhere; `environment`
    is added to the engine's; `shown` says what of its stderr is passed on, where the user's own
    line does not say how much it prints.
    """

    tell: Tell
    keeper: Keeper = field(default_factory=lambda: Keeper(None))
    signals: Signals = field(default_factory=Signals)
    outputs: tuple[int, int] = (1, 2)
    environment: Mapping[str, str] | None = None
    shown: Shown = Shown.OWN
    cards: Reader = read_cards
    _told: bool = False

    def say(self, name: str, sentence: Phrase, **fields: object) -> None:
        """One event, also into the kept log."""
        self.keeper.note(f"{name}: {sentence}")
        self.tell(Event(name, sentence, fields))

    @property
    def log(self) -> str | None:
        """Path of the kept log; None where none can be written."""
        return str(self.keeper.path) if self.keeper.path and not self.keeper.failed else None

    def tell_lost_log(self) -> None:
        """Say once that the log cannot be written, and why."""
        if self.keeper.failed and not self._told:
            self._told = True
            path, why = str(self.keeper.path), self.keeper.failed
            words = phrase("the log {path} cannot be written: {reason}", path=path, reason=why)
            self.say("note", words, path=path, reason=why)
