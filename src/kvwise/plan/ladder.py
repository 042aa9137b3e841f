"""Safer launches to step down to when the chosen one fails after all (a driver that took more)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvwise.launch import Launch
from kvwise.options import change
from kvwise.plan.candidate import CELLS, Candidate, slack_of
from kvwise.plan.edge import edge
from kvwise.plan.offload import FIELDS, is_full
from kvwise.plan.quality import PAIRS, meets
from kvwise.plan.search import Search
from kvwise.plan.step import Step, step
from kvwise.units import MIB

_RUNGS = 6
_SMALLEST_UBATCH = 64
_LEAST_EXTRA = 256 * MIB  # what the first rung keeps free beside the reserve, at least


@dataclass(frozen=True, slots=True)
class Rung:
    """A safer launch, and what it gives up against the one before."""

    candidate: Candidate
    step: Step


@dataclass(frozen=True, slots=True)
class _Move:
    knob: str
    changes: dict[str, Any]


def ladder(search: Search, chosen: Candidate) -> list[Rung]:
    """Launches that each need clearly less on the fullest GPU than the one before.

    First more is kept free, then the micro-batch, the cache types, the context and at last the
    layers give way. What the user fixed stays; the prompt still fits as long as it can.
    """
    rungs: list[Rung] = []
    useless: set[str] = set()  # knobs that gave back too little
    here = chosen
    while len(rungs) < _RUNGS:
        lower = next(_lower(search, here, useless, first=not rungs), None)
        if lower is None:
            break
        rungs.append(lower)
        here = lower.candidate
    return rungs


def _lower(search: Search, here: Candidate, useless: set[str], *, first: bool) -> Iterator[Rung]:
    for move in _moves(search, here, first=first):
        if move.knob in useless:
            continue
        level = dict(here.level) | {
            name: move.changes[name] for name in FIELDS if name in move.changes
        }
        found = search.with_changes(here.launch, move.changes, level)
        if found and _weight(here) - _weight(found) >= _worth(here):
            yield Rung(found, _described(here, found, move.knob))
        else:
            useless.add(move.knob)


def _described(here: Candidate, lower: Candidate, knob: str) -> Step:
    """What the step frees on the GPU that was the fullest; on the host where there is none."""
    lines = here.ledger.lines
    gpus = [line for line in lines if not line.host]
    line = max(gpus or lines, key=lambda each: each.total_bytes)
    number = lines.index(line)
    after = lower.ledger.lines
    frees = line.total_bytes - after[number].total_bytes if number < len(after) else None
    return step(here.launch, lower.launch, (knob,), ledger=here.ledger, line=line, frees=frees)


def _moves(search: Search, here: Candidate, *, first: bool) -> Iterator[_Move]:
    """Changes to try, gentlest first."""
    launch, fixed = here.launch, search.fixed
    if first and "n_ctx" not in fixed:
        yield from _keep_more_free(search, here)
    if "n_ubatch" not in fixed and launch.n_ubatch // 2 >= _SMALLEST_UBATCH:
        yield _Move("ubatch", {"n_ubatch": launch.n_ubatch // 2})
    yield from _smaller_types(search, here)
    if "n_ctx" not in fixed:
        context, least = here.ledger.context.n_ctx, _least(search)
        tokens = max(context * 3 // 4 // search.unit * search.unit, least)
        if tokens < context:
            yield _Move("context", {"n_ctx": tokens})
    yield from _offload_more(search, here)


def _keep_more_free(search: Search, here: Candidate) -> Iterator[_Move]:
    """The longest context that leaves the reserve once more."""
    reserves = [device.reserve_bytes or 0 for device in here.ledger.devices]
    extra = max(*reserves, _LEAST_EXTRA) if reserves else _LEAST_EXTRA
    unit, least = search.unit, _least(search)

    def left(units: int) -> int | None:
        ledger = search.ledger(search.with_context(here.launch, units * unit))
        return None if ledger is None else slack_of(ledger) - extra

    low, high = least // unit, here.ledger.context.n_ctx // unit
    at_least = left(low) if low < high else None
    if at_least is None or at_least < 0:
        return
    yield _Move("reserve", {"n_ctx": edge(left, low, high) * unit})


def _smaller_types(search: Search, here: Candidate) -> Iterator[_Move]:
    if {"type_k", "type_v"} & set(search.fixed) or here.pair not in PAIRS:
        return
    for k, v in PAIRS[PAIRS.index(here.pair) + 1 :]:
        if meets(search.grades.of(k, v), search.goal.floor):
            yield _Move("types", {"type_k": k, "type_v": v})


def _offload_more(search: Search, here: Candidate) -> Iterator[_Move]:
    """The next level that gives back about a twentieth of the fullest GPU."""
    steps = search.levels
    start = 1 if is_full(here.level, search.model) else _place(search, here)
    nothing = {name: _NOTHING[name] for name in FIELDS if name not in search.fixed}
    reached = _on_gpus(search, here.launch) if search.devices else None
    if reached is None or start >= len(steps):
        return

    def spare(number: int) -> int | None:
        held = _on_gpus(search, change(here.launch, **(nothing | dict(steps[number]))))
        return None if held is None else held - (reached - _stride(here))

    last = spare(len(steps) - 1)
    if last is None or last > 0:
        number = len(steps) - 1
    else:
        # `edge` looks for the last level that still holds more than is wanted
        number = start if (spare(start) or 0) <= 0 else edge(spare, start, len(steps) - 1) + 1
    yield _Move("layers", nothing | dict(steps[number]))


def _place(search: Search, here: Candidate) -> int:
    """Number of the level after the one that is here, or that keeps as much on the GPUs."""
    steps = list(search.levels)
    return steps.index(here.level) + 1 if here.level in steps else 1


def _on_gpus(search: Search, launch: Launch) -> int | None:
    """Bytes on the fullest GPU without compute buffers."""
    bare = search.barest(launch)
    return None if bare is None else max(line.total_bytes for line in bare.lines if not line.host)


def _stride(here: Candidate) -> int:
    return max(2 * _worth(here), _weight(here) // 20)


_NOTHING: dict[str, Any] = {
    "n_gpu_layers": -1, "n_cpu_moe": 0, "override_tensor": (), "offload_kqv": True,
}  # fmt: skip


def _least(search: Search) -> int:
    """The shortest context that holds what must be held, in whole blocks."""
    return -(-min(search.least, search.trained) // CELLS) * CELLS * search.slots


def _worth(here: Candidate) -> int:
    """A step must give back enough to matter: a hundredth, and 32 MiB."""
    return max(32 * MIB, _weight(here) // 100)


def _weight(candidate: Candidate) -> int:
    """Bytes on the fullest GPU; of the host when there is none."""
    gpus = [line.total_bytes for line in candidate.ledger.lines if not line.host]
    return max(gpus, default=candidate.all_bytes)
