"""Finding an edge with few questions, when what is left shrinks almost evenly towards it."""

from __future__ import annotations

from collections.abc import Callable

Slack = Callable[[int], int | None]
"""What is left at a point: negative = misses by so much, None = cannot be had at all."""


def edge(slack: Slack, good: int, bad: int) -> int:
    """The last point that has something left on the way from `good` (which has) to `bad`.

    Guesses where a straight line would cross zero, looks beside the guess, then halves, so that
    a curve that is not straight costs no more than three times the halving alone.
    """
    left_good, left_bad = slack(good), slack(bad)
    moved_good, turn = True, 0
    while abs(bad - good) > 1:
        step = 1 if bad > good else -1
        if turn % 3 == 0 and left_good is not None and left_bad is not None:
            distance = abs(bad - good) * left_good // max(1, left_good - left_bad)
        elif turn % 3 == 1:
            distance = 1 if moved_good else abs(bad - good) - 1
        else:
            distance = abs(bad - good) // 2
        probe = good + step * min(max(distance, 1), abs(bad - good) - 1)
        left = slack(probe)
        moved_good = left is not None and left >= 0
        if moved_good:
            good, left_good = probe, left
        else:
            bad, left_bad = probe, left
        turn += 1
    return good
