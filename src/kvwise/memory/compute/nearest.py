"""Which known graphs are nearest to a model whose own graph is not known.

A graph is near when it can be built from the model's weights, reads and writes all its caches,
and leaves little of what is loaded unused. Often one leaves nothing unused: then the unknown
architecture differs from a known one in order or in scales at most. Where every known graph leaves
something unused one put together from the weights of each layer may not (`families/composed.py`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kvwise.device import Device
from kvwise.errors import KvwiseError
from kvwise.gguf.header import Tensor as Weight
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.cache import caches
from kvwise.memory.compute.builder import Batch
from kvwise.memory.compute.families import BUILDERS, Build
from kvwise.memory.compute.graph import Graph
from kvwise.memory.compute.reserve import Job, graph_of, job, sizes
from kvwise.memory.compute.unused import unused
from kvwise.memory.compute.ways import Borrowed
from kvwise.memory.context import resolve
from kvwise.memory.placement import place, select
from kvwise.units import GIB

PROBE = Launch(n_ctx=4096, n_batch=512)
_GPU = Device("probe", "cuda", total_bytes=64 * GIB, free_bytes=64 * GIB)

ALL_ROWS, ONE_ROW = Batch(512, 1, 512), Batch(512, 1, 1)
"""A batch that asks for the logits of all its tokens, and one that asks for a single row."""

FIRST = 12
"""Layers that are compared of many kinds of graphs, half of them on each of two GPUs: the patterns
of layers repeat within them."""

ODD = frozenset({"bitnet", "chameleon", "dflash", "eagle3"})
"""Architectures whose graph has parts that no weight shows: nothing else is like them. BitNet
multiplies by the embeddings where they are looked up, on the host; drafts hand out all rows."""

FAR = 0.3
"""Part of what the widest layer makes above which a graph that leaves it unused is not near."""

OTHERS = 2
"""Weights that a graph may leave unused more than the nearest one does."""

FEW = 8
"""Kinds of near graphs up to which all are tried; of more only those that are largest where graphs
are compared (tried are then no more than are worth the time)."""

SHARE = 0.0
"""Part of the near graphs that may be larger than the chosen one: they have extras of their own."""

LAYER = re.compile(r"^(?:[a-z]+\.)?[a-z]+\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Near:
    """A known graph, and the weights that it leaves unused."""

    architecture: str
    unused: tuple[str, ...]
    build: Borrowed = field(compare=False)

    @property
    def composed(self) -> bool:
        """Whether it was put together from the weights of each layer."""
        return self.architecture.startswith("(")

    @property
    def picks_late(self) -> bool:
        """Whether it was put together so that rows are picked after the last norm."""
        from kvwise.memory.compute.families import composed  # noqa: PLC0415  (rarely needed)

        return self.composed and composed.picks_late(self.build.build)


@dataclass(frozen=True, slots=True)
class _Fit:
    """How well a graph fits: width of what it leaves unused without norms, which weights those are,
    its operations."""

    missing: int
    unused: tuple[str, ...]
    kind: int
    build: Borrowed

    @property
    def count(self) -> int:
        """How many weights are left unused."""
        return len(self.unused)


@lru_cache(maxsize=64)
def nearest(model: Model, without: Collection[str] = ()) -> tuple[Near, ...]:
    """The nearest graphs, one of each kind, or those that are the largest somewhere when there are
    many; none when no graph is near.

    `without`: architectures that are not to be used (tests leave the model's own out).
    """
    try:
        work = _work(model, PROBE, ())
    except KvwiseError:
        return ()
    from kvwise.memory.compute.families import composed  # noqa: PLC0415  (rarely needed)

    known = {name: Borrowed(BUILDERS[name]) for name in BUILDERS if name not in {*without, *ODD}}
    near = _fits(work, known)
    best = min(((fit.missing, fit.count) for fit in near.values()), default=None)
    if best is None or any(best) or model.is_mla:  # graphs of latent attention are few and unlike
        near |= _fits(work, {name: Borrowed(row) for name, row in composed.rows(without).items()})
        best = min(((fit.missing, fit.count) for fit in near.values()), default=None)
    if best is None or best[0] > FAR * width_of(model, work.weights.where):
        return ()
    groups: dict[int, list[str]] = defaultdict(list)
    for name, fit in near.items():
        if fit.missing == best[0] and fit.count <= best[1] + OTHERS:
            groups[fit.kind].append(name)
    composed_only = all(name.startswith("(") for group in groups.values() for name in group)
    chosen = [group[0] for group in groups.values()]
    if len(groups) > FEW or composed_only:
        rows = [[(name, near[name].build) for name in group] for group in groups.values()]
        chosen = _largest(model, rows)
    return tuple(Near(name, near[name].unused, near[name].build) for name in chosen)


def _fits(work: Job, builds: Mapping[str, Borrowed]) -> dict[str, _Fit]:
    """Those that the model has a graph of, with all of its caches."""
    found: dict[str, _Fit] = {}
    for name, build in builds.items():
        graph = attempt(work, build, ALL_ROWS)
        if graph is not None and _uses_caches(work, graph):
            left = unused(work.model, work.weights, graph, logits=True)
            kind = hash(tuple(node.op for node in graph.nodes))
            found[name] = _Fit(width_of(work.model, left), tuple(left), kind, build)
    return found


def _largest(model: Model, groups: list[list[tuple[str, Borrowed]]]) -> list[str]:
    """For each probe and backend the architecture whose graph is largest, but for a few outliers.

    The architectures of a group have graphs of the same operations. Where there are none but
    composed ones, all of them count.
    """
    names = [name for group in groups for name, _ in group]
    if all(name.startswith("(") for name in names):
        return names
    chosen: dict[str, None] = {}
    for launch, devices, probe in _probes(model):
        try:
            work = _work(model, launch, devices)
        except KvwiseError:
            continue
        found: list[tuple[list[int], str]] = []
        for group in groups:
            name, build = group[0]
            graph = attempt(work, replace(build, layers=FIRST), probe)
            if graph is not None:
                found += [(sizes(work, graph, pinned=False), name)] * len(group)
        for backend in range(len(work.backends)):
            found.sort(key=lambda row, backend=backend: -row[0][backend])  # type: ignore[misc]
            if found:
                chosen[found[int(SHARE * len(found))][1]] = None
    return list(chosen)


def _probes(model: Model) -> tuple[tuple[Launch, tuple[Device, ...], Batch], ...]:
    """Where graphs are compared: on the processor, where logits are large and where they are not;
    on two GPUs, where copies of what they hand on count; with the cache on the host."""
    here = min(FIRST, model.n_layer) // 2
    two = replace(PROBE, tensor_split=(here, model.n_layer_all + 1 - here))
    return (
        (PROBE, (), ALL_ROWS),
        (PROBE, (), ONE_ROW),
        (two, (_GPU, _GPU), ONE_ROW),
        (replace(PROBE, offload_kqv=False, flash_attn="off"), (_GPU,), ONE_ROW),
    )


def _work(model: Model, launch: Launch, devices: tuple[Device, ...]) -> Job:
    chosen = select(launch, devices)
    placement = place(model, launch, chosen)
    context = resolve(model, launch, placement, chosen)
    kept = caches(model, context, placement, chosen)
    return job(model, context, placement, kept, launch, chosen)


def attempt(work: Job, build: Build, batch: Batch) -> Graph | None:
    """The graph of another architecture for this model; None when the model has no such graph."""
    try:
        return graph_of(work, build, batch)
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


def width_of(model: Model, names: Iterable[str], *, norms: bool = False) -> int:
    """Elements per token that weights make, in the layer where they make the most.

    `norms`: those of one row too, which make a result as wide as they are.
    """
    made: dict[str, int] = defaultdict(int)
    table = model.header.by_name
    for name in names:
        row = table.get(name)
        if row is None:  # a second copy of a tied matrix
            continue
        layer = LAYER.match(name)
        made[layer[0] if layer else name] += result_width(row, model, looked_up=layer is None)
        if norms and len(row.shape) == 1 and name.endswith(".weight"):
            made[layer[0] if layer else name] += row.shape[0]
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
