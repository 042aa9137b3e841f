"""What the guard tells while it works: one event at a time, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kvwise.text import Phrase

SCHEMA = "kvwise/run/1"


@dataclass(frozen=True, slots=True)
class Event:
    """`name` is stable: start, ready, failed, step, retry, gave-up, request, memory, unhealthy,
    healthy, died, restart, note, stopping, ended. `sentence` is for people, and so
    are phrases among the fields (`hint`, `settings`); the other `fields` are for programs, sizes in
    bytes."""

    name: str
    sentence: Phrase
    fields: Mapping[str, object] = field(default_factory=dict)


Tell = Callable[[Event], None]
