"""The order of the work: rounds over all settings, so that whatever drifts hits all of them.

A unit is one start of an engine for one setting and one depth. Every start costs time that is no
measurement: loading, warming up, and filling the cache to its depth. The first unit shows how much
that is; the repetitions are then spread over as many starts as cost at most an eighth more than
one start would. Two at least, unless the second alone would cost half as much again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvwise.bench.ruled import Ruled

EXTRA, MOST_EXTRA = 1 / 8, 1 / 2


@dataclass(frozen=True, slots=True)
class Unit:
    """Start number `visit` for a setting at a depth; each test is measured `times`."""

    ruled: Ruled
    depth: int
    visit: int
    times: int

    @property
    def key(self) -> str:
        return f"{self.ruled.case.key} @{self.depth} #{self.visit}"


def visits(repetitions: int, fixed_s: float, measured_s: float) -> int:
    """Starts that `repetitions` are spread over, if one start costs `fixed_s` and one repetition
    takes `measured_s`.

    >>> visits(5, 0.35, 2.4), visits(5, 3.2, 2.5), visits(5, 20.0, 2.4)
    (5, 2, 1)
    """
    whole = fixed_s + repetitions * measured_s
    more = int(EXTRA * whole / max(fixed_s, 1e-9))
    if more < 1 and fixed_s <= MOST_EXTRA * whole:
        more = 1
    return max(1, min(repetitions, 1 + more))


def times_of(visit: int, count: int, repetitions: int) -> int:
    """Repetitions of a start, when they are spread evenly over `count`.

    >>> [times_of(visit, 2, 5) for visit in range(2)]
    [3, 2]
    """
    return repetitions // count + (visit < repetitions % count)


def first_units(ruled: Sequence[Ruled]) -> list[Unit]:
    """For each model and depth the unit that shows what a start costs: one repetition."""
    found: dict[tuple[int, int, str], Unit] = {}
    for each in ruled:
        if each.skipped is None:
            for depth in depths(each):
                found.setdefault((each.case.model, depth, each.way), Unit(each, depth, 0, 1))
    return list(found.values())


def all_units(
    ruled: Sequence[Ruled], counts: Mapping[tuple[int, int, str], int], repetitions: int
) -> list[Unit]:
    """All units in their order; `counts` has the starts by model, depth and way.

    The setting that was measured first has one repetition in its first start, so it may have one
    start more than the others.
    """
    first = {(unit.ruled.case.key, unit.depth) for unit in first_units(ruled)}
    plans: dict[tuple[str, int], list[Unit]] = {}
    for each in ruled:
        if each.skipped is not None:
            continue
        for depth in depths(each):
            count = counts[each.case.model, depth, each.way]
            times = [times_of(visit, count, repetitions) for visit in range(count)]
            if (each.case.key, depth) in first and times[0] > 1:
                rest = max(1, count - 1)
                times = [1, *(times_of(visit, rest, repetitions - 1) for visit in range(rest))]
            plans[each.case.key, depth] = [
                Unit(each, depth, visit, many) for visit, many in enumerate(times) if many
            ]
    rounds = max((len(units) for units in plans.values()), default=0)
    every = sorted({depth for _, depth in plans})
    return [
        units[number]
        for number in range(rounds)
        for depth in every
        for (_, at), units in plans.items()
        if at == depth and number < len(units)
    ]


def depths(ruled: Ruled) -> list[int]:
    """Depths of the tests of a setting, in order."""
    return list(dict.fromkeys(test.depth for test in ruled.tests))
