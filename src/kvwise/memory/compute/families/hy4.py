"""Hy 4: latent attention, gated, among several residual streams that mix on the way in and out.

Source: src/models/hy-v4.cpp, b11549.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.gguf.types import F32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import embed, hyper, indexer, keys, latent, norm, output
from kvwise.memory.compute.pieces.attention import Extras
from kvwise.memory.compute.pieces.decoder import last_rows
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.moe import Moe, gating_of, moe
from kvwise.memory.compute.pieces.rope import rope


@dataclass(frozen=True, slots=True)
class _Part:
    """What a part of a layer reads, and how its result goes back into the streams."""

    read: Tensor
    streams: Tensor
    post: Tensor


def _hy4(b: Builder) -> None:
    chosen: Tensor | None = None
    streams = hyper.start(b, embed.tokens(b))
    for il in range(b.n_layer):
        part = _before(b, streams, il, "attn")
        cur = norm.layer(b, part.read, il, "attn_norm")
        cur, chosen = _attention(b, cur, chosen, il)
        streams = _after(cur, part)
        part = _before(b, streams, il, "ffn")
        cur = _feed_forward(b, norm.layer(b, part.read, il, "ffn_norm"), il)
        streams = _after(cur, part)
    n_embd, count, n, _ = streams.ne
    (flat,) = last_rows(b, ops.reshape(streams, n_embd * count, n))
    cur = _head(b, ops.reshape(flat, n_embd, count, flat.ne[1]))
    output.hand_out(b, output.logits(b, output.final_norm(b, cur), bias=False))


# --- streams: two weights for each, one to read it and one to write it ---


def _before(b: Builder, streams: Tensor, il: int, name: str) -> _Part:
    mixes = _mixes(streams, b.need(il, f"hc_{name}_fn.weight"))
    scale = b.need(il, f"hc_{name}_scale.weight")
    base = b.need(il, f"hc_{name}_base.weight")
    pre = ops.scale(_gate(mixes, scale, base, streams.ne[1], 0))
    post = ops.scale(ops.scale(_gate(mixes, scale, base, streams.ne[1], 1)))
    return _Part(_sum(streams, pre), streams, post)


def _mixes(streams: Tensor, weight: Tensor) -> Tensor:
    n_embd, count, n, _ = streams.ne
    return ops.mul_mat(weight, ops.rms_norm(ops.reshape(streams, n_embd * count, n)))


def _gate(mixes: Tensor, scale: Tensor, base: Tensor, count: int, part: int) -> Tensor:
    first = part * count
    cur = ops.view_2d(mixes, count, mixes.ne[1], mixes.nb[1], mixes.type.row_bytes(first))
    cur = ops.mul(cur, ops.view_1d(scale, 1, scale.type.row_bytes(part)))
    cur = ops.add(cur, ops.view_1d(base, count, base.type.row_bytes(first)))
    return ops.unary("SIGMOID", cur)


def _sum(streams: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of all streams, in f32 and back."""
    n_embd, count, n, _ = streams.ne
    wide = ops.cast(streams, F32)
    total: Tensor | None = None
    for stream in range(count):
        cur = ops.mul(
            ops.view_2d(wide, n_embd, n, wide.nb[2], stream * wide.nb[1]),
            ops.view_2d(weights, 1, n, weights.nb[1], stream * weights.nb[0]),
        )
        total = cur if total is None else ops.add(total, cur)
    return ops.cast(_some(total), streams.type)


def _after(x: Tensor, part: _Part) -> Tensor:
    """The streams with the result of a part added to each, in f32 and back."""
    n_embd, count, n, _ = part.streams.ne
    made, weights, old = (ops.cast(each, F32) for each in (x, part.post, part.streams))
    out: Tensor | None = None
    for stream in range(count):
        one = ops.view_2d(old, n_embd, n, old.nb[2], stream * old.nb[1])
        weight = ops.view_2d(weights, 1, n, weights.nb[1], stream * weights.nb[0])
        cur = ops.reshape(ops.add(one, ops.mul(made, weight)), n_embd, 1, n)
        out = cur if out is None else ops.concat(out, cur, 1)
    return ops.cast(_some(out), part.streams.type)


def _some(made: Tensor | None) -> Tensor:
    if made is None:
        raise Unbuildable("no residual streams")
    return made


def _head(b: Builder, streams: Tensor) -> Tensor:
    """One stream for the output."""
    mixes = _mixes(streams, b.need_top("output_hc_fn.weight"))
    pre = ops.mul(mixes, b.need_top("output_hc_scale.weight"))
    pre = ops.unary("SIGMOID", ops.add(pre, b.need_top("output_hc_base.weight")))
    return _sum(streams, ops.scale(pre))


# --- attention: over all keys, or over those that an indexer chose ---


def _attention(
    b: Builder, x: Tensor, chosen: Tensor | None, il: int
) -> tuple[Tensor, Tensor | None]:
    """The gated result, and the choice, which layers without an indexer take over."""
    size = latent.sizes(b, il)
    rows = latent.query_rows(b, x, il)
    sparse = b.model.indexer_top_k > 0
    if sparse and b.model.is_indexer_full(il):
        chosen = _choose(b, x, rows, il)
    q = ops.mul_mat(b.need(il, "attn_q_b.weight"), rows)
    q, k, v = latent.absorbed(b, q, latent.compressed(b, x, il, size), il, size)
    extras = Extras(sinks=b.need(il, "attn_sinks.weight"), v_mla=b.need(il, "attn_v_b.weight"))
    if not sparse:
        cur = keys.cached(b, q, k, v, il, role="main", out=None, extras=extras)
    elif chosen is None:
        raise Unbuildable("the first layer has no indexer")
    else:
        cur = indexer.cached(b, q, k, v, chosen, il, role="mla", out=None, extras=extras)
    gate = ops.unary("SIGMOID", ops.mul_mat(b.need(il, "attn_gate.weight"), x))
    return linear(b, ops.mul(cur, gate), il, "attn_output", bias=False), chosen


def _choose(b: Builder, x: Tensor, rows: Tensor, il: int) -> Tensor:
    """The best cells for each token; its keys are not turned, as elsewhere."""
    model, n = b.model, b.n_tokens
    size, heads = model.indexer_head_size, model.indexer_n_head
    kept = keys.keys_of(b, "indexer", half=indexer.FUSED not in b.unfused)
    q = ops.reshape(ops.mul_mat(b.need(il, "indexer.attn_q_b.weight"), rows), size, heads, n)
    q = rope(b, q, il)
    k = ops.mul_mat(b.need(il, "indexer.attn_k.weight"), x)
    k = ops.reshape(norm.layer(b, k, il, "indexer.k_norm", kind="layer"), size, 1, n)
    keys.write(b, kept, rope(b, k, il), il)
    weights = ops.mul_mat(b.need(il, "indexer.proj.weight"), x)
    weights = ops.scale(indexer.per_stream(weights, kept.cache.streams))
    return indexer.best(b, q, keys.read(b, kept, il), weights, kept.mask, il)


def _feed_forward(b: Builder, x: Tensor, il: int) -> Tensor:
    model = b.model
    if il < model.n_layer_dense_lead:
        return ffn(b, x, il, bias=False)
    how = Moe(
        gating=gating_of(model), norm=model.expert_weights_norm, scale=model.expert_weights_scale
    )
    made = moe(b, x, il, how)
    return ops.add(made, ffn(b, x, il, suffix="_shexp", bias=False))


ROWS: dict[str, Build] = {"hy_v4": _hy4}
