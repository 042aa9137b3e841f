"""Decoders that leave the plain pattern in one or two places.

Source: src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, norm
from kvwise.memory.compute.pieces.decoder import (
    Attention,
    Decoder,
    finish,
    last_rows,
    picks_in_last,
    self_attention,
    start,
)
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.moe import Moe, gating_of, moe
from kvwise.memory.compute.pieces.qkv import qkv


def _apertus(b: Builder) -> None:
    """An activation of its own between up and down."""
    how = Decoder(attn=Attention(factors=True, qk_norm="before"))
    x = start(b, how)
    for il in range(b.n_layer):
        cur = self_attention(b, norm.layer(b, x, il, "attn_norm"), il, how.attn)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        cur = linear(b, norm.layer(b, x, il, "ffn_norm"), il, "ffn_up", bias=False)
        x = ops.add(linear(b, ops.unary("XIELU", cur), il, "ffn_down", bias=False), x)
    finish(b, x, how)


def _deci(b: Builder) -> None:
    """Layers without attention, with a matrix for it, or without a feed-forward network."""
    how = Decoder(attn=Attention(factors=True))
    model = b.model
    x = start(b, how)
    for il in range(b.n_layer):
        heads, cur = model.n_head[il], x
        if heads:
            cur = norm.layer(b, x, il, "attn_norm")
            if model.n_head_kv[il]:
                cur = self_attention(b, cur, il, how.attn)
            else:
                cur = linear(b, cur, il, "attn_output", bias=False)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        if not model.n_ff[il]:
            continue
        x = ops.add(cur, x) if heads else cur
        x = ops.add(ffn(b, norm.layer(b, x, il, "ffn_norm"), il), x)
    finish(b, x, how)


def _glm4(b: Builder) -> None:
    """Its norm after the feed-forward network belongs to the layer."""
    how = Decoder(act="swiglu")
    x = start(b, how)
    for il in range(b.n_layer):
        cur = self_attention(b, norm.layer(b, x, il, "attn_norm"), il, how.attn)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(norm.layer(b, cur, il, "post_attention_norm"), x)
        cur = ffn(b, norm.layer(b, x, il, "ffn_norm"), il, "swiglu")
        x = ops.add(norm.layer(b, cur, il, "post_ffw_norm"), x)
    finish(b, x, how)


def _gpt_oss(b: Builder) -> None:
    """The hidden state is handed out; older builds then need all rows of it."""
    how = Decoder(attn=Attention(sinks=True), rows="stream")
    experts = Moe(act="swiglu_oai", gating="softmax_weight", router_bias=True)
    x = start(b, how)
    for il in range(b.n_layer):
        b.layer_input(il, x)
        cur = self_attention(b, norm.layer(b, x, il, "attn_norm"), il, how.attn)
        if il == b.n_layer - 1 and picks_in_last(b, how):
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        cur = norm.layer(b, x, il, "post_attention_norm")
        x = ops.add(moe(b, cur, il, experts), x)
    finish(b, x, how)


def _smallthinker(b: Builder) -> None:
    """The router reads the layer's input, before attention."""
    how = Decoder()
    model = b.model
    gating = gating_of(model)
    x = start(b, how)
    for il in range(b.n_layer):
        step = model.n_no_rope_layer_step
        turned = step == b.n_layer or il % step != 0
        scores = ops.mul_mat(b.need(il, "ffn_gate_inp.weight"), x)
        cur = norm.layer(b, x, il, "attn_norm")
        cur = self_attention(b, cur, il, Attention(rope=turned))
        if il == b.n_layer - 1:
            cur, x, scores = last_rows(b, cur, x, scores)
        x = ops.add(cur, x)
        chosen = Moe(
            act="relu", gating=gating, norm=True, scale=model.expert_weights_scale, router=scores
        )
        x = ops.add(moe(b, norm.layer(b, x, il, "ffn_norm"), il, chosen), x)
    finish(b, x, how)


def _grok(b: Builder) -> None:
    """A dense network beside the experts, and a cap on the scores."""
    how = Decoder(attn=Attention(grok_cap=True), logit_scale="always", soft_cap="given")
    x = start(b, how)
    for il in range(b.n_layer):
        cur = self_attention(b, norm.layer(b, x, il, "attn_norm"), il, how.attn)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(norm.layer(b, cur, il, "attn_output_norm"), x)
        read = norm.layer(b, x, il, "ffn_norm")
        experts = Moe(act="gelu", norm=True, scale=b.model.expert_weights_scale)
        cur = moe(b, read, il, experts)
        if b.has(il, "ffn_up.weight"):
            cur = ops.scale(ops.add(ffn(b, read, il, "gelu"), cur))
        last = "post_ffw_norm" if b.has(il, "post_ffw_norm.weight") else "layer_output_norm"
        x = ops.add(norm.layer(b, cur, il, last), x)
    finish(b, x, how)


def _mpt(b: Builder) -> None:
    """Learned positions where the file has them; Q and K normed as whole rows."""
    how = Decoder(norm="layer", positions="position_embd.weight" in b.model.header.by_name)
    x = start(b, how)
    for il in range(b.n_layer):
        cur = norm.layer(b, x, il, "attn_norm", kind="layer")
        cur = attention.cached(b, *_mpt_qkv(b, cur, il), il)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        cur = norm.layer(b, x, il, "ffn_norm", kind="layer")
        scales = b.w(il, "ffn.act.scales")
        x = ops.add(ffn(b, cur, il, "gelu", act_scales=scales), x)
    finish(b, x, how)


def _mpt_qkv(b: Builder, x: Tensor, il: int) -> tuple[Tensor, Tensor, Tensor]:
    model, n = b.model, b.n_tokens
    head, heads, heads_kv = model.n_embd_head_k(il), model.n_head[il], model.n_head_kv[il]
    q, k, v = qkv(b, x, il, (head, heads, heads_kv))
    if not b.has(il, "attn_q_norm.weight"):
        b.leave(il, "attn_k_norm")
        return q, k, v
    q = norm.layer(b, ops.reshape(q, head * heads, n), il, "attn_q_norm", kind="layer")
    k = norm.layer(b, ops.reshape(k, head * heads_kv, n), il, "attn_k_norm", kind="layer")
    return ops.reshape(q, head, heads, n), ops.reshape(k, head, heads_kv, n), v


ROWS: dict[str, Build] = {
    "apertus": _apertus,
    "deci": _deci,
    "glm4": _glm4,
    "gpt-oss": _gpt_oss,
    "smallthinker": _smallthinker,
    "grok": _grok,
    "mpt": _mpt,
}
