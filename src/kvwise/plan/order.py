"""Which of two fitting launches is better for a goal, and which are worth showing beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvwise.plan.candidate import Candidate
from kvwise.plan.goal import Goal
from kvwise.plan.quality import CLASSES, SOURCED, Grades

_NEARLY = 0.9  # a context this close to enough is enough
_SHARES = 8  # below that, contexts are compared in eighths of enough


@dataclass(frozen=True, slots=True)
class _Field:
    """What a candidate is judged against.

    `plain`: fewest bytes per token from the host with the best cache types. A smaller cache may
    spend what it frees on context instead of layers, but never gives up a layer for it.
    """

    goal: Goal
    ubatches: Sequence[int]
    plain: int
    grades: Grades


def best(
    candidates: Sequence[Candidate],
    goal: Goal,
    ubatches: Sequence[int],
    grades: Grades = SOURCED,
) -> Candidate:
    """The best candidate by the goal's own order; there must be one."""
    first = min(grades.rank(each.pair) for each in candidates)
    plain = min(each.host_read for each in candidates if grades.rank(each.pair) == first)
    field = _Field(goal, ubatches, plain, grades)
    names = goal.terms.order
    return max(candidates, key=lambda each: tuple(_VALUE[name](each, field) for name in names))


def _enough(candidate: Candidate, field: _Field) -> float:
    share = candidate.slot_tokens / field.goal.enough
    return _SHARES if share >= _NEARLY else int(share * _SHARES)


def _on_gpu(candidate: Candidate, field: _Field) -> float:
    return 0 if candidate.host_read <= field.plain else -candidate.host_read


_VALUE: dict[str, Callable[[Candidate, _Field], float]] = {  # larger is better
    "context": lambda each, _: each.slot_tokens,
    "enough": _enough,
    "on_gpu": _on_gpu,
    "fast": lambda each, _: -each.host_read,
    "swift": lambda each, _: -each.gpu_seconds,
    "quality": lambda each, field: -field.grades.rank(each.pair),
    "plain": lambda each, _: each.quality == "lossless",
    "ubatch": lambda each, field: -field.ubatches.index(each.launch.n_ubatch),
    "frugal": lambda each, _: -(each.gpu_bytes or each.all_bytes),
}


def alternatives(  # noqa: PLR0917  (what `best` takes, and how many)
    candidates: Sequence[Candidate],
    chosen: Candidate,
    goal: Goal,
    ubatches: Sequence[int],
    most: int,
    grades: Grades = SOURCED,
) -> list[Candidate]:
    """Up to `most` others, each better than every other one in context, quality or speed.

    Launches that differ only in the micro-batch or a little context are one: the goal's best.
    """
    alike: dict[object, Candidate] = {}
    for each in candidates:
        kind = (each.pair, each.host_read)
        both = [each, *([alike[kind]] if kind in alike else [])]
        alike[kind] = best(both, goal, ubatches, grades)
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
