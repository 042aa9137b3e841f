"""Finding an edge with few questions, when what is left shrinks almost evenly towards it."""

from __future__ import annotations

from collections.abc import Callable

Slack = Callable[[int], int | None]
"""What is left at a point: negative = misses by so much, None = cannot be had at all."""


def edge(slack: Slack, good: int, bad: int, rough: Slack | None = None) -> int:
    """The last point that has something left on the way from `good` (which has) to `bad`.

    `rough` is a cheap guess of the same curve that may learn from every question asked: its own
    edge is looked at first, and the point beside it once it agrees. Else guesses where a straight
    line would cross zero, looks beside the guess, then halves, so that a curve that is not
    straight costs no more than three times the halving alone.
    """
    ends: dict[int, int | None] = {}
    moved_good, turn = True, 0

    def left_at(point: int) -> int | None:
        if point not in ends:
            ends[point] = slack(point)
        return ends[point]

    while abs(bad - good) > 1:
        step = 1 if bad > good else -1
        distance = abs(bad - good) // 2
        if turn < _TRUSTED and rough is not None:
            distance = abs(edge(rough, good, bad) - good)
        elif turn % 3 == 0:
            left_good, left_bad = left_at(good), left_at(bad)
            if left_good is not None and left_bad is not None:
                distance = abs(bad - good) * left_good // max(1, left_good - left_bad)
        elif turn % 3 == 1:
            distance = 1 if moved_good else abs(bad - good) - 1
        probe = good + step * min(max(distance, 1), abs(bad - good) - 1)
        left = left_at(probe)
        moved_good = left is not None and left >= 0
        if moved_good:
            good = probe
        else:
            bad = probe
        turn += 1
    return good


_TRUSTED = 6  # questions that a rough guess may place
