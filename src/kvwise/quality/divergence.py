"""KL divergence between two distributions of which only the likeliest tokens are known.

A position keeps the log probabilities of its K likeliest tokens. Tokens that are among the K of
both sides count one by one, everything else together as one. Putting tokens together can only make
a divergence smaller (the log sum inequality), so this is a lower bound; with K = 200 it was within
1 % of the whole vocabulary's (SmolLM2 135M, q8_0 to q4_0, 40 positions, b11549).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LEAST_REST = 1e-9
"""Below, what is left is the rounding of the sum."""


@dataclass(frozen=True, slots=True)
class Position:
    """The K likeliest next tokens, likeliest first, and their natural log probabilities."""

    ids: array[int]
    logs: array[float]

    @property
    def top(self) -> int:
        """The likeliest token."""
        return self.ids[0]


def position(rows: Sequence[Mapping[str, Any]]) -> Position:
    """From `top_logprobs` of the server. Raises ValueError, KeyError or TypeError for other data
    (no row, a probability above 1, no number)."""
    pairs = sorted(((float(row["logprob"]), int(row["id"])) for row in rows), key=_likeliest)
    if not pairs or not all(-1e6 < log < 1e-3 for log, _ in pairs):
        raise ValueError("log probabilities")
    return Position(array("i", [name for _, name in pairs]), array("f", [log for log, _ in pairs]))


def _likeliest(pair: tuple[float, int]) -> tuple[float, int]:
    return -pair[0], pair[1]


def divergence(base: Position, other: Position) -> float:
    """KL(base || other) in nats, never negative."""
    known = dict(zip(other.ids, other.logs, strict=True))
    total, seen_base, seen_other = 0.0, 0.0, 0.0
    for name, log in zip(base.ids, base.logs, strict=True):
        theirs = known.get(name)
        if theirs is not None:
            share = math.exp(log)
            total += share * (log - theirs)
            seen_base += share
            seen_other += math.exp(theirs)
    rest_base, rest_other = 1.0 - seen_base, max(1.0 - seen_other, _LEAST_REST)
    if rest_base > _LEAST_REST:
        total += rest_base * math.log(rest_base / rest_other)
    return max(0.0, total)


@dataclass(frozen=True, slots=True)
class Summary:
    """Over all positions: KL divergence in nats, `same_top` = share of equal likeliest tokens
    (0 to 1), `..._error` = one standard error."""

    positions: int
    kl_mean: float
    kl_mean_error: float
    kl_p99: float
    kl_median: float
    kl_max: float
    same_top: float
    same_top_error: float


def summary(values: Sequence[float], same: int) -> Summary:
    """Of the divergences of each position, `same` of which kept their likeliest token.

    Percentiles as llama-perplexity takes them. Raises ValueError for no values.
    """
    if not values:
        raise ValueError("no positions")
    count, ordered = len(values), sorted(values)
    mean = math.fsum(values) / count
    share = same / count
    spread = math.fsum((each - mean) ** 2 for each in values) / count
    return Summary(
        positions=count,
        kl_mean=mean,
        kl_mean_error=math.sqrt(spread / (count - 1)) if count > 1 else 0.0,
        kl_p99=percentile(ordered, 0.99),
        kl_median=percentile(ordered, 0.5),
        kl_max=ordered[-1],
        same_top=share,
        same_top_error=math.sqrt(share * (1 - share) / (count - 1)) if count > 1 else 0.0,
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of values in rising order, between two neighbours on a straight line."""
    place = share * (len(ordered) - 1)
    low = min(int(place), len(ordered) - 1)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
