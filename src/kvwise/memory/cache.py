"""KV and state bytes of a context, cache by cache and device by device.

Each cache is one tensor per layer and side, on its layer's device (on the host with
`--no-kv-offload`). Source: src/llama-kv-cache*.cpp, src/llama-memory-recurrent.cpp, b10605.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from kvwise import builds
from kvwise.arch.layout import layout
from kvwise.arch.store import CompressorStore, KVStore, StateStore
from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.gguf.types import F32, GGMLType, by_name
from kvwise.launch import ZOO_BUILD
from kvwise.memory import cache_reason as reason
from kvwise.memory.backends import kind_of, tensor_size
from kvwise.memory.context import CELLS, Context
from kvwise.memory.ledger import Cache
from kvwise.memory.placement import HOST, Placement
from kvwise.units import pad


def caches(
    model: Model,
    context: Context,
    placement: Placement,
    devices: Sequence[Device],
    build: str = ZOO_BUILD,
) -> tuple[Cache, ...]:
    """The caches of a context in llama.cpp's order, each with its bytes and its reason.

    `by_device` of a cache counts what the device's buffer really takes: alignment and row
    padding included. `build` picks the rules of that build.
    """
    plan = layout(model, context.mtp, builds.number(build))
    place = _Place(context, placement, devices)
    made: list[Cache] = []
    for store in plan:
        if isinstance(store, KVStore):
            made.append(_kv(store, context, place))
        elif isinstance(store, StateStore):
            made.append(_state(store, context, place))
        else:
            made.append(_compressor(store, context, place))
    return tuple(made)


def cells(store: KVStore, context: Context) -> int:
    """Cells per stream of one cache."""
    whole = context.n_ctx_seq
    if store.ratio > 1:
        return pad(max(1, -(-whole // store.ratio)), CELLS)
    if not store.windowed or context.swa_full:
        return whole
    together = context.n_seq_max if context.kv_unified and not store.per_sequence else 1
    return pad(min(whole, store.n_swa * together + context.n_ubatch), CELLS)


def bytes_for_tokens(
    model: Model, tokens: int, type_k: str, type_v: str, build: str = ZOO_BUILD
) -> int:
    """Bytes that `tokens` more of context take in one sequence, beyond all windows.

    Padding left out: with `tokens` 1 this is the size per token that people quote.
    """
    total = 0
    for store in layout(model, build=builds.number(build)):
        if isinstance(store, KVStore) and not store.windowed:
            k = _stored(store.layers, _type(type_k), store.k_row, tokens)
            v = _stored(store.layers, _type(type_v), store.v_row, tokens)
            total += (k + v) // store.ratio
    return total


class _Place:
    """Adds up tensors on the devices of their layers."""

    def __init__(self, context: Context, placement: Placement, devices: Sequence[Device]) -> None:
        self.where = placement.layers if context.offload_kqv else None
        self.devices = devices

    def add_up(
        self, layers: tuple[int, ...], sides: Iterable[tuple[GGMLType, tuple[int, ...], int]]
    ) -> dict[int, int]:
        """Device -> bytes. A side is (type, elements per row of each layer, rows)."""
        total: dict[int, int] = {}
        for element, row_of_layer, rows in sides:
            for device, row, count in _groups(layers, self.where, row_of_layer):
                kind = None if device == HOST else kind_of(self.devices[device])
                one = tensor_size(kind, element, row, element.row_bytes(row) * rows)
                total[device] = total.get(device, 0) + one * count
        return {device: size for device, size in sorted(total.items()) if size}


@lru_cache(maxsize=256)
def _groups(
    layers: tuple[int, ...], where: tuple[int, ...] | None, rows: tuple[int, ...]
) -> tuple[tuple[int, int, int], ...]:
    """Layers of the same device and row, counted: (device, row, count). No `where` = the host."""
    devices = [HOST if where is None else where[il] for il in layers]
    counted = Counter(zip(devices, rows, strict=True))
    return tuple((device, row, count) for (device, row), count in counted.items())


def _stored(layers: tuple[int, ...], element: GGMLType, row: tuple[int, ...], rows: int) -> int:
    """Bytes of one side of all layers, without alignment."""
    groups = _groups(layers, None, row)
    return sum(element.row_bytes(one) * count for _, one, count in groups) * rows


def _kv(store: KVStore, context: Context, place: _Place) -> Cache:
    type_k, type_v = _type(context.type_k), _type(context.type_v)
    n_cells = cells(store, context)
    streams = context.n_seq_max if store.per_sequence else context.n_stream
    rows = n_cells * streams
    v_row = store.v_row
    if context.v_trans and store.v_row_widest:
        v_row = (store.v_row_widest,) * len(store.layers)
    has_v = any(v_row)
    return Cache(
        role=store.role,
        kind="kv",
        cells=n_cells,
        streams=streams,
        layers=store.layers,
        type_k=context.type_k if store.layers else "",
        type_v=context.type_v if has_v else "",
        k_row=store.k_row,
        v_row=v_row,
        k_bytes=_stored(store.layers, type_k, store.k_row, rows),
        v_bytes=_stored(store.layers, type_v, v_row, rows),
        n_swa=store.n_swa,
        swa_type=store.swa_type,
        ratio=store.ratio,
        by_device=place.add_up(store.layers, ((type_k, store.k_row, rows), (type_v, v_row, rows))),
        reason=reason.kv(store, context, n_cells, streams),
    )


def _state(store: StateStore, context: Context, place: _Place) -> Cache:
    sequences = max(1, context.n_seq_max)
    rows = sequences * (1 + context.n_rs_seq)
    count = len(store.layers)
    return Cache(
        role=store.role,
        kind="recurrent",
        cells=sequences,
        streams=1,
        layers=store.layers,
        r_row=store.r_row if count else 0,
        s_row=store.s_row if count else 0,
        r_bytes=F32.row_bytes(store.r_row) * rows * count,
        s_bytes=F32.row_bytes(store.s_row) * rows * count,
        n_rs_seq=context.n_rs_seq,
        by_device=place.add_up(
            store.layers,
            ((F32, (store.r_row,) * count, rows), (F32, (store.s_row,) * count, rows)),
        ),
        reason=reason.state(context),
    )


def _compressor(store: CompressorStore, context: Context, place: _Place) -> Cache:
    planes = context.n_seq_max * (1 + context.n_rs_seq)
    rows = store.state_size * planes
    count = len(store.layers)
    size = F32.row_bytes(store.n_embd_state) * rows * count
    side = (F32, (store.n_embd_state,) * count, rows)
    return Cache(
        role=store.role,
        kind="dsv4_state",
        cells=context.n_seq_max,
        streams=context.n_seq_max,
        layers=store.layers,
        kv_bytes=size,
        score_bytes=size,
        ratio=store.ratio,
        state_size=store.state_size,
        n_embd_state=store.n_embd_state,
        n_rs_seq=context.n_rs_seq,
        by_device=place.add_up(store.layers, (side, side)),
        reason=reason.compressor(store, context),
    )


def _type(name: str) -> GGMLType:
    element = by_name(name)
    if element is None:
        raise ValueError(name)
    return element
