"""The hunt itself, whoever measures: search with single evaluations, confirm the best, judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kvwise.tune.judge import (
    CONFIRMED,
    LEAST_GAIN,
    ROUNDS,
    ROUNDS_NEEDED,
    Candidate,
    Verdict,
    judge,
)
from kvwise.tune.judge import candidates as compared
from kvwise.tune.knobs import Point, Space, key_of
from kvwise.tune.measure import Taken
from kvwise.tune.search import Possible, Search

OF_GRID = 0.2
"""Evaluations, confirmations included, are at most this share of the full grid."""
_LEAST = 12
_SHARE = 0.7
"""Of the time for the search; the rest confirms."""

Unit = Callable[[str, Point], Taken]
"""Measures a point once; the text names the evaluation and is the same when it is asked again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`most` evaluations altogether, in about `seconds`."""

    most: int
    seconds: float = float("inf")

    @classmethod
    def of(cls, space: Space, seconds: float, most: int | None = None) -> Limits:
        """By the size of the grid where nobody says how many."""
        return cls(most or max(_LEAST, int(space.size * OF_GRID)), seconds)

    @property
    def confirming(self) -> int:
        """Evaluations kept for the finalists."""
        return min((CONFIRMED + 1) * ROUNDS, max(2 * ROUNDS, self.most // 3))

    @property
    def finalists(self) -> int:
        """How many, the start not counted."""
        return max(1, min(CONFIRMED, self.confirming // ROUNDS - 1))


@dataclass(slots=True)
class Hunt:
    """What was tried (one evaluation each) and everything that was measured, in order."""

    space: Space
    limits: Limits
    unit: Unit
    possible: Possible | None = None
    seed: int = 0
    tried: list[tuple[Point, Taken]] = field(default_factory=list)
    units: list[tuple[Point, Taken]] = field(default_factory=list)

    @property
    def spent(self) -> float:
        """Seconds, loading included."""
        return sum(taken.spent for _, taken in self.units)

    @property
    def best(self) -> float | None:
        """The least time so far as a share of the start's; None until that is known."""
        known = [(point, taken.seconds) for point, taken in self.tried if taken.seconds]
        start = next((took for point, took in known if point == self.space.start), None)
        return min(took for _, took in known) / start if start else None

    def run(self) -> tuple[tuple[Candidate, ...], Verdict]:
        """The start and the best beside it, measured again, and what to use.

        Raises KvwiseError without optuna, and what `unit` raises.
        """
        search = Search(self.space, self.seed, self.possible)
        for _ in range(max(2, self.limits.most - self.limits.confirming)):
            point = search.ask()
            if point is None:
                break
            taken = self._take(f"try {key_of(point)}", point)
            self.tried.append((point, taken))
            search.tell(point, taken.seconds)
            if self.spent >= self.limits.seconds * _SHARE:
                break
        points = self._finalists()
        found = compared(points, self._confirm(points))
        return found, judge(found, self.space.start)

    def _finalists(self) -> list[Point]:
        """The start, and the best others; of those that are about as fast the simplest first."""
        start = self.space.start
        known = [
            (taken.seconds, point)
            for point, taken in self.tried
            if taken.seconds is not None and point != start
        ]
        known.sort(key=lambda pair: pair[0])
        near = [pair for pair in known if pair[0] <= known[0][0] * (1 + LEAST_GAIN)]
        near.sort(key=lambda pair: (_changes(pair[1], start), pair[0]))
        ordered = [point for _, point in [*near, *known[len(near) :]]]
        return [start, *ordered[: self.limits.finalists]]

    def _confirm(self, points: list[Point]) -> list[dict[Point, Taken]]:
        """Interleaved rounds; every other one backwards."""
        rounds: list[dict[Point, Taken]] = []
        for number in range(ROUNDS):
            late = self.spent >= self.limits.seconds
            many = len(self.units) + len(points) > self.limits.most
            if number >= ROUNDS_NEEDED and (late or many):
                break
            line = points if number % 2 == 0 else list(reversed(points))
            rounds.append(
                {point: self._take(f"confirm {number} {key_of(point)}", point) for point in line}
            )
        return rounds

    def _take(self, name: str, point: Point) -> Taken:
        taken = self.unit(name, point)
        self.units.append((point, taken))
        return taken


def _changes(point: Point, start: Point) -> int:
    """Knobs that differ: each is one more flag to keep."""
    return sum(one != other for one, other in zip(point, start, strict=True))
