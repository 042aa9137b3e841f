"""Decoders with experts that leave the plain pattern, or stand on its newer options.

Source: src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families.rows import Build, plain, weighted
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, norm
from kvwise.memory.compute.pieces.decoder import (
    Attention,
    Decoder,
    feed_forward,
    finish,
    last_rows,
    picks_in_last,
    self_attention,
    start,
)
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.moe import Moe, moe
from kvwise.memory.compute.pieces.qkv import qkv
from kvwise.memory.compute.pieces.rope import rope

BEFORE = Attention(qk_norm="before")
AS_GIVEN = weighted(norm="given", gating="given")


def _windowed_layers(b: Builder, il: int) -> bool:
    return b.model.is_swa(il)


def rope_by_step(b: Builder, il: int) -> bool:
    """All but every n-th layer have positions."""
    step = b.model.n_no_rope_layer_step
    return step > 0 and (il + 1) % step != 0


def _arctic(b: Builder) -> None:
    """Experts beside the whole layer: they read what attention reads."""
    how = Decoder()
    x = start(b, how)
    experts = Moe(norm=True, scale=b.model.expert_weights_scale)
    for il in range(b.n_layer):
        cur = self_attention(b, norm.layer(b, x, il, "attn_norm"), il, how.attn)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        both = ops.add(cur, x)
        dense = ops.add(ffn(b, norm.layer(b, both, il, "ffn_norm"), il), both)
        x = ops.add(moe(b, norm.layer(b, x, il, "ffn_norm_exps"), il, experts), dense)
    finish(b, x, how)


def _grovemoe(b: Builder) -> None:
    """A second, smaller set of experts, each of which serves a group of the first ones."""
    how = Decoder(attn=BEFORE)
    x = start(b, how)
    for il in range(b.n_layer):
        cur = self_attention(b, norm.layer(b, x, il, "attn_norm"), il, how.attn)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        x = ops.add(_groves(b, norm.layer(b, x, il, "ffn_norm"), il), x)
    finish(b, x, how)


def _groves(b: Builder, x: Tensor, il: int) -> Tensor:
    model = b.model
    used, scale = model.n_expert_used, model.expert_weights_scale
    groups = model.n_expert // model.n_group_experts if model.n_group_experts else 0
    if groups < used or model.n_expert_groups > 1:
        raise Unbuildable("fewer groups of experts than a token uses")
    scores = ops.mul_mat(b.need(il, "ffn_gate_inp.weight"), x)
    chosen = ops.argsort_top_k(ops.unary("SIGMOID", scores), used)
    first = Moe(norm=True, scale=scale, router=scores, chosen=chosen)
    cur = moe(b, x, il, first)
    chosen = ops.argsort_top_k(ops.unary("SIGMOID", scores), used)
    if groups != model.n_expert:
        chosen = ops.cast(ops.scale(ops.cast(chosen, F32)), I32)
    second = Moe(norm=True, scale=scale, router=scores, chosen=chosen, suffix="_chexps")
    return ops.add(cur, ops.scale(moe(b, cur, il, second)))


def _cohere2moe(b: Builder) -> None:
    """Attention and experts in parallel; the leading dense layers always have positions."""
    model = b.model
    kind: norm.Norm = "rms" if model.f_norm_rms_eps else "layer"

    def turned(b: Builder, il: int) -> bool:
        return b.model.is_swa(il) or il < b.model.n_layer_dense_lead

    how = Decoder(
        norm=kind, attn=Attention(rope=turned, factors=True), moe=AS_GIVEN, shared="plain",
        rows="normed", logit_scale="given",
    )  # fmt: skip
    x = start(b, how)
    for il in range(b.n_layer):
        read = norm.layer(b, x, il, "attn_norm", kind=kind)
        cur = self_attention(b, read, il, how.attn)
        if il == b.n_layer - 1 and picks_in_last(b, how):
            cur, x, read = last_rows(b, cur, x, read)
        made = feed_forward(b, read, il, how)
        if b.has(il, "ffn_gate_inp.weight") and b.has(il, "ffn_up_shexp.weight"):
            made = ops.scale(made)
        x = ops.add(ops.add(made, x), cur)
    finish(b, x, how)


def _llama4(b: Builder) -> None:
    """Layers without positions scale Q instead; the others norm Q and K after the rotation."""
    model = b.model
    how = Decoder(moe=weighted(gating="sigmoid", before=True, select_logits=True), shared="plain")
    x = start(b, how)
    for il in range(b.n_layer):
        q, k, v = qkv(
            b, norm.layer(b, x, il, "attn_norm"), il,
            (model.n_embd_head_k(il), model.n_head[il], model.n_head_kv[il]),
        )  # fmt: skip
        if rope_by_step(b, il):
            q, k = (rope(b, t, il, scaled=True) for t in (q, k))
            if model.use_kq_norm:
                q, k = ops.rms_norm(q), ops.rms_norm(k)
        else:
            q = ops.mul(q, b.input("attn_scale", F32, 1, 1, b.n_tokens))
        cur = attention.cached(b, q, k, v, il)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        x = ops.add(feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, how), x)
    finish(b, x, how)


ROWS: dict[str, Build] = {
    "arctic": _arctic,
    "grovemoe": _grovemoe,
    "cohere2moe": _cohere2moe,
    "llama4": _llama4,
    "qwen3vlmoe": plain(BEFORE, moe=weighted(norm=True), deepstack="after"),
    "glm4moe": plain(BEFORE, ffn_norm="post_attention_norm", moe=AS_GIVEN, shared="plain"),
    "exaone-moe": plain(
        Attention(qk_norm="before", rope=_windowed_layers, factors=True), moe=AS_GIVEN,
        shared="plain",
    ),
    "hy_v3": plain(
        Attention(qk_norm="before", factors=True), moe=AS_GIVEN, shared="always", rows="normed"
    ),
    "mimo2": plain(
        Attention(two_sizes=True, sinks=True, value_scale=True),
        moe=weighted(norm=True, gating="sigmoid"), hand_on=True,
    ),
}  # fmt: skip
