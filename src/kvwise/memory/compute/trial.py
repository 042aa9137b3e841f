"""Bytes that a borrowed graph would take, kept per layout: built once for all contexts.

The planner asks for thousands of contexts of a model whose graph is not known, and an estimate
tries several graphs for each; as with a known graph, cells vary (`growing.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from kvwise.gguf.model import Model
from kvwise.memory.compute.affine import Variable
from kvwise.memory.compute.backend import Backend
from kvwise.memory.compute.builder import Batch
from kvwise.memory.compute.curve import Curve
from kvwise.memory.compute.growing import cells_of, growing, varied
from kvwise.memory.compute.nearest import attempt
from kvwise.memory.compute.reserve import Job, graph_of, sizes, taped
from kvwise.memory.compute.ways import Borrowed, Unchanged
from kvwise.memory.context import CELLS, Context
from kvwise.memory.placement import Placement

KEPT = 128
"""Layouts whose graphs are remembered."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """All that the bytes of a borrowed graph depend on, but for the length of the context."""

    model: Model
    context: Context
    placement: Placement
    where: tuple[tuple[str, int], ...]
    backends: tuple[Backend, ...]
    batch: Batch
    cells: tuple[int | None, ...]
    pinned: bool


@dataclass(frozen=True, slots=True)
class _Grown:
    """The bytes of one graph, for a range of lengths."""

    variable: Variable
    curve: Curve


@dataclass(slots=True)
class _Kept:
    """What is known of each graph of a layout; `fixed` ones are built for each length anew."""

    grown: dict[Borrowed, list[_Grown]] = field(default_factory=dict)
    fixed: set[Borrowed] = field(default_factory=set)
    failed: set[Borrowed] = field(default_factory=set)


class Trial:
    """One job, to be tried with other architectures' graphs."""

    def __init__(self, job: Job, batch: Batch, *, pinned: bool) -> None:
        self._job = job
        self._batch = batch
        self._pinned = pinned
        self._blocks = growing(job.context, job.caches) // CELLS
        self._kept = _kept(
            _Layout(
                job.model,
                replace(job.context, n_ctx=0, n_ctx_seq=0),
                job.placement,
                tuple(job.weights.where.items()),
                job.backends,
                batch,
                cells_of(job.context, job.caches),
                pinned,
            )
        )

    def sizes(self, build: Borrowed) -> list[int] | None:
        """Bytes per backend, the processor last; None when the model has no such graph."""
        kept, blocks = self._kept, self._blocks
        if build in kept.failed:
            return None
        for known in kept.grown.get(build, ()):
            if known.variable.admits(blocks):
                return list(known.curve.at(blocks))
        if build not in kept.fixed:
            made = self._grow(build)
            if made is not None:
                kept.grown.setdefault(build, []).append(made)
                return list(made.curve.at(blocks))
            if build in kept.failed:
                return None
        graph = attempt(self._job, build, self._batch)
        if graph is None:
            kept.failed.add(build)
            return None
        kept.fixed.add(build)
        return sizes(self._job, graph, pinned=self._pinned)

    def _grow(self, build: Borrowed) -> _Grown | None:
        """The graph with cells that vary; None when it cannot be built so, or not at all."""
        variable = Variable(self._blocks)
        work = varied(self._job, variable)
        try:
            graph = graph_of(work, build, self._batch)
        except Unchanged:
            self._kept.failed.add(build)
            return None
        except Exception:  # noqa: BLE001  (as in `attempt`)
            return None
        try:
            return _Grown(variable, Curve(taped(work, graph, pinned=self._pinned)))
        except Exception:  # noqa: BLE001  (whatever cannot handle numbers that vary)
            return None


@lru_cache(maxsize=KEPT)
def _kept(of: _Layout) -> _Kept:  # noqa: ARG001  (the key)
    return _Kept()
