"""What a target lends to its draft: weights, and the caches of its last layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.memory.made import Made
from kvwise.memory.paired import LENDABLE, Lent, LentCache
from kvwise.memory.placement import HOST


def lent(target: Made, devices: Sequence[Device]) -> Iterator[Lent]:
    """The target's weights that a draft may run on, where its devices reach them; `devices` are the
    draft's."""
    theirs = target.model.header.by_name
    for name in LENDABLE:
        device = target.weights.where.get(name)
        row = theirs.get(name) or (theirs.get(LENDABLE[0]) if name == LENDABLE[1] else None)
        if device is None or row is None:
            continue
        place = _seat_of(target, device, devices)
        if place is not None:
            yield Lent(name, row, place)


def lent_caches(target: Made, draft: Model, devices: Sequence[Device]) -> Iterator[LentCache]:
    """The target's caches that the draft's layers read: those of its last two layers, the windowed
    and the full one. Source: src/llama-model.cpp create_memory (share)."""
    model, last = target.model, target.model.n_layer
    for windowed, shared in ((False, last - 1), (True, last - 2)):
        layers = tuple(il for il in range(draft.n_layer_all) if draft.is_swa(il) is windowed)
        owner = shared if model.has_kv(shared) else model.n_layer_kv_from_start - 1 - windowed
        for cache in target.caches:
            if not layers or owner not in cache.layers:
                continue
            where = target.placement.layers[owner] if target.context.offload_kqv else HOST
            place = _seat_of(target, where, devices)
            if place is not None:
                index = cache.layers.index(owner)
                yield LentCache(
                    role=cache.role,
                    layers=layers,
                    cells=cache.cells,
                    streams=cache.streams,
                    types=(cache.type_k, cache.type_v),
                    rows=(cache.k_row[index], cache.v_row[index]),
                    device=place,
                )


def _seat_of(target: Made, number: int, devices: Sequence[Device]) -> int | None:
    """The number that a device of the target's has among the draft's, None if it has none."""
    if number == HOST:
        return HOST
    device = target.devices[number]
    return list(devices).index(device) if device in devices else None
