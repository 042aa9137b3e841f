"""Compressed keys of DeepSeek V4: one per so many tokens, out of a rolling state.

The state holds the last tokens of every sequence; whole blocks of it and of the batch become
keys. Overlapping compression (ratio 4) also looks at the block before.
Source: src/models/deepseek4.cpp, src/llama-kv-cache-dsv4.cpp dsv4_build_reserve_comp_plan, b10605.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, kind_named
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import indexer, norm
from kvwise.memory.compute.pieces import keys as cache
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.ledger import Cache

INDEXER_ROLE = "indexer"


@dataclass(frozen=True, slots=True)
class Compressor:
    """One kind: its cache's role (the state's is `ROLE_state`), weights, tokens per key."""

    role: str
    weights: str
    ratio: int
    overlap: bool


def rotation(b: Builder, role: str) -> Tensor | None:
    """Turns the keys of a cache: quantized ones, and all that are as wide as the indexer's."""
    kept, model = b.cache_named(role), b.model
    size = model.indexer_head_size if role == INDEXER_ROLE else model.n_embd_head_k_full
    quantized = bool(kept.layers) and kind_named(kept.type_k).quantized
    if size != model.indexer_head_size and (not quantized or size % cache.ROTATION):
        return None
    return cache.rotation(b, kept, size)


def blocks(b: Builder, how: Compressor) -> int:
    """Keys that a batch completes at most."""
    return b.n_tokens // how.ratio + b.n_seqs


def keys(b: Builder, how: Compressor) -> cache.Keys:
    """The cache of the compressed keys; the indexer's mask is that of its own operation."""
    half = indexer.FUSED not in b.unfused if how.role == INDEXER_ROLE else None
    return cache.keys_of(b, how.role, half=half, rows=blocks(b, how))


def compress(b: Builder, x: Tensor, il: int, how: Compressor) -> None:
    """Write the keys that the batch completes, then bring the state up to date."""
    state = b.cache_named(how.role + "_state")
    values = linear(b, x, il, how.weights + "_kv", bias=False)
    scores = linear(b, x, il, how.weights + "_gate", bias=False)
    places = b.input((how.role, "state_pos"), I32, b.n_tokens)
    rows = ops.get_rows(b.need(il, how.weights + "_ape.weight"), places)
    fresh = (values, ops.add(scores, rows))
    held = _restored(b, state, il)
    source = tuple(
        ops.concat(ops.view_2d(t, t.ne[0], _rows(state), t.nb[1]), new, 1)
        for t, new in zip(held, fresh, strict=True)
    )
    made = _blocks(b, source, il, how, state)
    turn = rotation(b, how.role)
    if turn is not None:
        made = ops.mul_mat_hadamard(made, turn)
    cache.write(b, keys(b, how), made, il)
    _snapshot(b, state, held, fresh, il)
    count = min(b.n_tokens, _rows(state))
    kept = b.input((how.role, "persist_from"), I32, count)
    where = b.input((how.role, "persist_to"), I32, count)
    b.expand(*_put(b, state, [ops.get_rows(t, kept) for t in fresh], where, il))


def _rows(state: Cache) -> int:
    return state.state_size * state.streams


def _all(b: Builder, state: Cache, side: str, il: int) -> Tensor:
    """All rows of a side of the state, snapshots included."""
    width, planes = state.n_embd_state, state.streams * (1 + state.n_rs_seq)
    shape = (width, state.state_size, planes, 1)
    store = b.cache_tensor(f"{state.role}:{side}", il, F32, shape)
    return ops.view_2d(store, width, state.state_size * planes, store.nb[1])


def _put(
    b: Builder, state: Cache, rows: list[Tensor], where: Tensor, il: int
) -> tuple[Tensor, Tensor]:
    """Rows of both sides written into the state."""
    values = ops.set_rows(_all(b, state, "kv", il), rows[0], where)
    return values, ops.set_rows(_all(b, state, "score", il), rows[1], where)


def _restored(b: Builder, state: Cache, il: int) -> tuple[Tensor, Tensor]:
    """Both sides of the state, rolled back where snapshots are kept."""
    held = (_all(b, state, "kv", il), _all(b, state, "score", il))
    if not state.n_rs_seq:
        return held
    count = _rows(state)
    kept = b.input((state.role, "restore_from"), I32, count)
    where = b.input((state.role, "restore_to"), I32, count)
    return _put(b, state, [ops.get_rows(t, kept) for t in held], where, il)


def _snapshot(
    b: Builder, state: Cache, held: tuple[Tensor, Tensor], fresh: tuple[Tensor, Tensor], il: int
) -> None:
    if not state.n_rs_seq:
        return
    count = state.n_rs_seq * _rows(state)
    kept = b.input((state.role, "snapshot_from"), I32, count)
    where = b.input((state.role, "snapshot_to"), I32, count)
    rows = [
        ops.get_rows(ops.concat(old, new, 1), kept) for old, new in zip(held, fresh, strict=True)
    ]
    b.expand(*_put(b, state, rows, where, il))


def _blocks(
    b: Builder, source: tuple[Tensor, ...], il: int, how: Compressor, state: Cache
) -> Tensor:
    """The compressed keys: [head, 1, blocks]."""
    count = blocks(b, how)
    size = state.n_embd_state // 2 if how.overlap else state.n_embd_state
    read = b.input((how.role, "state_read"), I32, (2 if how.overlap else 1) * how.ratio * count)
    if how.overlap:
        parts = [_overlapping(_with_empty_row(t), read, size, how.ratio, count) for t in source]
    else:
        parts = [ops.reshape(ops.get_rows(t, read), size, how.ratio, count) for t in source]
    values, scores = (ops.cont(ops.permute(t, 1, 0, 2, 3)) for t in parts)
    cur = ops.sum_rows(ops.mul(values, ops.soft_max(scores)))
    cur = ops.cont(ops.permute(cur, 1, 0, 2, 3))
    cur = norm.layer(b, cur, il, how.weights + "_norm")
    return ops.rope(cur, b.input((how.role, "write_pos"), I32, count))


def _with_empty_row(t: Tensor) -> Tensor:
    """What a first block reads instead of the block before."""
    row = ops.reshape(ops.scale(ops.view_1d(t, t.ne[0])), t.ne[0], 1)
    return ops.concat(t, row, 1)


def _overlapping(t: Tensor, read: Tensor, size: int, ratio: int, count: int) -> Tensor:
    """The block before, out of the first half of the rows, then the block itself."""
    rows = ops.get_rows(t, read)
    step, n = rows.nb[1], ratio * count
    halves = [
        ops.reshape(ops.cont(ops.view_2d(rows, size, n, step, first)), size, ratio, count)
        for first in (0, n * step + rows.type.row_bytes(size))
    ]
    return ops.concat(halves[0], halves[1], 1)
