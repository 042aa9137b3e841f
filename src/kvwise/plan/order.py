"""Which of two fitting launches is better for a goal, and which are worth showing beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvwise.plan.goal import Goal
from kvwise.plan.quality import CLASSES, PAIRS
from kvwise.plan.search import Candidate

_NEARLY = 0.9  # a context this close to enough is enough
_SHARES = 8  # below that, contexts are compared in eighths of enough


def best(candidates: Sequence[Candidate], goal: Goal, ubatches: Sequence[int]) -> Candidate:
    """The best candidate by the goal's own order; there must be one."""
    return max(candidates, key=lambda each: _key(each, goal, ubatches))


def _key(candidate: Candidate, goal: Goal, ubatches: Sequence[int]) -> tuple[float, ...]:
    return tuple(_VALUE[name](candidate, goal, ubatches) for name in goal.terms.order)


def _enough(candidate: Candidate, goal: Goal, _: Sequence[int]) -> float:
    share = candidate.slot_tokens / goal.enough
    return _SHARES if share >= _NEARLY else int(share * _SHARES)


def _quality(candidate: Candidate, *_: object) -> float:
    rank = PAIRS.index(candidate.pair) if candidate.pair in PAIRS else len(PAIRS)
    return -(CLASSES.index(candidate.quality) * len(PAIRS) + rank)


def _ubatch(candidate: Candidate, _: Goal, ubatches: Sequence[int]) -> float:
    return -ubatches.index(candidate.launch.n_ubatch)


_VALUE: dict[str, Callable[[Candidate, Goal, Sequence[int]], float]] = {  # larger is better
    "reaches": lambda each, goal, _: each.slot_tokens >= goal.least,
    "context": lambda each, *_: each.slot_tokens,
    "enough": _enough,
    "on_gpu": lambda each, *_: -each.host_read,
    "quality": _quality,
    "plain": lambda each, *_: each.quality == "lossless",
    "ubatch": _ubatch,
    "frugal": lambda each, *_: -(each.gpu_bytes or each.all_bytes),
}


def alternatives(candidates: Sequence[Candidate], chosen: Candidate, most: int) -> list[Candidate]:
    """Up to `most` others, each better than every other one in context, quality or speed."""
    front: list[Candidate] = []
    for each in sorted(candidates, key=lambda one: (-one.slot_tokens, one.host_read)):
        values = _values(each)
        if all(_values(other) != values and not _beats(_values(other), values)
               for other in (chosen, *front)):  # fmt: skip
            front.append(each)
    front = [
        each
        for each in front
        if not any(_beats(_values(other), _values(each)) for other in candidates)
    ]
    return front[:most]


def _values(candidate: Candidate) -> tuple[float, ...]:
    return (candidate.slot_tokens, -CLASSES.index(candidate.quality), -candidate.host_read)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
