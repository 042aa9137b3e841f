"""Is a difference more than noise? Welch's interval, and a floor for what runs drift anyway.

Samples of one process agree better with each other than with those of the next process, so a
difference below `DRIFT` is never called one, however narrow the interval is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

DRIFT = 0.01
"""Two quiet runs of the same thing differ by so much of their value."""

Verdict = Literal["more", "less", "noise", "unsure"]

_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
        2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
        2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip
"""Student's t for 95 %, two sides, by degrees of freedom from 1 on."""
_NORMAL95 = 1.960


@dataclass(frozen=True, slots=True)
class Difference:
    """Of b from a, as shares of a: `change` of the medians, `noise` = what chance alone would do in
    19 of 20 cases (None: too few samples to tell)."""

    change: float
    noise: float | None
    verdict: Verdict


def difference(a: Sequence[float], b: Sequence[float]) -> Difference | None:
    """None where one side has no sample, or a is not positive."""
    if not a or not b or statistics.median(a) <= 0:
        return None
    base = statistics.median(a)
    change = statistics.median(b) / base - 1
    interval = _interval(a, b)
    if interval is None:
        return Difference(change, None, "unsure")
    noise = max(interval / base, DRIFT)
    if abs(change) <= noise:
        return Difference(change, noise, "noise")
    return Difference(change, noise, "more" if change > 0 else "less")


def _interval(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Half of Welch's 95 % interval of the difference of the means."""
    if len(a) < 2 or len(b) < 2:
        return None
    parts = [statistics.variance(each) / len(each) for each in (a, b)]
    both = sum(parts)
    if both == 0:
        return 0.0
    lower = sum(part**2 / (len(each) - 1) for part, each in zip(parts, (a, b), strict=True))
    freedom = both**2 / lower if lower else math.inf
    return t95(freedom) * math.sqrt(both)


def t95(freedom: float) -> float:
    """Student's t for 95 %; of degrees between two rows the larger value."""
    if freedom >= len(_T95) + 1:
        # the first two terms of its expansion around the normal quantile
        return _NORMAL95 + (_NORMAL95**3 + _NORMAL95) / (4 * freedom)
    return _T95[max(1, math.floor(freedom)) - 1]
