"""Which known graphs are nearest to a model whose own graph is not known.

A graph is near when it can be built from the model's weights, reads and writes all its caches,
and leaves little of what is loaded unused. Often one leaves nothing unused: then the unknown
architecture differs from a known one in order or in scales at most.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

from kvwise.errors import KvwiseError
from kvwise.gguf.header import Tensor as Weight
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.cache import caches
from kvwise.memory.compute.builder import Batch
from kvwise.memory.compute.families import BUILDERS
from kvwise.memory.compute.graph import Graph
from kvwise.memory.compute.reserve import Job, graph_of, job, sizes
from kvwise.memory.compute.unused import unused
from kvwise.memory.context import resolve
from kvwise.memory.placement import place

PROBE = Launch(n_ctx=4096, n_batch=512)
PROBES = (Batch(512, 1, 512), Batch(512, 1, 1))
"""Graphs are compared on the processor: once where logits are large, once where they are not."""

FAR = 0.5
"""Part of what the widest layer makes above which a graph that leaves it unused is not near."""

OTHERS = 2
"""Weights that a graph may leave unused more than the nearest one does."""

SHARE = 0.07
"""Part of the near graphs that may be larger than the chosen one: they have extras of their own."""

_LAYER = re.compile(r"^(?:[a-z]+\.)?[a-z]+\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Near:
    """A known architecture, and elements per token of the weights that its graph leaves unused."""

    architecture: str
    missing: int


@lru_cache(maxsize=64)
def nearest(model: Model, without: Collection[str] = ()) -> tuple[Near, ...]:
    """Up to two architectures whose graphs are nearest; none when no graph is near.

    `without`: architectures that are not to be used (tests leave the model's own out).
    """
    try:
        work = _work(model)
    except KvwiseError:
        return ()
    near: dict[str, tuple[int, int, int]] = {}
    for name in BUILDERS:
        graph = None if name in without else attempt(work, name, PROBES[0])
        if graph is not None and _uses_caches(work, graph):
            left = unused(model, work.weights, graph.weights, logits=True)
            kind = hash(tuple(node.op for node in graph.nodes))
            near[name] = (width_of(model, left), len(left), kind)
    if not near:
        return ()
    missing, count, _ = min(near.values())
    if missing > FAR * width_of(model, work.weights.where):
        return ()
    groups: dict[int, list[str]] = defaultdict(list)
    for name, (width, unlike, kind) in near.items():
        if width == missing and unlike <= count + OTHERS:
            groups[kind].append(name)
    return tuple(Near(name, missing) for name in _largest(work, list(groups.values())))


def _largest(work: Job, groups: list[list[str]]) -> list[str]:
    """For each probe the architecture whose graph is largest, but for a few outliers.

    The architectures of a group have graphs of the same operations.
    """
    chosen: dict[str, None] = {}
    for probe in PROBES:
        found: list[tuple[int, str]] = []
        for names in groups:
            graph = attempt(work, names[0], probe)
            if graph is not None:
                found += [(sizes(work, graph, pinned=False)[0], names[0])] * len(names)
        found.sort(key=lambda row: -row[0])
        if found:
            chosen[found[int(SHARE * len(found))][1]] = None
    return list(chosen)


def _work(model: Model) -> Job:
    placement = place(model, PROBE, ())
    context = resolve(model, PROBE, placement, ())
    kept = caches(model, context, placement, ())
    return job(model, context, placement, kept, PROBE, ())


def attempt(work: Job, name: str, batch: Batch) -> Graph | None:
    """The graph of another architecture for this model; None when the model has no such graph."""
    try:
        return graph_of(work, BUILDERS[name], batch)
    except Exception:  # noqa: BLE001  (a builder made for other models may fail in any way)
        return None


def _uses_caches(work: Job, graph: Graph) -> bool:
    """Every side of every cache of the model's own layers appears."""
    names = {leaf.name for leaf in graph.leafs if leaf.buffer >= 0 and not leaf.weight}
    wanted = 0
    for cache in work.caches:
        own = [layer for layer in cache.layers if layer < work.model.n_layer]
        if cache.kind == "kv":
            wanted += len(own) * (1 + any(cache.v_row))
        else:
            wanted += len(own)
    return len(names) >= wanted


def width_of(model: Model, names: Iterable[str]) -> int:
    """Elements per token that weights make, in the layer where they make the most."""
    made: dict[str, int] = defaultdict(int)
    table = model.header.by_name
    for name in names:
        row = table.get(name)
        if row is None:  # a second copy of a tied matrix
            continue
        layer = _LAYER.match(name)
        made[layer[0] if layer else name] += result_width(row, model, looked_up=layer is None)
    return max(made.values(), default=0)


def result_width(row: Weight, model: Model, *, looked_up: bool = False) -> int:
    """Elements per token that one weight makes; tables may be looked up instead of multiplied."""
    shape = row.shape
    if len(shape) < 2:
        return 0
    if len(shape) > 2 and shape[2] == model.n_expert:
        return shape[1] * max(model.n_expert_used, 1)
    if looked_up and row.name != "output.weight":
        return min(shape[0], shape[1])
    return shape[1] * (shape[2] if len(shape) > 2 else 1)
