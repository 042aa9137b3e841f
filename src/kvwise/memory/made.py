"""One model and its context, found in the engine's order: devices, layers, context, buffers.

The same steps make the target and, beside it, a draft.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvwise.device import Device, Host
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory import graph_limits
from kvwise.memory.backends import kind_of
from kvwise.memory.cache import caches
from kvwise.memory.compute import ComputeResult, compute
from kvwise.memory.context import Context, resolve
from kvwise.memory.ledger import Basis, Cache, Part
from kvwise.memory.loader import CPU, Spot
from kvwise.memory.output import output_buffer, output_bytes
from kvwise.memory.paired import ALONE, LentCache, Paired
from kvwise.memory.placement import HOST, Placement, buffer_name, place, select
from kvwise.memory.weights import Weights, weigh
from kvwise.text import phrase

ComputeMode = Literal["reserved", "no-alloc", "none"]
"""What a really allocating engine reserves; what its `--fit` pass and the zoo show; left out, for
a quick lower bound."""

_LEFT_OUT = ComputeResult({}, "estimated", phrase("compute buffers were left out"))


@dataclass(frozen=True, slots=True)
class Made:
    """Everything that was found for one launch."""

    model: Model
    launch: Launch
    context: Context
    placement: Placement
    devices: tuple[Device, ...]
    weights: Weights
    caches: tuple[Cache, ...]
    compute: ComputeResult

    @property
    def basis(self) -> dict[str, Basis]:
        return {"weights": "computed", "context": "computed", "compute": self.compute.basis}


def make(
    model: Model,
    launch: Launch,
    devices: Sequence[Device],
    host: Host | None,
    compute_mode: ComputeMode,
    *,
    paired: Callable[[Sequence[Device]], Paired] | None = None,
) -> Made:
    """`paired` says what the context does beside another one, given the devices it is on.

    Raises Refused when llama.cpp would refuse the setting, UsageError for a launch that names
    what is not there."""
    chosen = select(launch, devices)
    placement = place(model, launch, chosen, host)
    context = resolve(model, launch, placement, chosen)
    weights = weigh(model, launch, placement, chosen, host)
    kept = caches(model, context, placement, chosen, launch.build)
    work = _LEFT_OUT
    if compute_mode != "none":
        both = ALONE if paired is None else paired(chosen)
        shown = replace(context, paired=both if compute_mode == "reserved" else both.at_first)
        read = (*kept, *map(_lent, both.caches))
        work = compute(model, shown, placement, read, launch, chosen, mode=compute_mode)
        if work.n_nodes:
            n_tensors = sum(weights.counts.values())
            graph_limits.check_graph(model, shown, n_tensors, work.n_nodes, work.n_leafs)
    return Made(model, launch, context, placement, chosen, weights, kept, work)


def _lent(each: LentCache) -> Cache:
    """A cache of the target's as the draft's graph sees it."""
    return Cache(
        role=each.role,
        kind="kv",
        cells=each.cells,
        streams=each.streams,
        layers=each.layers,
        type_k=each.types[0],
        type_v=each.types[1],
        k_row=(each.rows[0],) * len(each.layers),
        v_row=(each.rows[1],) * len(each.layers),
    )


def parts(made: Made) -> dict[int, tuple[Part, ...]]:
    """The buffers of every device number, the device's own buffer first."""
    sizes: dict[Spot, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    own = {HOST: CPU} | {number: buffer_name(gpu) for number, gpu in enumerate(made.devices)}
    for number, name in own.items():
        sizes[Spot(number, name)]  # a line without bytes still has its buffer
    for spot, size in made.weights.by_spot.items():
        name = f"{spot.buffer}_Mapped" if spot in made.weights.mapped else spot.buffer
        sizes[Spot(spot.device, name)]["weights_bytes"] += size
    for cache in made.caches:
        for number, size in cache.by_device.items():
            sizes[Spot(number, own[number])]["context_bytes"] += size
    for number, size in made.compute.by_buffer.items():
        name = host_compute_buffer(made.devices) if number == HOST else own[number]
        sizes[Spot(number, name)]["compute_bytes"] += size
    output = Spot(HOST, output_buffer(made.placement, made.devices))
    sizes[output]["output_bytes"] += output_bytes(made.model, made.context)
    lines: dict[int, list[Part]] = {number: [] for number in own}
    for spot, values in sizes.items():
        lines[spot.device].append(Part(spot.buffer, **values))
    return {number: tuple(rows) for number, rows in lines.items()}


def host_compute_buffer(devices: Sequence[Device]) -> str:
    """Host compute memory is pinned where the first device offers it."""
    pinned = kind_of(devices[0]).host_buffer if devices else ""
    return pinned or CPU
