"""Safer launches to step down to when the chosen one fails after all (a driver that took more)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvwise.plan.candidate import CELLS, Candidate
from kvwise.plan.offload import Level, is_full
from kvwise.plan.quality import PAIRS, meets, quality_of
from kvwise.plan.search import Search
from kvwise.units import MIB

_RUNGS = 6
_SMALLEST_UBATCH = 64


def ladder(search: Search, chosen: Candidate) -> list[Candidate]:
    """Launches that each need clearly less on the fullest GPU than the one before.

    What the user fixed stays; the prompt still fits as long as it can; then layers go to the host.
    """
    rungs: list[Candidate] = []
    here = chosen
    while len(rungs) < _RUNGS:
        lower = next(_lower(search, here), None)
        if lower is None:
            break
        rungs.append(lower)
        here = lower
    return rungs


def _lower(search: Search, here: Candidate) -> Iterator[Candidate]:
    for changes in _steps(search, here):
        level = _level(here) | {
            name: changes[name] for name in ("n_gpu_layers", "n_cpu_moe") if name in changes
        }
        found = search.with_changes(here.launch, changes, level)
        if found and _weight(here) - _weight(found) >= _worth(here):
            yield found


def _steps(search: Search, here: Candidate) -> Iterator[dict[str, Any]]:
    """Changes to try, gentlest first."""
    launch, fixed = here.launch, search.fixed
    if "n_ubatch" not in fixed and launch.n_ubatch // 2 >= _SMALLEST_UBATCH:
        yield {"n_ubatch": launch.n_ubatch // 2}
    if "n_ctx" not in fixed:
        context = here.ledger.context.n_ctx
        least = -(-max(search.least, CELLS) // CELLS) * CELLS * search.slots
        tokens = max(context * 3 // 4 // search.unit * search.unit, least)
        if tokens < context:
            yield {"n_ctx": tokens}
    if not {"type_k", "type_v"} & set(fixed) and here.pair in PAIRS:
        for k, v in PAIRS[PAIRS.index(here.pair) + 1 :]:
            if meets(quality_of(k, v), search.goal.floor):
                yield {"type_k": k, "type_v": v}
    yield from _offload_more(search, here)


def _offload_more(search: Search, here: Candidate) -> Iterator[dict[str, Any]]:
    steps = list(search.levels)
    now = _level(here)
    index = next((at for at, step in enumerate(steps) if step == now), 0)
    if is_full(now, search.model):
        index = 0
    stride = max(1, len(steps) // 8)
    if index + stride < len(steps):
        yield dict(steps[index + stride])


def _level(candidate: Candidate) -> Level:
    launch = candidate.launch
    level: Level = {"n_gpu_layers": launch.n_gpu_layers}
    if launch.n_cpu_moe:
        level["n_cpu_moe"] = launch.n_cpu_moe
    if not launch.offload_kqv:
        level["offload_kqv"] = False
    return level


def _worth(here: Candidate) -> int:
    """A step must give back enough to matter: a hundredth, and 32 MiB."""
    return max(32 * MIB, _weight(here) // 100)


def _weight(candidate: Candidate) -> int:
    """Bytes on the fullest GPU; of the host when there is none."""
    gpus = [line.total_bytes for line in candidate.ledger.lines if not line.host]
    return max(gpus, default=candidate.all_bytes)
