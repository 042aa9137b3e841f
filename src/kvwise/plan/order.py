"""Which of two fitting launches is better for a goal, and which are worth showing beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kvwise.plan.candidate import Candidate
from kvwise.plan.goal import Goal
from kvwise.plan.quality import CLASSES, SOURCED, Grades

_STEPS = 2  # below enough, contexts are compared in half powers of two
ABOUT = 1.02
"""So much more from the host is less than one layer of most models: it may buy context."""

_FOR_ENOUGH = 1.05  # and so much where it buys what the goal calls enough
_HARDLY_SLOWER = 1.15  # this much more read from the host is worth a better cache


@dataclass(frozen=True, slots=True)
class _Field:
    """What a candidate is judged against.

    `plain`: fewest bytes per token from the host with the best cache types, or with everything on
    the GPUs in any. A smaller cache may spend what it frees on context instead of layers, but never
    gives up a layer for it, nor does a longer context where a smaller cache keeps all of them.
    `fastest`: fewest bytes of all that reach as much of the goal as can be reached so. `about`: how
    many times `plain` is about as much.
    """

    goal: Goal
    ubatches: Sequence[int]
    grades: Grades
    plain: int
    about: float = ABOUT
    fastest: int = 0


def best(
    candidates: Sequence[Candidate],
    goal: Goal,
    ubatches: Sequence[int],
    grades: Grades = SOURCED,
) -> Candidate:
    """The best candidate by the goal's own order; there must be one."""
    near = [each for each in candidates if _resident(each)] or candidates
    first = min(grades.rank(each.pair) for each in near)
    plain = min(each.host_read for each in near if each.full or grades.rank(each.pair) == first)
    enough = any(
        each.slot_tokens >= goal.nearly for each in near if each.host_read <= plain * ABOUT
    )
    field = _Field(goal, ubatches, grades, plain, ABOUT if enough else _FOR_ENOUGH)
    reaching = [(_on_gpu(each, field), _enough(each, field)) for each in near]
    fastest = min(
        each.host_read
        for each, reached in zip(near, reaching, strict=True)
        if reached == max(reaching)
    )
    field = replace(field, fastest=fastest)
    names = goal.terms.order
    return max(candidates, key=lambda each: tuple(_VALUE[name](each, field) for name in names))


def _enough(candidate: Candidate, field: _Field) -> float:
    tokens = candidate.slot_tokens
    return math.inf if tokens >= field.goal.nearly else int(_STEPS * math.log2(max(1, tokens)))


def _resident(candidate: Candidate) -> bool:
    """The cache lies with its layers. From the host (`-nkvo`) the processor attends to it, which
    costs long prompts far more than layers that are lent to the GPU for them."""
    return candidate.launch.offload_kqv


def _on_gpu(candidate: Candidate, field: _Field) -> float:
    return 0 if candidate.host_read <= field.plain * field.about else -candidate.host_read


def _quick(candidate: Candidate, field: _Field) -> float:
    return 0 if candidate.host_read <= field.fastest * _HARDLY_SLOWER else -candidate.host_read


_VALUE: dict[str, Callable[[Candidate, _Field], float]] = {  # larger is better
    "context": lambda each, _: each.slot_tokens,
    "enough": _enough,
    "resident": lambda each, _: _resident(each),
    "on_gpu": _on_gpu,
    "quick": _quick,
    "aside": lambda each, _: -each.aside,
    "fast": lambda each, _: -each.host_read,
    "swift": lambda each, _: -each.gpu_seconds,
    "quality": lambda each, field: -field.grades.rank(each.pair),
    "plain": lambda each, _: each.quality == "lossless",
    "pipelined": lambda each, _: not each.forgoes_pipeline,
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
        kind = _kind(each)
        both = [each, *([alike[kind]] if kind in alike else [])]
        alike[kind] = best(both, goal, ubatches, grades)
    alike.pop(_kind(chosen), None)
    others = [
        each
        for each in alike.values()
        if not any(_beats(_values(other), _values(each)) for other in (chosen, *alike.values()))
    ]
    return sorted(others, key=lambda one: (one.host_read, -one.slot_tokens))[:most]


def _kind(candidate: Candidate) -> object:
    return candidate.pair, candidate.host_read, candidate.forgoes_pipeline


def fewest(candidates: Sequence[Candidate], chosen: Candidate) -> Candidate:
    """What reads least from the host, and the longest context of those.

    Only of those with a cache as good as the chosen one's, and on the GPUs if that one is: a worse
    cache is another trade.
    """
    alike = [
        each
        for each in candidates
        if CLASSES.index(each.quality) <= CLASSES.index(chosen.quality)
        and _resident(each) >= _resident(chosen)
    ]
    return min(alike, key=lambda each: (each.host_read, -each.slot_tokens))


def _values(candidate: Candidate) -> tuple[float, ...]:
    return (
        candidate.slot_tokens,
        -CLASSES.index(candidate.quality),
        -candidate.host_read,
        -candidate.forgoes_pipeline,
    )


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
