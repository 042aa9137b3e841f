"""Bytes of weights in each buffer of each device, and where each tensor went.

llama.cpp makes one buffer per buffer type; `loader` says which weight belongs in which. A buffer
is the sum of its weights, each aligned; or, when the file is mapped and the device can read the
mapping in place, the span of the file from its first weight to its last, per shard.

Source: src/llama-model.cpp load_tensors, src/llama-model-loader.cpp get_mapping_range, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from kvwise import builds
from kvwise.device import Device, Host
from kvwise.errors import UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory import repack
from kvwise.memory.backends import kind_of
from kvwise.memory.loader import CPU, Load, Rules, Shelf, Spot, rope_layers, shelf
from kvwise.memory.patterns import compiled
from kvwise.memory.placement import HOST, Placement, buffer_name, override_names


@dataclass(frozen=True)
class Weights:
    """Bytes per buffer.

    `mapped` are the spots whose bytes are spans of the file itself, one per shard (the engine
    prints them as `CPU_Mapped`); `counts` the tensors in each; `skipped` the tensors that are
    not loaded. `idle`: of a mapped span what no weight is read in place from; the system takes such
    pages back when it needs memory, because the file still has them.
    """

    by_spot: dict[Spot, int]
    mapped: dict[Spot, tuple[int, ...]]
    counts: dict[Spot, int]
    skipped: tuple[str, ...] = ()
    idle: dict[Spot, int] = field(default_factory=dict)
    loads: tuple[Load, ...] = field(default=(), repr=False, compare=False)

    @cached_property
    def where(self) -> dict[str, int]:
        """Device number of each loaded tensor. A tied output is under `output.weight`; RoPE
        factors, which every device of a layer has, under the last of them."""
        return {slot: load.spot.device for load in self.loads for slot in load.slots}

    @cached_property
    def largest(self) -> dict[int, int]:
        """Device number -> bytes of its largest weight."""
        found: dict[int, int] = {}
        for load in self.loads:
            device = load.spot.device
            found[device] = max(found.get(device, 0), load.largest)
        return found

    def on(self, device: int) -> int:
        """Bytes on one device."""
        return sum(size for spot, size in self.by_spot.items() if spot.device == device)

    def count_on(self, device: int) -> int:
        """Tensors on one device."""
        return sum(count for spot, count in self.counts.items() if spot.device == device)


@dataclass(slots=True)
class _Heap:
    """One buffer while it is filled."""

    size: int = 0
    count: int = 0
    names: set[str] = field(default_factory=set)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)


def weigh(
    model: Model,
    launch: Launch,
    placement: Placement,
    devices: Sequence[Device],
    host: Host | None = None,
) -> Weights:
    """Place every weight; `devices` are those that `placement.select` chose.

    Raises UsageError for an override that is no pattern or names no buffer, Refused when the
    file lacks a matrix that the architecture needs.
    """
    features = tuple(host.cpu_features) if host and host.cpu_features else repack.ASSUMED
    fused_left = builds.has(builds.number(launch.build), builds.FUSED_EXPERTS_LEFT)
    rules = _rules(
        tuple(devices),
        (launch.override_tensor, max(0, min(launch.n_cpu_moe, model.n_layer_all))),
        features if launch.repack else (),
        (launch.mmap, launch.load_mtp, fused_left),
    )
    return _weigh(shelf(model, rules), placement.layers, placement.output)


@lru_cache(maxsize=256)
def _rules(
    devices: tuple[Device, ...],
    overrides: tuple[tuple[tuple[str, str], ...], int],
    features: tuple[str, ...],
    load: tuple[bool, bool, bool],
) -> Rules:
    kinds = tuple(kind_of(device) for device in devices)
    names = tuple(buffer_name(device) for device in devices)
    asked, n_cpu_moe = overrides
    known = dict(zip((*override_names(devices), *names), (*names, *names), strict=True))
    rows = [(compiled(text), _target(target, names, known)) for text, target in asked]
    return Rules(
        kinds=kinds,
        names=names,
        pinned=next((number for number, kind in enumerate(kinds) if kind.host_buffer), HOST),
        features=features,
        mmap=load[0],
        load_mtp=load[1],
        fused_left=load[2],
        n_cpu_moe=n_cpu_moe,
        overrides=tuple(rows),
    )


@lru_cache(maxsize=256)
def _weigh(stock: Shelf, layers: tuple[int, ...], output: int) -> Weights:
    heaps: dict[Spot, _Heap] = {}
    kept = [load for load in _all_loads(stock, layers, output) if _put(heaps, load)]
    mapped = {
        spot: tuple(last - first for first, last in heap.spans.values())
        for spot, heap in heaps.items()
        if stock.rules.mmap and _maps(spot, stock.rules)
    }
    by_spot = {
        spot: sum(mapped[spot]) if spot in mapped else heap.size for spot, heap in heaps.items()
    }
    counts = {spot: heap.count for spot, heap in heaps.items()}
    idle = {spot: max(0, by_spot[spot] - heaps[spot].size) for spot in mapped}
    return Weights(by_spot, mapped, counts, stock.skipped, idle, tuple(kept))


def _all_loads(stock: Shelf, layers: tuple[int, ...], output: int) -> Iterator[Load]:
    yield from stock.settle(("input", -1), HOST)
    for layer, home in enumerate(layers):
        yield from stock.settle(("layer", layer), home)
    yield from stock.settle(("output", -1), output)
    if ("rope", -1) in stock.groups:
        for home in dict.fromkeys(layers[layer] for layer in rope_layers(stock.model)):
            yield from stock.settle(("rope", -1), home)


def _put(heaps: dict[Spot, _Heap], load: Load) -> bool:
    """Add a load to its buffer, unless it is there already."""
    heap = heaps.get(load.spot)
    if heap is None:
        heap = heaps[load.spot] = _Heap()
    if load.name:
        if load.shared and load.name in heap.names:
            return False
        heap.names.add(load.name)
    heap.size += load.size
    heap.count += len(load.slots)
    for shard, first, last in load.spans:
        old = heap.spans.get(shard)
        heap.spans[shard] = (min(first, old[0]), max(last, old[1])) if old else (first, last)
    return True


def _maps(spot: Spot, rules: Rules) -> bool:
    if spot.device == HOST:
        return spot.buffer == CPU
    return rules.kinds[spot.device].maps_host


def _target(name: str, names: tuple[str, ...], known: Mapping[str, str]) -> Spot | None:
    """Where an override puts what it hits; None = the host. `known`: its words -> buffer."""
    if name.upper() == CPU:
        return None
    if name in known:
        return Spot(names.index(known[name]), known[name])
    raise UsageError(
        "-ot names the buffer {name!r}, which is not there",
        hint="buffers here: {known}",
        name=name,
        known=", ".join(dict.fromkeys((CPU, *known))),
    )
