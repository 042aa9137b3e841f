"""Which of two fitting launches is better for a goal, and which are worth showing beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvwise.plan.candidate import Candidate
from kvwise.plan.goal import Goal
from kvwise.plan.quality import CLASSES, PAIRS

_NEARLY = 0.9  # a context this close to enough is enough
_SHARES = 8  # below that, contexts are compared in eighths of enough
_HARDLY_SLOWER = 1.15  # this much more read from the host is worth a better context or cache


@dataclass(frozen=True, slots=True)
class _Field:
    """What a candidate is judged against."""

    goal: Goal
    ubatches: Sequence[int]
    fastest: int  # fewest bytes per token from the host of all that reach the goal

    def hardly_slower(self, candidate: Candidate) -> bool:
        return candidate.host_read <= self.fastest * _HARDLY_SLOWER


def best(candidates: Sequence[Candidate], goal: Goal, ubatches: Sequence[int]) -> Candidate:
    """The best candidate by the goal's own order; there must be one."""
    field = _Field(goal, ubatches, min(each.host_read for each in candidates))
    names = goal.terms.order
    return max(candidates, key=lambda each: tuple(_VALUE[name](each, field) for name in names))


def _enough(candidate: Candidate, field: _Field) -> float:
    share = candidate.slot_tokens / field.goal.enough
    return _SHARES if share >= _NEARLY else int(share * _SHARES)


def _on_gpu(candidate: Candidate, field: _Field) -> float:
    return 0 if field.hardly_slower(candidate) else -candidate.host_read


def _quality(candidate: Candidate, _: _Field) -> float:
    rank = PAIRS.index(candidate.pair) if candidate.pair in PAIRS else len(PAIRS)
    return -(CLASSES.index(candidate.quality) * len(PAIRS) + rank)


_VALUE: dict[str, Callable[[Candidate, _Field], float]] = {  # larger is better
    "context": lambda each, _: each.slot_tokens,
    "enough": _enough,
    "on_gpu": _on_gpu,
    "fast": lambda each, _: -each.host_read,
    "quality": _quality,
    "plain": lambda each, _: each.quality == "lossless",
    "ubatch": lambda each, field: -field.ubatches.index(each.launch.n_ubatch),
    "frugal": lambda each, _: -(each.gpu_bytes or each.all_bytes),
}


def alternatives(
    candidates: Sequence[Candidate],
    chosen: Candidate,
    goal: Goal,
    ubatches: Sequence[int],
    most: int,
) -> list[Candidate]:
    """Up to `most` others, each better than every other one in context, quality or speed.

    Launches that differ only in the micro-batch or a little context are one: the goal's best.
    """
    alike: dict[object, Candidate] = {}
    for each in candidates:
        kind = (each.pair, each.host_read)
        alike[kind] = best([each, *([alike[kind]] if kind in alike else [])], goal, ubatches)
    alike.pop((chosen.pair, chosen.host_read), None)
    others = [
        each
        for each in alike.values()
        if not any(_beats(_values(other), _values(each)) for other in (chosen, *alike.values()))
    ]
    return sorted(others, key=lambda one: (one.host_read, -one.slot_tokens))[:most]


def _values(candidate: Candidate) -> tuple[float, ...]:
    return (candidate.slot_tokens, -CLASSES.index(candidate.quality), -candidate.host_read)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
