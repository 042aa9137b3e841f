"""What the search gained over the start, beyond what chance alone would do.

Chance is Welch's interval of `results.stats`, which the comparisons of results use too; besides
that, a gain must be there in every round of start and candidate side by side.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvwise.results.stats import difference
from kvwise.text import Phrase, phrase
from kvwise.tune.knobs import Point, key_of
from kvwise.tune.measure import Taken
from kvwise.units import percent

LEAST_GAIN = 0.02
CONFIRMED = 3
"""Candidates that are measured again, beside the start."""
ROUNDS = 3
ROUNDS_NEEDED = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point that was measured again: the seconds of its request in each confirming round, and
    the gain over the start in the same round (0.1 = a tenth faster)."""

    point: Point
    seconds: tuple[float, ...]
    gains: tuple[float, ...]
    prompt_per_s: float
    decode_per_s: float
    flagged: int

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def width(self) -> float:
        """How far its rounds lie apart, as a share of their median."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    @property
    def gain(self) -> float:
        """The median gain over the start; 0 for the start itself."""
        return statistics.median(self.gains) if self.gains else 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The candidate to use, or None = stay with the start; `noise` as a share."""

    best: Candidate | None
    noise: float
    why: Phrase


def candidates(
    points: Sequence[Point], rounds: Sequence[Mapping[Point, Taken]]
) -> tuple[Candidate, ...]:
    """Each point over the rounds in which it and the start (the first point) were measured."""
    start = points[0]
    found = []
    for point in points:
        pairs = [
            (each[point], each[start])
            for each in rounds
            if point in each and start in each and each[point].seconds and each[start].seconds
        ]
        quiet = [pair for pair in pairs if not (pair[0].flags or pair[1].flags)] or pairs
        if quiet:
            found.append(_candidate(point, quiet, sum(bool(pair[0].flags) for pair in pairs)))
    return tuple(found)


def _candidate(point: Point, pairs: Sequence[tuple[Taken, Taken]], flagged: int) -> Candidate:
    return Candidate(
        point=point,
        seconds=tuple(mine.seconds or 0.0 for mine, _ in pairs),
        gains=tuple((other.seconds or 0.0) / (mine.seconds or 1.0) - 1 for mine, other in pairs),
        prompt_per_s=statistics.median(mine.prompt_per_s or 0.0 for mine, _ in pairs),
        decode_per_s=statistics.median(mine.decode_per_s or 0.0 for mine, _ in pairs),
        flagged=flagged,
    )


def judge(found: Sequence[Candidate], start: Point) -> Verdict:
    """The fastest, if its gain is no noise: beyond chance, and in every round."""
    first = next((each for each in found if each.point == start), None)
    others = [each for each in found if each.point != start]
    if first is None:
        return Verdict(None, 0.0, phrase("the start failed: there is nothing to compare with"))
    if not others:
        return Verdict(None, first.width, phrase("nothing else could be measured again"))
    best = min(others, key=lambda each: each.median)
    found_noise = difference(first.seconds, best.seconds)
    if found_noise is None or found_noise.noise is None:
        why = phrase("there was no time to measure it again: a gain cannot be told from noise")
        return Verdict(None, LEAST_GAIN, why)
    noise = max(LEAST_GAIN, found_noise.noise)
    if best.gain > noise and min(best.gains) > 0:
        why = phrase(
            "{point}: {gain} faster than the start, {low} to {high} over {rounds} rounds",
            point=key_of(best.point), gain=percent(best.gain), low=percent(min(best.gains), "+.0f"),
            high=percent(max(best.gains), "+.0f"), rounds=len(best.gains),
        )  # fmt: skip
        return Verdict(best, noise, why)
    why = phrase(
        "the best gains {gain}, and chance alone would do {noise}",
        gain=percent(best.gain, "+.0f"), noise=percent(noise),
    )  # fmt: skip
    return Verdict(None, noise, why)
