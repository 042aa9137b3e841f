"""Writing K and V into their cache, and reading the whole cache back as views.

Source: src/llama-kv-cache.cpp cpy_k, cpy_v, get_k, get_v, build_input_*, b10605.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.gguf.types import BY_NAME, F16, F32, GGMLType
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, kind_named
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.ledger import Cache

I64 = BY_NAME["i64"]

ROTATION = 64
"""Smallest rotation of quantized caches, and the one of V."""


@dataclass(frozen=True, slots=True)
class KvInput:
    """Inputs of one cache: which rows to write, who sees whom, rotations of quantized types."""

    cache: Cache
    k_rows: Tensor
    v_rows: Tensor
    mask: Tensor
    k_rot: Tensor | None
    v_rot: Tensor | None


def kv_input(b: Builder, il: int) -> KvInput:
    """Inputs of the cache that holds layer `il` (one set per cache)."""
    cache = b.cache_of(il)
    key, n = cache.role, b.n_tokens
    v_rows = n * b.model.n_embd_v_gqa_max if b.context.v_trans else n
    return KvInput(
        cache,
        b.input(("k_rows", key), I64, n),
        b.input(("v_rows", key), I64, v_rows),
        mask_input(b, cache),
        _k_rotation(b, cache) if _rotates(b) else None,
        _v_rotation(b, cache) if _rotates(b) else None,
    )


def _rotates(b: Builder) -> bool:
    """Not where windows stand beside recurrent states (build_inp_mem_hybrid_iswa)."""
    return b.model.swa_type == "none" or all(cache.kind != "recurrent" for cache in b.caches)


def mask_input(b: Builder, cache: Cache) -> Tensor:
    """Who sees whom in a cache: f16 for flash attention, else f32."""
    kind = F16 if b.flash_attn else F32
    streams = min(cache.streams, b.n_seqs)
    return b.input(("mask", cache.role), kind, cache.cells, b.n_tokens // streams, 1, streams)


def _one_head_size(b: Builder, cache: Cache, sizes: tuple[int, ...]) -> int:
    """The head size of all layers of a cache, 0 if they differ."""
    counts = b.model.n_head_kv
    found = {size // counts[il] for il, size in zip(cache.layers, sizes, strict=True) if counts[il]}
    return found.pop() if len(found) == 1 else 0


def _k_rotation(b: Builder, cache: Cache) -> Tensor | None:
    """Present for a quantized K whose heads are all of one size; the size is a power of two."""
    if not kind_named(cache.type_k).quantized or b.model.n_embd_head_k() % ROTATION:
        return None
    head = _one_head_size(b, cache, cache.k_row)
    if not head:
        return None
    size = ROTATION
    while head % (size * 2) == 0:
        size *= 2
    return b.input(("k_rot", cache.role), F32, size, size)


def _v_rotation(b: Builder, cache: Cache) -> Tensor | None:
    if not kind_named(cache.type_v).quantized or b.model.n_embd_head_v() % ROTATION:
        return None
    if not _one_head_size(b, cache, cache.v_row):
        return None
    return b.input(("v_rot", cache.role), F32, ROTATION, ROTATION)


def _storage(b: Builder, side: str, il: int) -> Tensor:
    cache = b.cache_of(il)
    rows, kind = (cache.k_row, cache.type_k) if side == "k" else (cache.v_row, cache.type_v)
    row = rows[cache.layers.index(il)]
    return b.cache_tensor(side, il, kind_named(kind), (row, cache.cells, cache.streams, 1))


def write_k(b: Builder, k: Tensor, rows: Tensor, il: int) -> None:
    """Put K into its cache."""
    head, heads, n, _ = k.ne
    flat = ops.view_2d(k, head * heads, n, k.nb[2])
    b.expand(ops.set_rows(_all_streams(_storage(b, "k", il)), flat, rows))


def write_v(b: Builder, v: Tensor, rows: Tensor, il: int) -> None:
    """Put V into its cache; a transposed one is written element by element."""
    head, heads, n, _ = v.ne
    store = _storage(b, "v", il)
    if not b.context.v_trans:
        flat = ops.view_2d(v, head * heads, n, v.nb[2])
        b.expand(ops.set_rows(_all_streams(store), flat, rows))
        return
    width = head * heads
    whole = v.type.row_bytes(width) == v.nb[2]
    flat = ops.reshape(v, width, n) if whole else ops.cont(v, width, n)
    if width < store.ne[0]:
        flat = ops.pad(flat, store.ne[0] - width)
    singles = ops.reshape(store, 1, store.elements)
    b.expand(ops.set_rows(singles, ops.reshape(flat, 1, flat.elements), rows))


def _all_streams(store: Tensor) -> Tensor:
    width, cells, streams, _ = store.ne
    return store if streams == 1 else ops.reshape(store, width, cells * streams)


def read_k(b: Builder, il: int, *, owner: int | None = None) -> Tensor:
    """K of all cells: [head, heads, cells, streams]. `owner`: the layer whose cache it is."""
    store = _storage(b, "k", il if owner is None else owner)
    width, cells, streams, _ = store.ne
    kind = store.type
    head, heads = b.model.n_embd_head_k(il), b.model.n_head_kv[il]
    steps = (kind.row_bytes(head), kind.row_bytes(width), kind.row_bytes(width * cells))
    return ops.view(store, (head, heads, cells, streams), steps)


def read_v(b: Builder, il: int, *, owner: int | None = None) -> Tensor:
    """V of all cells; [cells, heads, head, streams] when it is stored transposed."""
    store = _storage(b, "v", il if owner is None else owner)
    width, cells, streams, _ = store.ne
    kind: GGMLType = store.type
    head, heads = b.model.n_embd_head_v(il), b.model.n_head_kv[il]
    if not b.context.v_trans:
        steps = (kind.row_bytes(head), kind.row_bytes(width), kind.row_bytes(width * cells))
        return ops.view(store, (head, heads, cells, streams), steps)
    steps = (kind.row_bytes(cells * head), kind.row_bytes(cells), kind.row_bytes(cells * width))
    return ops.view(store, (cells, heads, head, streams), steps)
