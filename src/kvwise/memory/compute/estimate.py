"""An upper estimate of the compute buffers for models whose graph is not known.

The model is tried with the graphs of the architectures that its weights fit best, and the
largest result counts, plus room for what those graphs leave out; a closed form where no graph
is near. Errs upwards.
"""

from __future__ import annotations

from collections.abc import Collection

from kvwise.memory.compute.builder import Batch
from kvwise.memory.compute.closed import closed
from kvwise.memory.compute.nearest import attempt, nearest
from kvwise.memory.compute.reserve import Job, sizes
from kvwise.units import MIB

F32_SIZE = 4
MARGIN = 19
SMALL = 4 * MIB
"""Thousandths and bytes by which a near graph's figure is raised, at most."""

STREAMS = 2
"""Copies of the residual stream that a near graph may lack: scales and sums have no weights."""

LONELY = 3
"""Kinds of near graphs up to which a mixture of experts gets all of that room: no weight shows
where scores go in and what is scaled, and so few graphs have not all the ways there are."""

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
    found: list[int] = []
    if not job.context.mtp:
        for near in nearest(job.model, frozenset(without)):
            graph = attempt(job, near.build, batch)
            if graph is None:
                continue
            room = ALIVE * near.missing * batch.n_tokens * F32_SIZE * job.placement.sched_copies
            whole = bool(job.model.n_expert) and near.kinds <= LONELY
            made = [
                _roomy(job, batch, n + room, whole=whole) if n else 0
                for n in sizes(job, graph, pinned=pinned)
            ]
            found = [max(pair) for pair in zip(made, found or made, strict=True)]
    return found or apart(job, batch)


def apart(job: Job, batch: Batch) -> list[int]:
    """The same where no graph is near, or none can be made."""
    return [size + size // STRANGE for size in closed(job, batch)]


def _roomy(job: Job, batch: Batch, size: int, *, whole: bool) -> int:
    """Room for more of the residual stream: `whole`, or as far as the figure stays close."""
    stream = STREAMS * job.model.n_embd * batch.n_tokens * F32_SIZE
    return size + (stream if whole else min(stream, max(size * MARGIN // 1000, SMALL)))
