"""Gemma 3n and Gemma 4: an input of its own for every layer, and layers that share a cache.

Source: src/models/gemma3n.cpp and gemma4.cpp, b10605.
"""

from __future__ import annotations

from kvwise import builds
from kvwise.gguf.types import I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, norm
from kvwise.memory.compute.pieces.decoder import (
    Decoder,
    finish,
    last_rows,
    picks_in_last,
    start,
)
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.moe import Moe, moe


def cache_owner(b: Builder, il: int) -> int:
    """The layer whose cache layer `il` reads: the last of its kind that has one."""
    start_ = b.model.n_layer_kv_from_start
    if b.model.has_kv(il):
        return il
    return start_ - (2 if b.model.is_swa(il) else 1)


def slice_of(x: Tensor, place: int) -> Tensor:
    """One matrix of a stack of matrices."""
    return ops.view_2d(x, x.ne[0], x.ne[1], x.type.row_bytes(x.ne[0]), place * x.nb[2])


def _looked_up(b: Builder) -> Tensor:
    """What the file holds for each token: a row for all layers."""
    ids = b.input(("tokens", "per layer"), I32, b.n_tokens)
    return ops.get_rows(b.need_top("per_layer_token_embd.weight"), ids)


def per_layer_input(b: Builder, x: Tensor, width: int, rows: Tensor | None = None) -> Tensor:
    """[width, tokens, layers]: looked up per token, and made of the embeddings `x`.

    `rows`: looked up already.
    """
    n, layers = b.n_tokens, b.n_layer
    if rows is None:
        looked_up = ops.scale(ops.reshape(_looked_up(b), width, layers, n))
        b.expand(looked_up)
    else:
        looked_up = ops.reshape(ops.scale(rows), width, layers, n)
    made = ops.scale(ops.mul_mat(b.need_top("per_layer_model_proj.weight"), x))
    made = ops.reshape(made, width, layers, n)
    made = norm.norm(b, made, b.top("per_layer_proj_norm.weight"))
    made = ops.scale(ops.add(made, looked_up))
    return ops.cont(ops.permute(made, 0, 2, 1, 3))


def shared_attention(b: Builder, x: Tensor, il: int, *, factors: Tensor | None) -> Tensor:
    """Attention whose K and V come from an earlier layer where this one has no cache."""
    model, n = b.model, b.n_tokens
    head, heads = model.n_embd_head_k(il), model.n_head[il]
    q = ops.reshape(linear(b, x, il, "attn_q", bias=False), head, heads, n)
    q = ops.rope(norm.layer(b, q, il, "attn_q_norm"), b.positions(), factors)
    if not model.has_kv(il):
        b.leave(il, "attn_k")
        b.leave(il, "attn_v")
        return attention.cached(b, q, None, None, il, owner=cache_owner(b, il))
    heads_kv = model.n_head_kv[il]
    k = linear(b, x, il, "attn_k", bias=False)
    v = linear(b, x, il, "attn_v", bias=False) if b.has(il, "attn_v.weight") else k
    k, v = (ops.reshape(t, head, heads_kv, n) for t in (k, v))
    k = norm.layer(b, k, il, "attn_k_norm")
    v = ops.rms_norm(v)
    return attention.cached(b, q, ops.rope(k, b.positions(), factors), v, il)


def _gemma4(b: Builder) -> None:
    how = Decoder(tokens_scale=True, rows="normed", soft_cap="given")
    width, rows = b.model.n_embd_per_layer, None
    if width and b.since(builds.PER_LAYER_FIRST):
        rows = _looked_up(b)
        b.expand(rows)
    x = start(b, how)
    beside = per_layer_input(b, x, width, rows) if width else None
    for il in range(b.n_layer):
        b.layer_input(il, x)
        factors = None if b.model.is_swa(il) else b.top("rope_freqs.weight", il)
        cur = shared_attention(b, norm.layer(b, x, il, "attn_norm"), il, factors=factors)
        picks = il == b.n_layer - 1 and picks_in_last(b, how)
        if picks:
            cur, x = last_rows(b, cur, x)
        x = ops.add(norm.layer(b, cur, il, "post_attention_norm"), x)
        cur = norm.norm(b, _gemma4_ffn(b, x, il), b.w(il, "post_ffw_norm.weight"))
        x = ops.add(cur, x)
        if beside is not None:
            cur = ops.mul_mat(b.need(il, "inp_gate.weight"), x)
            mine = slice_of(beside, il)
            if picks:
                (mine,) = last_rows(b, mine)
            cur = ops.mul(ops.unary("GELU", cur), mine)
            cur = ops.mul_mat(b.need(il, "proj.weight"), cur)
            x = ops.add(x, norm.layer(b, cur, il, "post_norm"))
        scale = b.w(il, "layer_output_scale.weight")
        x = x if scale is None else ops.mul(x, scale)
    finish(b, x, how)


def _gemma4_ffn(b: Builder, x: Tensor, il: int) -> Tensor:
    """A dense network, beside experts whose router reads the stream itself."""
    cur = ffn(b, norm.layer(b, x, il, "ffn_norm"), il, "gelu", bias=False)
    if not b.has(il, "ffn_gate_inp.weight"):
        return cur
    cur = norm.layer(b, cur, il, "post_ffw_norm_1")
    read = norm.layer(b, x, il, "pre_ffw_norm_2")
    scores = ops.mul(ops.scale(ops.rms_norm(x)), b.need(il, "ffn_gate_inp.scale"))
    scores = ops.mul_mat(b.need(il, "ffn_gate_inp.weight"), scores)
    made = moe(b, read, il, Moe(act="gelu", norm=True, scale=1.0, router=scores))
    return ops.add(cur, norm.layer(b, made, il, "post_ffw_norm_2"))


N_ALTUP = 4
"""Streams side by side in Gemma 3n; the first is the active one."""

WIDTH_ALTUP = 256
SPARSE_LAYERS = 10


def _magnitude(x: Tensor) -> Tensor:
    return ops.sqrt(ops.sum_rows(ops.sqr(x)))


def _rest(x: Tensor) -> Tensor:
    """All matrices of a stack but the first."""
    return ops.view_3d(x, (x.ne[0], x.ne[1], N_ALTUP - 1), (x.nb[1], x.nb[2]), x.nb[2])


def _gemma3n(b: Builder) -> None:
    x = start(b, Decoder(tokens_scale=True))
    n, n_embd = b.n_tokens, b.n_embd
    beside = per_layer_input(b, x, WIDTH_ALTUP)
    target = _magnitude(x)
    more = ops.repeat(x, n_embd, n, N_ALTUP - 1)
    more = ops.mul_mat(b.need_top("altup_proj.weight"), more)
    size = _magnitude(more)
    x = ops.concat(x, ops.div(ops.mul(more, target), size), 2)
    for il in range(b.n_layer):
        x = _gemma3n_layer(b, x, il, slice_of(beside, il))
    target = _magnitude(slice_of(x, 0))
    more = ops.mul_mat(b.need_top("altup_unembd_proj.weight"), _rest(x))
    size = _magnitude(more)
    more = ops.div(ops.mul(more, target), size)
    cur = slice_of(x, 0)
    for place in range(N_ALTUP - 1):
        cur = ops.add(cur, slice_of(more, place))
    cur = ops.get_rows(ops.scale(cur), b.out_rows())
    finish(b, cur, Decoder(soft_cap="always"))


def _gemma3n_layer(b: Builder, x: Tensor, il: int, beside: Tensor) -> Tensor:
    predicted = _predict(b, x, il)
    active = slice_of(predicted, 0)
    cur = norm.layer(b, active, il, "attn_norm")
    laurel = ops.mul_mat(b.need(il, "laurel_l.weight"), cur)
    laurel = ops.mul_mat(b.need(il, "laurel_r.weight"), laurel)
    laurel = ops.add(norm.layer(b, laurel, il, "laurel_post_norm"), cur)
    cur = shared_attention(b, cur, il, factors=None)
    cur = ops.add(norm.layer(b, cur, il, "post_attention_norm"), active)
    both = ops.scale(ops.add(cur, laurel))
    cur = _sparse_ffn(b, norm.layer(b, both, il, "ffn_norm"), il)
    cur = ops.add(norm.norm(b, cur, b.w(il, "post_ffw_norm.weight")), both)
    corrected = _correct(b, predicted, cur, il)
    first = ops.mul(slice_of(corrected, 0), b.need(il, "altup_correct_scale.weight"))
    first = ops.unary("GELU", ops.mul_mat(b.need(il, "inp_gate.weight"), first))
    first = ops.mul_mat(b.need(il, "proj.weight"), ops.mul(first, beside))
    first = norm.layer(b, first, il, "post_norm")
    return ops.concat(slice_of(corrected, 0), ops.add(_rest(corrected), first), 2)


def _modalities(b: Builder, x: Tensor, il: int) -> Tensor:
    cur = ops.scale(norm.layer(b, x, il, "altup_router_norm"))
    return ops.unary("TANH", ops.mul_mat(b.need(il, "altup_router.weight"), cur))


def _predict(b: Builder, x: Tensor, il: int) -> Tensor:
    """All streams, predicted from the active one."""
    mixed = _modalities(b, slice_of(x, 0), il)
    factors = ops.mul_mat(b.need(il, "altup_predict_coef.weight"), mixed)
    factors = ops.reshape(factors, N_ALTUP, N_ALTUP, b.n_tokens)
    made = ops.mul_mat(ops.cont(ops.permute(x, 1, 2, 0, 3)), factors)
    return ops.add(ops.cont(ops.permute(made, 0, 2, 1, 3)), x)


def _correct(b: Builder, predicted: Tensor, active: Tensor, il: int) -> Tensor:
    """All streams, corrected by what the layer made of the active one."""
    mixed = _modalities(b, active, il)
    new = ops.sub(active, slice_of(predicted, 0))
    factors = ops.scale(ops.mul_mat(b.need(il, "altup_correct_coef.weight"), mixed))
    factors = ops.cont(ops.transpose(factors), 1, b.n_tokens, N_ALTUP)
    new = ops.repeat(new, b.n_embd, b.n_tokens, N_ALTUP)
    return ops.add(ops.mul(new, factors), predicted)


def _sparse_ffn(b: Builder, x: Tensor, il: int) -> Tensor:
    """Only the strongest gates of the first layers stay."""
    up = ops.mul_mat(b.need(il, "ffn_up.weight"), x)
    gate = ops.mul_mat(b.need(il, "ffn_gate.weight"), x)
    if il < SPARSE_LAYERS:
        mean = ops.mean(gate)
        spread = ops.scale(ops.sum_rows(ops.sqr(ops.sub(gate, mean))))
        cutoff = ops.add(mean, ops.scale(ops.sqrt(spread)))
        gate = ops.unary("RELU", ops.sub(gate, cutoff))
    return ops.mul_mat(b.need(il, "ffn_down.weight"), ops.mul(up, ops.unary("GELU", gate)))


ROWS: dict[str, Build] = {"gemma3n": _gemma3n, "gemma4": _gemma4}
