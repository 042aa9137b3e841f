"""Does an answer end in a loop: the same tokens again and again?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TIMES = 3
"""A sentence may come twice on purpose."""
LEAST = 24
"""Tokens of a loop together: `- - - -` or a row of zeros is no loop yet."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The last tokens from `start` on are one piece of `period` tokens over and over."""

    start: int
    period: int


def loop(tokens: Sequence[int], times: int = TIMES, least: int = LEAST) -> Loop | None:
    """The loop that an answer ends in: the shortest piece that fills at least `least` tokens and
    comes at least `times` times (the last may be cut off); None without one."""
    size = len(tokens)
    for period in range(1, size // times + 1):
        start = size - period
        while start > 0 and tokens[start - 1] == tokens[start - 1 + period]:
            start -= 1
        if size - start >= max(least, times * period):
            return Loop(start, period)
    return None
