"""An upper estimate of the compute buffers for models whose graph is not known.

The model is tried with the graphs of the architectures that its weights fit best, and the
largest result counts, plus room for what those graphs leave out; a closed form where no graph
is near. Errs upwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kvwise.memory.compute.builder import Batch
from kvwise.memory.compute.closed import cells_of, form
from kvwise.memory.compute.nearest import Near, nearest
from kvwise.memory.compute.reserve import Job
from kvwise.memory.compute.room import for_latent, for_streams, for_unused
from kvwise.memory.compute.trial import Trial
from kvwise.memory.compute.ways import Borrowed, away, converted, ways_of

STRANGE = 2
"""A closed form is raised by one part of so many: what no graph is near to has parts of its own.

This, the figures of `room.py` and `nearest.SHARE` were chosen by leaving out one architecture
after the other, with all that are made the same way (benchmarks/estimate.py, docs/estimates.md).
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
    far = away(job)
    gaps = far or converted(job)
    for each in _changed(made, all_known=far, by_rows=gaps):
        for way in ways_of(job.model, gaps=gaps):
            other = _tried(trials, replace(each.build, way=way))
            found = list(map(max, found, other or found))
    left = [for_unused(job, each.unused, batch) for each in made]
    room = _room(job, left)
    raised = map(sum, zip(found, room, for_latent(job), strict=True))
    return [
        more + for_streams(job, batch, more) if size or some else 0
        for size, some, more in zip(found, room, raised, strict=True)
    ]


def _room(job: Job, left: Sequence[Sequence[int]]) -> list[int]:
    """Bytes per backend for weights that a graph leaves out: as few as a graph needs, but where a
    card has no layer: of the norm and the output, which are all that it has, graphs show least."""
    homes = set(job.placement.layers)
    return [
        (min if backend in homes or backend == job.placement.n_gpu else max)(sizes)
        for backend, sizes in enumerate(zip(*left, strict=True))
    ]


def _reserved(job: Job, batch: Batch, *, pinned: bool) -> list[Batch]:
    """The batches that are really reserved: with caches on the host that of one token per sequence
    may be the larger one (see `reserve.reserved`)."""
    context = job.context
    if not (pinned and away(job) and context.op_offload):
        return [batch]
    return [batch, Batch(context.n_seq_max, context.n_seq_max, context.n_seq_max)]


def _tried(trials: Sequence[Trial], build: Borrowed) -> list[int]:
    """Bytes per backend of the largest batch; empty when the model has no such graph."""
    found = [sizes for trial in trials if (sizes := trial.sizes(build)) is not None]
    return list(map(max, zip(*found, strict=True)))


def _changed(made: Mapping[Near, list[int]], *, all_known: bool, by_rows: bool) -> list[Near]:
    """The graphs that are tried in other ways as well: as few as are needed to have one that takes
    most on each backend, or all but the composed ones, which differ little. `by_rows`: of those
    that pick rows late and of the others as many each.
    """
    chosen = [each for each in made if all_known and not each.composed]
    sorts: dict[bool, dict[Near, list[int]]] = defaultdict(dict)
    for each, sizes in made.items():
        sorts[by_rows and each.picks_late][each] = sizes
    for sort in sorts.values():
        for backend, most in enumerate(map(max, zip(*sort.values(), strict=True))):
            if all(made[each][backend] != most for each in chosen if each in sort):
                chosen.append(next(each for each, sizes in sort.items() if sizes[backend] == most))
    return chosen


def apart(job: Job, batch: Batch) -> list[int]:
    """The same where no graph is near, or none can be made: raised, but on a host that holds
    inputs only, which are known."""
    made = form(job)
    *gpus, host = made.at(batch, cells_of(job.caches))
    more = for_streams(job, batch, host) if made.idle_host else host // STRANGE
    return [*(size + size // STRANGE for size in gpus), host + more]
