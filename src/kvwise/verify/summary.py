"""Many runs in a few figures: how they went, how fast, how much memory, and whether it grows."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvwise.text import Phrase
from kvwise.units import MIB
from kvwise.verify.attempt import Attempt
from kvwise.verify.run import Verification

_THIRD = 3
_GROWN = 8 * MIB
_CONTENDED = 0.25
"""Cores beyond those that are there for the engine's threads, from which speeds suffer."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Smallest, median and largest of what was measured in `count` runs."""

    least: float
    median: float
    most: float
    count: int


@dataclass(frozen=True, slots=True)
class Cause:
    """Runs that failed alike; `ending` is how the engine ended, None when it did not."""

    ending: str | None
    why: Phrase
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """`growth`: bytes by which the process's memory in the last third of the runs is above that in
    the first (None with fewer than 3 runs); `card_growth` the same of each card's memory that is
    taken before a load. `differing` = runs with a deciding line that is not as computed.
    `contended` = runs before which others kept cores busy that the engine's threads needed."""

    runs: int
    failed: int
    causes: tuple[Cause, ...]
    differing: int
    load_s: Spread | None
    seconds: Spread | None
    prompt_per_s: Spread | None
    decode_per_s: Spread | None
    peak_bytes: Spread | None
    own_bytes: Spread | None
    growth: int | None
    card_growth: dict[str, int]
    contended: int
    busy_cores: float
    threads: int
    cores: int

    @property
    def grows(self) -> bool:
        """More than chance: above 8 MiB and 1 % of the peak."""
        if self.growth is None or self.peak_bytes is None:
            return False
        return self.growth > max(_GROWN, self.peak_bytes.median / 100)


def summarise(found: Verification) -> Summary:
    """The figures of all runs; those of failed ones count where there are any."""
    attempts = found.attempts
    cores = os.cpu_count() or 1
    free = cores - found.threads
    late = [one for one in attempts if one.busy_cores > max(free, 0) + _CONTENDED]
    own = [one.memory.own for one in attempts if one.memory and one.memory.own]
    return Summary(
        runs=len(attempts),
        failed=found.failures,
        causes=_causes(attempts),
        differing=sum(any(r.decisive and not r.agrees for r in one.rows) for one in attempts),
        load_s=_spread(one.load_s for one in attempts),
        seconds=_spread(one.seconds for one in attempts if not one.failed),
        prompt_per_s=_spread(one.prompt_per_s for one in attempts),
        decode_per_s=_spread(one.decode_per_s for one in attempts),
        peak_bytes=_spread(one.peak_rss_bytes or None for one in attempts),
        own_bytes=_spread(own),
        growth=_growth([one.peak_rss_bytes for one in attempts if not one.failed]),
        card_growth=_cards(attempts),
        contended=len(late),
        busy_cores=statistics.median(one.busy_cores for one in attempts),
        threads=found.threads,
        cores=cores,
    )


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(min(known), statistics.median(known), max(known), len(known))


def _growth(sizes: Sequence[int]) -> int | None:
    if len(sizes) < _THIRD:
        return None
    third = len(sizes) // _THIRD
    return round(statistics.median(sizes[-third:]) - statistics.median(sizes[:third]))


def _cards(attempts: Sequence[Attempt]) -> dict[str, int]:
    """Taken before a load: what the engine left behind would show up here."""
    free: dict[str, list[int]] = {}
    for one in attempts:
        for card in one.memory.cards if one.memory else ():
            free.setdefault(card.name, []).append(-card.free_before)
    grown = {name: _growth(sizes) for name, sizes in free.items()}
    return {name: size for name, size in grown.items() if size is not None}


def _causes(attempts: Sequence[Attempt]) -> tuple[Cause, ...]:
    """Most frequent first. Runs failed alike when the engine ended alike and said the same."""
    alike: dict[tuple[str | None, str], list[Attempt]] = {}
    for one in attempts:
        if one.error is not None:
            ending = str(one.outcome.ending) if one.outcome else None
            alike.setdefault((ending, str(one.error)), []).append(one)
    found = [
        Cause(ending, group[0].error or Phrase(text), tuple(one.number for one in group))
        for (ending, text), group in alike.items()
    ]
    return tuple(sorted(found, key=lambda cause: -len(cause.runs)))
