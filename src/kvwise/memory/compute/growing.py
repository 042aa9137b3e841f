"""Reservations that hold for any context: a layout's graphs are built once, with cells that vary.

A context of another length has the same graph with other numbers of cells, up to the
comparisons that depend on them (windows, a sparse attention's choice): `affine.py` keeps track.
DeepSeek V4 keeps no cache as long as the context; its compressed keys are what grows there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from kvwise.gguf.model import Model
from kvwise.memory.backends import BackendKind
from kvwise.memory.compute.affine import UNKNOWN, Variable
from kvwise.memory.compute.builder import Batch, Unbuildable
from kvwise.memory.compute.curve import Curve
from kvwise.memory.compute.reserve import Job, batch, build, reserved, taped
from kvwise.memory.context import CELLS, Context
from kvwise.memory.ledger import Cache
from kvwise.memory.placement import Placement

Mode = Literal["reserved", "no-alloc"]

COMPRESSED = "csa"
"""The cache whose cells grow where none has as many as the context."""

KEPT = 128
"""Layouts whose reservations are remembered."""


@dataclass(frozen=True, slots=True)
class Layout:
    """All that a reservation depends on, but for the length of the context.

    `context` is without lengths; `cells` are those of each cache, None where they grow.
    """

    model: Model
    context: Context
    placement: Placement
    kinds: tuple[BackendKind, ...]
    weights: tuple[object, ...]
    mode: Mode
    batch: Batch
    cells: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a context reserves: a curve for each graph, and the first graph's size.

    `types` of K and V, where rows of a cache take memory in its own quantized type, so that it
    holds for no other: DeepSeek V4 puts rows of two caches together, and a layer that reads the
    cache of a layer on another device has a copy of it.
    """

    variable: Variable
    curves: tuple[Curve, ...]
    n_nodes: int
    n_leafs: int
    types: tuple[str, str] | None

    def at(self, blocks: int) -> list[int]:
        """Bytes per backend, the processor last; each is what the largest graph needs."""
        first, *rest = (curve.at(blocks) for curve in self.curves)
        return [max(sizes) for sizes in zip(first, *rest, strict=True)]


@dataclass(slots=True)
class _Kept:
    """Reservations of one layout, each for its own range of lengths."""

    found: list[Reservation]
    varies: bool = True


def layout(  # noqa: PLR0917  (all that a reservation depends on)
    model: Model,
    context: Context,
    placement: Placement,
    caches: tuple[Cache, ...],
    kinds: tuple[BackendKind, ...],
    weights: tuple[object, ...],
    mode: Mode,
) -> Layout:
    """The layout of a context; `weights` are the settings that decide where weights lie."""
    return Layout(
        model,
        replace(context, n_ctx=0, n_ctx_seq=0, paired=context.paired.without_lengths),
        placement,
        kinds,
        weights,
        mode,
        batch(model, context),
        cells_of(context, caches),
    )


def cells_of(context: Context, caches: tuple[Cache, ...]) -> tuple[int | None, ...]:
    """Cells of each cache, None where they grow with the context."""
    length = growing(context, caches)
    return tuple(_cells(cache, length) for cache in caches)


def _cells(cache: Cache, length: int) -> int | None:
    """None where they grow; 0 for a cache that no layer has, whose cells do not matter."""
    if not cache.layers:
        return 0
    return None if cache.cells == length else cache.cells


def growing(context: Context, caches: tuple[Cache, ...]) -> int:
    """The cells that grow with the context: all of them, or those of DeepSeek V4's keys."""
    return next((c.cells for c in caches if c.role == COMPRESSED), context.n_ctx_seq)


def reservation(
    of: Layout, blocks: int, types: tuple[str, str], make: Callable[[], Job]
) -> Reservation:
    """What a context of so many blocks of growing cells reserves, with K and V of these types (the
    layout's context may show one that stands for several); `make` gathers its job. Raises
    Unbuildable, or what the graph of an odd model raises."""
    kept = _kept(of)
    for known in kept.found:
        if known.types in {None, types} and known.variable.admits(blocks):
            return known
    work = make()
    if kept.varies:
        variable = Variable(blocks)
        try:
            made = _reserve(varied(work, variable), of, variable)
        except Unbuildable:
            raise
        except Exception:  # noqa: BLE001  (whatever cannot handle numbers that vary)
            kept.varies = False
        else:
            kept.found.append(made)
            return made
    fixed = Variable(blocks)
    fixed.low = fixed.high = blocks
    return _reserve(work, of, fixed)


@lru_cache(maxsize=KEPT)
def _kept(of: Layout) -> _Kept:  # noqa: ARG001  (the key)
    return _Kept([])


def _reserve(work: Job, of: Layout, variable: Variable) -> Reservation:
    graph = build(work, of.batch)
    pinned = of.mode == "reserved"
    tapes = reserved(work, graph) if pinned else (taped(work, graph, pinned=False),)
    curves = tuple(Curve(tape) for tape in tapes)
    types = (
        (work.context.type_k, work.context.type_v) if any(tape.typed for tape in tapes) else None
    )
    return Reservation(variable, curves, len(graph.nodes), len(graph.leafs), types)


def varied(work: Job, variable: Variable) -> Job:
    """The same job with cells that vary; what else follows from them is out of sight."""
    context = work.context
    whole = growing(context, work.caches)
    if whole == context.n_ctx_seq:
        streams = context.n_ctx // whole
        lengths = (variable.times(CELLS * streams), variable.times(CELLS))
    else:
        lengths = (UNKNOWN, UNKNOWN)  # several lengths have as many compressed keys
    grown = replace(context, n_ctx=lengths[0], n_ctx_seq=lengths[1])
    caches = tuple(
        replace(
            cache,
            cells=_varied_cells(cache, whole, variable),
            k_bytes=UNKNOWN,
            v_bytes=UNKNOWN,
            by_device={},
            reason=None,
        )
        for cache in work.caches
    )
    return replace(work, context=grown, caches=caches)


def _varied_cells(cache: Cache, whole: int, variable: Variable) -> int:
    fixed = _cells(cache, whole)
    if fixed is None:
        return variable.times(CELLS)
    return fixed or UNKNOWN
