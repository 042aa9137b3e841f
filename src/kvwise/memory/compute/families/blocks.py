"""MiniMax M3: attention over blocks of positions that an indexer chooses (MSA).

Source: src/models/minimax-m3.cpp, src/llama-kv-cache-msa.cpp (get_n_pos), b10605.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.gguf.types import F16, F32, I32, GGMLType
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families.rows import Build, weighted
from kvwise.memory.compute.graph import Tensor, is_contiguous
from kvwise.memory.compute.pieces import attention, keys, norm
from kvwise.memory.compute.pieces import cache as kv
from kvwise.memory.compute.pieces.decoder import Decoder, finish, last_rows, start
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.moe import moe
from kvwise.memory.compute.pieces.qkv import qkv
from kvwise.memory.compute.pieces.rope import rope
from kvwise.memory.flash import msa_is_dense
from kvwise.units import pad

POSITIONS = 256
"""Positions that an empty cache counts for."""

EXPERTS = weighted(act="swiglu_oai", norm="given", gating="given")

Triple = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The inputs that all sparse layers share: sizes, and where positions lie in the cache.

    `places` and `mask`: what it takes for one token of each sequence is the place of a cell as a
    number, for more the mask and each cell's block.
    """

    block: int
    blocks: int
    per_stream: int
    bias: Tensor
    seen: Tensor
    cell_of: Tensor
    places: Tensor
    mask: Tensor | None


def _minimax_m3(b: Builder) -> None:
    how = Decoder()
    sparse = None if msa_is_dense(b.context) else _inputs(b)
    x = start(b, how)
    for il in range(b.n_layer):
        cur = _attend(b, norm.layer(b, x, il, "attn_norm"), il, sparse)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        x = ops.add(_feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il), x)
    finish(b, x, how)


def _feed_forward(b: Builder, x: Tensor, il: int) -> Tensor:
    if il < b.model.n_layer_dense_lead:
        return ffn(b, x, il, "swiglu_oai")
    return ops.add(moe(b, x, il, EXPERTS(b, il)), ffn(b, x, il, "swiglu_oai", suffix="_shexp"))


def _inputs(b: Builder) -> _Blocks:
    mask = kv.mask_input(b, b.cache_named("base"))
    cells, per_stream, _, streams = mask.ne
    block, n, one = b.model.indexer_block_size, b.n_tokens, per_stream == 1
    positions = pad(POSITIONS, block)
    return _Blocks(
        block,
        positions // block,
        per_stream,
        b.input("msa_bias", F32, positions // block, n),
        b.input("msa_seen", F32, positions, n),
        b.input("msa_cell_of", I32, positions, streams),
        b.input("msa_places", *((F32, positions) if one else (I32, cells)), streams),
        None if one else ops.cast(mask, F32),
    )


def _attend(b: Builder, x: Tensor, il: int, sparse: _Blocks | None) -> Tensor:
    model = b.model
    q, k, v = qkv(b, x, il, (model.n_embd_head_v(), model.n_head[il], model.n_head_kv[il]))
    q = rope(b, norm.layer(b, q, il, "attn_q_norm"), il)
    k = rope(b, norm.layer(b, k, il, "attn_k_norm"), il)
    if il < model.n_layer_dense_lead:
        return attention.cached(b, q, k, v, il)
    if sparse is None:
        b.leave(il, "indexer.")
        return attention.cached(b, q, k, v, il)
    index = _index(b, x, il)
    return linear(b, _sparse(b, (q, k, v), index, il, sparse), il, "attn_output", bias=False)


def _index(b: Builder, x: Tensor, il: int) -> tuple[Tensor, Tensor]:
    """Queries of the indexer, and its keys of all cells."""
    size, n = b.model.indexer_head_size, b.n_tokens
    heads = b.model.indexer_n_head
    q = ops.reshape(linear(b, x, il, "indexer.q_proj", bias=False), size, heads, n)
    k = ops.reshape(linear(b, x, il, "indexer.k_proj", bias=False), size, 1, n)
    q = rope(b, norm.layer(b, q, il, "indexer.q_norm"), il)
    k = rope(b, norm.layer(b, k, il, "indexer.k_norm"), il)
    stored = keys.keys_of(b, "indexer")
    keys.write(b, stored, k, il)
    return q, keys.read(b, stored, il)


def _sparse(
    b: Builder, heads: Triple, index: tuple[Tensor, Tensor], il: int, sparse: _Blocks
) -> Tensor:
    q, k, v = heads
    inputs = kv.kv_input(b, il)
    if inputs.k_rot is not None:
        q, k = (ops.mul_mat_hadamard(t, inputs.k_rot) for t in (q, k))
    if inputs.v_rot is not None:
        v = ops.mul_mat_hadamard(v, inputs.v_rot)
    b.expand(q, k, v)
    kv.write_k(b, k, inputs.k_rows, il)
    kv.write_v(b, v, inputs.v_rows, il)
    k, v = kv.read_k(b, il), kv.read_v(b, il)
    if sparse.mask is None:
        cur = _gathered(b, (q, k, v), index, sparse)
        return cur if inputs.v_rot is None else ops.mul_mat_hadamard(cur, inputs.v_rot)
    made = [_stream(b, (q, k, v), index, stream, sparse) for stream in range(inputs.mask.ne[3])]
    cur = made[0]
    for more in made[1:]:
        cur = ops.concat(cur, more, 1)
    return cur if inputs.v_rot is None else ops.mul_mat_hadamard(cur, inputs.v_rot)


def _gathered(b: Builder, heads: Triple, index: tuple[Tensor, Tensor], sparse: _Blocks) -> Tensor:
    """Attention of one token of each sequence, over the chosen cells alone."""
    q, k, v = heads
    size, groups, cells, streams = k.ne
    positions, block = sparse.seen.ne[0], sparse.block
    best = _best(index, sparse)
    top = min(b.model.indexer_top_k, sparse.blocks)
    chosen = ops.scale(ops.cast(ops.top_k(best, top), F32))
    chosen = ops.reshape(chosen, 1, top, groups, streams)
    steps = ops.reshape(_count(block), block)
    chosen = ops.add(ops.repeat(chosen, block, top, groups, streams), steps)
    count = block * top
    at = ops.cast(ops.reshape(chosen, count * groups, streams), I32)
    places = ops.get_rows(ops.reshape(sparse.places, 1, positions, streams), at)
    places = ops.scale(ops.reshape(places, block, top, groups, streams))
    places = ops.add(places, ops.reshape(_count(groups), 1, 1, groups))
    rows = ops.cast(ops.reshape(places, count * groups, streams), I32)
    parts = []
    for t in (k, v):
        flat = ops.view_3d(t, (size, groups * cells, streams), (t.nb[1], t.nb[3]))
        parts.append((ops.get_rows(flat, rows), F16 if t.type.block > 1 else t.type))
    seen = ops.get_rows(ops.reshape(sparse.seen, 1, positions, streams), at)
    many = groups * streams
    k, v = (_as(ops.reshape(t, size, count, 1, many), kind) for t, kind in parts)
    mask = ops.cast(ops.reshape(seen, count, 1, 1, many), F16)
    return _grouped(b, q, k, v, mask, groups=groups)


def _best(index: tuple[Tensor, Tensor], sparse: _Blocks) -> Tensor:
    """Scores of the blocks, of all sequences at once: [blocks, heads, 1, sequences]."""
    q, k = index
    size, heads, streams = q.ne[0], q.ne[1], k.ne[3]
    positions = sparse.seen.ne[0]
    stored = ops.view_3d(k, (size, k.ne[2], streams), (k.nb[2], k.nb[3]))
    found = ops.reshape(ops.get_rows(stored, sparse.cell_of), size, positions, 1, streams)
    scores = ops.mul_mat(found, ops.reshape(q, size, heads, 1, streams))
    scores = ops.add_inplace(scores, ops.reshape(sparse.seen, positions, 1, 1, streams))
    bias = ops.reshape(sparse.bias, sparse.blocks, 1, 1, streams)
    return ops.add(ops.pool_rows(scores, sparse.block), bias)


def _count(number: int) -> Tensor:
    """0, 1, 2..."""
    return ops.new("ARANGE", F32, (number, 1, 1, 1))


def _as(x: Tensor, kind: GGMLType) -> Tensor:
    return x if x.type is kind else ops.cast(x, kind)


def _stream(
    b: Builder, heads: Triple, index: tuple[Tensor, Tensor], stream: int, sparse: _Blocks
) -> Tensor:
    """Attention of one sequence, all groups of heads at once: [n_embd, tokens of it]."""
    q, k, v = heads
    n, first = sparse.per_stream, stream * sparse.per_stream
    q = ops.view_3d(q, (q.ne[0], q.ne[1], n), q.nb[1:3], first * q.nb[2])
    row = sparse.bias.nb[1]
    bias = ops.view_3d(sparse.bias, (sparse.blocks, 1, n), (row, row), first * row)
    mask = _mask(_chosen(b, index, bias, stream, sparse), bias, stream, sparse)
    k, v = (
        ops.permute(ops.view(t, t.ne[:3], t.nb[1:], stream * t.nb[3]), 0, 3, 1, 2) for t in (k, v)
    )
    return _grouped(b, q, k, v, mask)


def _chosen(
    b: Builder, index: tuple[Tensor, Tensor], bias: Tensor, stream: int, sparse: _Blocks
) -> Tensor:
    """The best blocks of each token and head: i32 [top k, heads, tokens]."""
    q, k = index
    size, heads, _, _ = q.ne
    n, positions = sparse.per_stream, sparse.seen.ne[0]
    first = stream * n
    q = ops.view_3d(q, (size, heads, n), q.nb[1:3], first * q.nb[2])
    k = ops.view_2d(k, size, k.ne[2], k.nb[2], stream * k.nb[3])
    cells = ops.view_1d(sparse.cell_of, positions, stream * sparse.cell_of.nb[1])
    row = sparse.seen.nb[1]
    seen = ops.view_3d(sparse.seen, (positions, 1, n), (row, row), first * row)
    scores = ops.mul_mat(ops.get_rows(k, cells), ops.reshape(q, size, heads * n))
    scores = ops.add_inplace(ops.reshape(scores, positions, heads, n), seen)
    best = ops.add(ops.pool_rows(scores, sparse.block), bias)
    return ops.top_k(best, min(b.model.indexer_top_k, sparse.blocks))


def _mask(chosen: Tensor, bias: Tensor, stream: int, sparse: _Blocks) -> Tensor:
    """The mask without the cells of other blocks: f16 [cells, tokens, 1, heads]."""
    top, heads, n, _ = chosen.ne
    whole = sparse.mask
    if whole is None:
        raise Unbuildable("one token of each sequence has no mask of blocks")
    blocks, cells = sparse.blocks, whole.ne[0]
    closed = ops.cast(ops.scale(bias), F16)
    closed = ops.repeat(closed, blocks, heads, n)
    opened = ops.set_rows(
        ops.reshape(closed, 1, blocks, heads * n),
        ops.reshape(ops.scale(ops.cast(chosen, F32)), 1, top, heads * n),
        ops.reshape(chosen, top, heads * n),
    )
    cur = ops.permute(ops.reshape(opened, blocks, heads, n), 0, 2, 1, 3)
    cur = ops.reshape(ops.cont(cur), blocks, n * heads)
    where = ops.view_1d(sparse.places, cells, stream * sparse.places.nb[1])
    cur = ops.get_rows(ops.cont(ops.transpose(cur)), where)
    cur = ops.reshape(ops.cont(ops.transpose(cur)), cells, n, heads)
    nb = whole.nb
    plain = ops.view_3d(whole, (cells, n, 1), (nb[1], nb[3]), stream * nb[3])
    return ops.cast(ops.reshape(ops.add_inplace(cur, plain), cells, n, 1, heads), F16)


def _grouped(
    b: Builder, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, groups: int = 0
) -> Tensor:
    """Groups of heads that share a key stand in the place of sequences; `groups` of each sequence,
    where all of them are attended to at once."""
    size, heads, n, _ = q.ne
    many = k.ne[3]
    each = heads // (groups or many)
    q = ops.permute(ops.reshape(q, size, each, many, heads * n // (each * many)), 0, 2, 3, 1)
    cur = ops.flash_attn(q, k, v, mask, max_bias=b.model.f_max_alibi_bias)
    cur = ops.permute(cur, 0, 1, 3, 2)
    if not is_contiguous(cur):
        cur = ops.cont(cur)
    return ops.reshape(cur, size * heads, n)


ROWS: dict[str, Build] = {"minimax-m3": _minimax_m3}
