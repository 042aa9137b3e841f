"""GLM 5 Next: Kimi Delta Attention and latent attention over pools of tokens, among hyper
connections.

Source: src/models/glm5-next.cpp, src/llama-memory-hybrid-idx.cpp, b11549.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from kvwise.gguf.types import BY_NAME, F16, F32, I32, GGMLType
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor, contiguous_strides
from kvwise.memory.compute.pieces import embed, hyper, indexer, keys, latent, norm
from kvwise.memory.compute.pieces.attention import Extras, attend
from kvwise.memory.compute.pieces.decoder import Decoder, finish, last_rows, picks_in_last
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.kda import Kda, kda
from kvwise.memory.compute.pieces.moe import Moe, gating_of, moe
from kvwise.units import pad

I64 = BY_NAME["i64"]
HOW = Decoder(rows="normed")
PADDED = 64
"""Pools are counted in steps of it, and the last one is never used."""

_LINEAR = {
    bounded: Kda("negated" if bounded else "softplus", ("ssm_g_a", "ssm_g_b"), apart=False,
                 every=True)
    for bounded in (False, True)
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pools:
    """Inputs of the pooled indexer: how many tokens to a pool, pools in all, new ones at once."""

    size: int
    count: int
    new: int
    top: int
    cells: Tensor
    members: Tensor
    mask: Tensor
    tail: Tensor
    live: Tensor
    new_members: Tensor
    new_cells: Tensor

    @property
    def chosen(self) -> int:
        """Cells that a token may attend to."""
        return self.live.ne[0]


def _glm5_next(b: Builder) -> None:
    model = b.model
    streams = hyper.start(b, embed.tokens(b))
    pools = pools_of(b)
    chosen: Tensor | None = None
    for il in range(b.n_layer):
        mixed = hyper.before(b, streams, il, "attn")
        cur = norm.layer(b, mixed.read, il, "attn_norm")
        b.expand(cur)
        if model.is_recr(il):
            cur = kda(b, cur, il, _LINEAR[model.kda_gate_lower_bound > -inf])
        else:
            cur, chosen = attention(b, cur, pools, chosen, il)
        streams = hyper.after(b, cur, mixed, il)
        mixed = hyper.before(b, streams, il, "ffn")
        cur = feed_forward(b, norm.layer(b, mixed.read, il, "ffn_norm"), il)
        streams = hyper.after(b, cur, mixed, il)
    if picks_in_last(b, HOW):
        n_embd, count, n, _ = streams.ne
        (flat,) = last_rows(b, ops.reshape(streams, n_embd * count, n))
        streams = ops.reshape(flat, n_embd, count, flat.ne[1])
    finish(b, _mean(streams), HOW)


def _mean(streams: Tensor) -> Tensor:
    n_embd, count, n, _ = streams.ne
    total = ops.view_2d(streams, n_embd, n, streams.nb[2])
    for stream in range(1, count):
        one = ops.view_2d(streams, n_embd, n, streams.nb[2], stream * streams.nb[1])
        total = ops.add(total, one)
    return ops.scale(total)


def feed_forward(b: Builder, x: Tensor, il: int) -> Tensor:
    model = b.model
    if il < model.n_layer_dense_lead:
        return ffn(b, x, il, bias=False)
    how = Moe(
        gating=gating_of(model), norm=model.expert_weights_norm, scale=model.expert_weights_scale
    )
    made = moe(b, x, il, how)
    return ops.add(made, ffn(b, x, il, suffix="_shexp", bias=False))


# --- pools of tokens ---


def pools_of(b: Builder) -> Pools:
    """As many pools as the whole cache can hold are reserved, all of them new."""
    model, n = b.model, b.n_tokens
    size, cache = model.indexer_kpool, b.cache_named("idx")
    most = cache.cells // size * b.context.n_seq_max
    count = max(PADDED, pad(most + 1, PADDED))
    new, top = max(most, 1), min(count, model.indexer_top_k // size)
    tail = model.header.get(".attention.indexer.kpool_select_tail")
    width = size * top + (size - 1 if tail is not False else 0)
    kind = F32 if indexer.FUSED in b.unfused else F16
    made = Pools(
        size,
        count,
        new,
        top,
        cells=b.input("pool cells", I32, count),
        members=b.input("pool members", I32, size, count),
        mask=b.input("pool mask", kind, count, n),
        tail=b.input("pool tail", I32, size - 1, n),
        live=b.input("pool live", F32, width, 1, 1, n),
        new_members=b.input("new pool members", I32, size, new),
        new_cells=b.input("new pool cells", I64, new),
    )
    b.expand(made.cells, made.members, made.mask, made.tail, made.live)
    return made


def attention(
    b: Builder, x: Tensor, pools: Pools, chosen: Tensor | None, il: int
) -> tuple[Tensor, Tensor]:
    """Latent attention without positions; layers without an indexer take over the last choice."""
    n, size = b.n_tokens, latent.sizes(b, il)
    rows = latent.query_rows(b, x, il)
    q = ops.mul_mat(b.need(il, "attn_q_b.weight"), rows)
    q = ops.permute(ops.reshape(q, size.plain, size.heads, n), 0, 2, 1, 3)
    key = ops.mul_mat(b.need(il, "attn_kv_a_mqa.weight"), x)
    key = ops.reshape(norm.layer(b, key, il, "attn_kv_a_norm"), size.rank, 1, n)
    q = ops.permute(ops.mul_mat(b.need(il, "attn_k_b.weight"), q), 0, 2, 1, 3)
    kept = keys.keys_of(b, "attn")
    if b.model.is_indexer_full(il):
        chosen = _choose(b, x, rows, kept.mask, pools, il)
    if chosen is None:
        raise Unbuildable("the first attention layer has no indexer")
    b.expand(q, key)
    keys.write(b, kept, key, il)
    mask = ops.reshape(chosen, *kept.mask.ne)
    stored = keys.read(b, kept, il)
    extras = Extras(v_mla=b.need(il, "attn_v_b.weight"))
    cur = attend(b, q, stored, keys.values(stored, size.rank), mask, extras=extras)
    return ops.mul_mat(b.need(il, "attn_output.weight"), cur), chosen


def _choose(  # noqa: PLR0917  (what the choice is made from)
    b: Builder, x: Tensor, rows: Tensor, mask: Tensor, pools: Pools, il: int
) -> Tensor:
    """The mask with all but the best pools of each token closed: [cells, tokens]."""
    model, n = b.model, b.n_tokens
    size, heads = model.indexer_head_size, model.indexer_n_head
    q = ops.reshape(ops.mul_mat(b.need(il, "indexer.attn_q_b.weight"), rows), size, heads, n)
    k = ops.mul_mat(b.need(il, "indexer.attn_k.weight"), x)
    k = norm.layer(b, k, il, "indexer.k_norm", kind="layer")
    gate = ops.mul_mat(b.need(il, "indexer_compressor_gate.weight"), x)
    packed = ops.concat(ops.concat(k, gate, 0), _filled(F32, size, n), 0)
    kept = keys.keys_of(b, "idx")
    keys.write(b, kept, ops.reshape(packed, 3 * size, 1, n), il)
    pooled = _pooled(b, keys.read(b, kept, il), pools, il)
    weights = ops.scale(ops.mul_mat(b.need(il, "indexer.proj.weight"), x))
    scores = indexer.scores(b, q, pooled, weights, pools.mask, il)
    return _opened(b, _members(scores, pools, n), mask, pools)


def _pooled(b: Builder, stored: Tensor, pools: Pools, il: int) -> Tensor:
    """New pools out of keys and gates, then the pooled keys of all: [size, 1, pools]."""
    size, count, new = b.model.indexer_head_size, pools.size, pools.new
    base = stored.base
    if base is None:
        raise Unbuildable("the indexer's cache has no storage")
    step, cells, kind = base.nb[1], base.ne[1] * base.ne[2], base.type
    both = ops.view_2d(base, 2 * size, cells, step)
    whole = ops.view_2d(base, size, cells, step, kind.row_bytes(2 * size))
    rows = ops.get_rows(both, ops.reshape(pools.new_members, count * new))
    rows = ops.reshape(rows, 2 * size, count, new)
    shape, nb = (size, count, new), rows.nb[1:3]
    k, gate = ops.view_3d(rows, shape, nb), ops.view_3d(rows, shape, nb, F32.row_bytes(size))
    logits = ops.add(gate, b.need(il, "indexer_compressor_ape.weight"))
    logits = ops.cont(ops.permute(logits, 1, 0, 2, 3))
    shares = ops.soft_max(ops.reshape(logits, count, size * new))
    shares = ops.reshape(shares, count, size, new)
    k = ops.cont(ops.permute(k, 1, 0, 2, 3))
    made = ops.reshape(ops.sum_rows(ops.mul(shares, k)), size, new)
    b.expand(ops.set_rows(whole, made, pools.new_cells))
    return ops.reshape(ops.get_rows(whole, pools.cells), size, 1, pools.count)


def _members(scores: Tensor, pools: Pools, n: int) -> Tensor:
    """The cells of the best pools of each token, the best first: i32 [cells chosen, tokens]."""
    top = pools.top
    best = ops.top_k(scores, top)
    theirs = ops.get_rows(ops.reshape(scores, 1, pools.count, n), best)
    order = ops.argsort(ops.reshape(theirs, top, n))
    wide = ops.reshape(ops.cast(best, F32), 1, top, n)
    best = ops.cont(ops.reshape(ops.get_rows(wide, order), top, n))
    best = ops.cast(best, I32)
    cells = ops.get_rows(pools.members, ops.reshape(best, top * n))
    cells = ops.reshape(cells, pools.size * top, n)
    if pools.chosen == pools.size * top:
        return cells
    return ops.concat(cells, pools.tail, 0)


def _opened(b: Builder, cells: Tensor, mask: Tensor, pools: Pools) -> Tensor:
    b.expand(cells)
    n, count, all_cells, kind = b.n_tokens, pools.chosen, mask.ne[0], mask.type
    rows = all_cells + count
    closed = ops.reshape(ops.repeat(_filled(kind, rows), rows, n), 1, rows, n)
    zeros = ops.reshape(ops.repeat(_filled(kind, count), count, n), 1, count, n)
    live = ops.unary("EXP", ops.reshape(pools.live, count, n))
    dump = ops.new("ARANGE", F32, (count, 1, 1, 1))
    where = ops.mul(ops.sub(ops.cast(cells, F32), dump), live)
    where = ops.cast(ops.add(where, dump), I32)
    opened = ops.set_rows(closed, zeros, ops.reshape(where, count, n, 1))
    opened = ops.view_2d(opened, all_cells, n, opened.nb[2])
    return ops.add(opened, ops.reshape(mask, all_cells, n))


def _filled(kind: GGMLType, *ne: int) -> Tensor:
    shape = (*ne, 1, 1, 1)[:4]
    return ops.fill(Tensor("NONE", kind, shape, contiguous_strides(kind, shape)))  # type: ignore[arg-type]


ROWS: dict[str, Build] = {"glm5-next": _glm5_next}
