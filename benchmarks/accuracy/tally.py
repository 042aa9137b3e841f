"""Counts of figures that were compared: exact, near, below; and the worst of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

MIB = 1 << 20

PARTS = ("weights", "caches", "output", "compute on GPUs", "compute on the host")


class Truth(Protocol):
    """An amount that something else knows: a number of bytes, or what was printed of it."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Exactly:
    """A known number of bytes."""

    size: int

    @property
    def low(self) -> int:
        return self.size

    @property
    def high(self) -> int:
        return self.size


@dataclass(slots=True)
class Tally:
    """What came of comparing some figures. Differences are computed minus true, in bytes."""

    cells: int = 0
    exact: int = 0
    within: int = 0
    under: int = 0
    estimated: int = 0
    worst: int = 0
    worst_of: int = 0
    worst_where: str = ""

    def add(self, ours: int, truth: Truth, where: str, *, estimated: bool = False) -> None:
        """One figure; inside the range that was printed, it is exact."""
        nearest = min(max(ours, truth.low), truth.high)
        off = ours - nearest
        self.cells += 1
        self.exact += not off
        self.within += abs(off) <= max(nearest // 50, 4 * MIB)
        self.under += -off > max(nearest // 100, 2 * MIB)
        self.estimated += estimated
        if abs(off) > abs(self.worst):
            self.worst, self.worst_of, self.worst_where = off, nearest, where

    def take(self, other: Tally) -> None:
        """Add another tally to this one."""
        for name in ("cells", "exact", "within", "under", "estimated"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if abs(other.worst) > abs(self.worst):
            self.worst, self.worst_of = other.worst, other.worst_of
            self.worst_where = other.worst_where

    @property
    def worst_text(self) -> str:
        """`+12.50 MiB of 400`, or nothing when all are exact."""
        if not self.worst:
            return ""
        return f"{self.worst / MIB:+,.2f} MiB of {self.worst_of / MIB:,.1f}"


Tallies = dict[tuple[str, str], Tally]
"""(architecture, part) -> what came of it."""


def tally(found: Tallies, architecture: str, part: str) -> Tally:
    return found.setdefault((architecture, part), Tally())


def total(found: Tallies, part: str) -> Tally:
    """All architectures together."""
    every = Tally()
    for (_, name), each in found.items():
        if name == part:
            every.take(each)
    return every
