"""Caches of keys only: latent attention (MLA), whose values are a part of the keys; indexers.

Source: src/llama-graph.cpp build_attn (llm_graph_input_attn_k), src/llama-kv-cache.cpp, b10605.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.gguf.types import BY_NAME, F16, F32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, kind_named
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces.attention import Extras, attend
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.ledger import Cache

I64 = BY_NAME["i64"]

ROTATION = 64
"""Smallest rotation of keys."""


@dataclass(frozen=True, slots=True)
class Keys:
    """One cache of keys and its inputs: which rows to write, who sees whom."""

    cache: Cache
    rows: Tensor
    mask: Tensor


def keys_of(b: Builder, role: str, *, half: bool | None = None, rows: int | None = None) -> Keys:
    """The cache of that role.

    `half`: an f16 mask (None: with flash attention, as for any KV); `rows`: how many are written
    (None: one per token).
    """
    cache = b.cache_named(role)
    if half is None:
        half = b.flash_attn
    n, streams = b.n_tokens, min(cache.streams, b.n_seqs)
    mask = b.input(("mask", role), F16 if half else F32, cache.cells, n // streams, 1, streams)
    return Keys(cache, b.input(("k_rows", role), I64, n if rows is None else rows), mask)


def rotation(b: Builder, cache: Cache, size: int) -> Tensor:
    """The matrix that turns keys of `size` elements before they are stored."""
    side = ROTATION
    while size % (side * 2) == 0:
        side *= 2
    return b.input(("k_rot", cache.role), F32, side, side)


def write(b: Builder, keys: Keys, k: Tensor, il: int) -> None:
    """Put `k` [head, heads, tokens] into the cache."""
    head, heads, n, _ = k.ne
    store = _storage(b, keys.cache, il)
    width, cells, streams, _ = store.ne
    whole = store if streams == 1 else ops.reshape(store, width, cells * streams)
    b.expand(ops.set_rows(whole, ops.view_2d(k, head * heads, n, k.nb[2]), keys.rows))


def read(b: Builder, keys: Keys, il: int, heads: int = 1) -> Tensor:
    """The keys of all cells: [head, heads, cells, streams]."""
    store = _storage(b, keys.cache, il)
    width, cells, streams, _ = store.ne
    kind, head = store.type, width // heads
    steps = (kind.row_bytes(head), kind.row_bytes(width), kind.row_bytes(width * cells))
    return ops.view(store, (head, heads, cells, streams), steps)


def _storage(b: Builder, cache: Cache, il: int) -> Tensor:
    row = cache.k_row[cache.layers.index(il)]
    kind = kind_named(cache.type_k)
    return b.cache_tensor("k:" + cache.role, il, kind, (row, cache.cells, cache.streams, 1))


def values(k: Tensor, size: int) -> Tensor:
    """The first `size` elements of every key, which latent attention takes for values."""
    return ops.view(k, (size, *k.ne[1:]), k.nb[1:])


def cached(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    il: int,
    *,
    role: str,
    out: str | None = "attn_output",
    extras: Extras,
) -> Tensor:
    """Write the keys, attend over the whole cache with values inside the keys, project."""
    keys = keys_of(b, role)
    b.expand(q, v, k)
    write(b, keys, k, il)
    stored = read(b, keys, il)
    cur = attend(b, q, stored, values(stored, v.ne[0]), keys.mask, extras=extras)
    return cur if out is None else linear(b, cur, il, out)
