"""An upper estimate of the compute buffers for models whose graph is not known.

The model is tried with the graphs of the architectures that its weights fit best, and the
largest result counts, plus room for what those graphs leave out; a closed form where no graph
is near. Errs upwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kvwise.memory.compute.builder import Batch, kind_named
from kvwise.memory.compute.closed import closed
from kvwise.memory.compute.nearest import Near, nearest
from kvwise.memory.compute.reserve import Job
from kvwise.memory.compute.trial import Trial
from kvwise.memory.compute.ways import AWAY, OF_EXPERTS, OTHERS, Borrowed
from kvwise.memory.placement import HOST
from kvwise.units import MIB

F32_SIZE = 4
MARGIN = 15
SMALL = 2 * MIB
"""Thousandths and bytes by which a near graph's figure is raised, at most."""

STREAMS = 2
"""Copies of the residual stream that a near graph may lack: scales and sums have no weights."""

ALIVE = 4
"""Results of unknown parts that may stand beside the known ones at once."""

STRANGE = 2
"""A closed form is raised by one part of so many: what no graph is near to has parts of its own.

These and `nearest.SHARE` were chosen by leaving out one architecture after the other, with
all that are made the same way (benchmarks/estimate.py, docs/estimates.md).
"""


def estimate(
    job: Job, batch: Batch, *, pinned: bool = False, without: Collection[str] = ()
) -> list[int]:
    """Bytes per backend, the processor last.

    `pinned`: as really reserved (see `compute`); `without`: architectures whose graphs are not
    to be used.
    """
    near = () if job.context.mtp else nearest(job.model, frozenset(without))
    trials = [Trial(job, size, pinned=pinned) for size in _reserved(job, batch, pinned=pinned)]
    made = {each: sizes for each in near if (sizes := _tried(trials, each.build))}
    if not made:
        return apart(job, batch)
    found = list(map(max, zip(*made.values(), strict=True)))
    ways = (*OTHERS, *(AWAY if _away(job) else ()), *(OF_EXPERTS if job.model.n_expert else ()))
    for each in _changed(made, found, all_known=_away(job)):
        for way in ways:
            other = _tried(trials, replace(each.build, way=way))
            found = list(map(max, found, other or found))
    missing = min(each.missing for each in made)
    room = ALIVE * missing * batch.n_tokens * F32_SIZE * job.placement.sched_copies
    brought = [_brought(job)] * job.placement.n_gpu + [0]
    return [
        _roomy(job, batch, n + room + more) if n else 0
        for n, more in zip(found, brought, strict=True)
    ]


def _brought(job: Job) -> int:
    """Bytes of the smaller side of a layer's cache where latent attention reads it from the host:
    its copy may find no gap, and the graphs of latent attention are too few to show that."""
    if job.context.offload_kqv or not job.model.n_lora_kv:
        return 0
    found = 0
    for cache in job.caches:
        if cache.kind != "kv":
            continue
        for k_row, v_row in zip(cache.k_row, cache.v_row, strict=True):
            sides = ((k_row, cache.type_k), (v_row, cache.type_v))
            sizes = [kind_named(kind).row_bytes(row) for row, kind in sides if row]
            found = max(found, min(sizes, default=0) * cache.cells * cache.streams)
    return found


def _reserved(job: Job, batch: Batch, *, pinned: bool) -> list[Batch]:
    """The batches that are really reserved: with caches on the host that of one token per sequence
    may be the larger one (see `reserve.reserved`)."""
    context = job.context
    if not (pinned and _away(job) and context.op_offload):
        return [batch]
    return [batch, Batch(context.n_seq_max, context.n_seq_max, context.n_seq_max)]


def _away(job: Job) -> bool:
    """Whether GPUs read what lies on the host, so that copies of all sizes come and go."""
    return bool(job.placement.n_gpu) and (
        not job.context.offload_kqv or HOST in job.placement.layers
    )


def _tried(trials: Sequence[Trial], build: Borrowed) -> list[int]:
    """Bytes per backend of the largest batch; empty when the model has no such graph."""
    found = [sizes for trial in trials if (sizes := trial.sizes(build)) is not None]
    return list(map(max, zip(*found, strict=True)))


def _changed(made: Mapping[Near, list[int]], found: list[int], *, all_known: bool) -> list[Near]:
    """The graphs that are tried in other ways as well: as few as are needed to have one that takes
    most on each backend, or all but the composed ones (which differ little)."""
    chosen = [each for each in made if all_known and not each.composed]
    for backend, most in enumerate(found):
        if all(made[each][backend] != most for each in chosen):
            chosen.append(next(each for each, sizes in made.items() if sizes[backend] == most))
    return chosen


def apart(job: Job, batch: Batch) -> list[int]:
    """The same where no graph is near, or none can be made."""
    return [size + size // STRANGE for size in closed(job, batch)]


def _roomy(job: Job, batch: Batch, size: int) -> int:
    """Room for more of the residual stream, as far as the figure stays close."""
    stream = STREAMS * job.model.n_embd * batch.n_tokens * F32_SIZE
    return size + min(stream, max(size * MARGIN // 1000, SMALL))
