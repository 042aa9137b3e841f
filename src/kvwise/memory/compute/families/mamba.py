"""Mamba, alone and beside attention.

Source: src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from functools import partial

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build
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
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.mamba import mamba, mamba2
from kvwise.memory.compute.pieces.moe import Moe, moe
from kvwise.memory.compute.pieces.qkv import qkv
from kvwise.memory.compute.pieces.rope import rope

NO_ROPE = Attention(rope=False)


def _mamba(b: Builder, *, second: bool) -> None:
    """Nothing but state-space layers."""
    how, layer = Decoder(), mamba2 if second else mamba
    x = start(b, how)
    for il in range(b.n_layer):
        cur = layer(b, norm.layer(b, x, il, "attn_norm"), il)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
    finish(b, x, how)


def _jamba(b: Builder) -> None:
    """Attention in few layers, without positions; experts in some."""
    model = b.model
    how = Decoder(attn=NO_ROPE, moe=Moe(scale=model.expert_weights_scale))
    x = start(b, how)
    for il in range(b.n_layer):
        cur = norm.layer(b, x, il, "attn_norm")
        cur = self_attention(b, cur, il, NO_ROPE) if model.n_head_kv[il] else mamba(b, cur, il)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(x, cur)
        x = ops.add(x, feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, how))
    finish(b, x, how)


def _granite(b: Builder) -> None:
    """Granite 4: residuals are scaled, positions and experts are options."""
    model = b.model
    attn = Attention(rope=lambda b, il: b.model.has_rope(il), factors=True)
    experts = Moe(norm=True, scale=model.expert_weights_scale)
    how = Decoder(attn=attn, moe=experts, shared="plain", logit_scale="given")
    x = start(b, how)
    for il in range(b.n_layer):
        cur = norm.layer(b, x, il, "attn_norm")
        cur = mamba2(b, cur, il) if model.is_recr(il) else self_attention(b, cur, il, attn)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(_residual(b, cur), x)
        cur = feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, how)
        x = ops.add(_residual(b, cur), x)
    finish(b, x, how)


def _residual(b: Builder, x: Tensor) -> Tensor:
    return ops.scale(x) if b.model.f_residual_scale else x


def _falcon_h1(b: Builder) -> None:
    """Both attention and a state-space layer read the layer's input."""
    how = Decoder()
    x = start(b, how)
    for il in range(b.n_layer):
        attended = _unbiased(b, norm.layer(b, x, il, "attn_norm"), il)
        cur = mamba2(b, norm.layer(b, x, il, "attn_norm"), il)
        x = ops.add(ops.add(attended, cur), x)
        if il == b.n_layer - 1:
            (x,) = last_rows(b, x)
        x = ops.add(ffn(b, norm.layer(b, x, il, "ffn_norm"), il), x)
    finish(b, x, how)


def _unbiased(b: Builder, x: Tensor, il: int) -> Tensor:
    """Plain attention; the bias of its projection is loaded and left unused."""
    model = b.model
    q, k, v = qkv(b, x, il, (model.n_embd_head_v(il), model.n_head[il], model.n_head_kv[il]))
    cur = attention.cached(b, rope(b, q, il), rope(b, k, il), v, il, out=None)
    b.leave(il, "attn_output.bias")
    return linear(b, cur, il, "attn_output", bias=False)


def _nemotron_h(b: Builder) -> None:
    """Each layer is one thing: state space, attention, or feed-forward."""
    how = Decoder(rows="normed")
    x = start(b, how)
    for il in range(b.n_layer):
        b.layer_input(il, x)
        cur = norm.layer(b, x, il, "attn_norm")
        if b.model.is_recr(il):
            cur = mamba2(b, cur, il)
        elif not b.model.n_ff[il]:
            cur = self_attention(b, cur, il, NO_ROPE)
        elif b.has(il, "ffn_gate_inp.weight"):
            cur = _nemotron_experts(b, cur, il)
        else:
            cur = ffn(b, cur, il, "relu_sqr", gate=False)
        if il == b.n_layer - 1 and picks_in_last(b, how):
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
    finish(b, x, how)


def _nemotron_experts(b: Builder, x: Tensor, il: int) -> Tensor:
    """Experts may work in a smaller space than the router and the shared network."""
    model = b.model
    small, back = b.w(il, "ffn_latent_down.weight"), b.w(il, "ffn_latent_up.weight")
    router = ops.mul_mat(b.need(il, "ffn_gate_inp.weight"), x)
    experts = Moe(
        act="relu_sqr", gating="sigmoid", norm=model.expert_weights_norm,
        scale=model.expert_weights_scale, router=router,
    )  # fmt: skip
    cur = moe(b, x if small is None else ops.mul_mat(small, x), il, experts)
    if back is not None:
        cur = ops.mul_mat(back, cur)
    return ops.add(cur, ffn(b, x, il, "relu_sqr", suffix="_shexp", gate=False, bias=False))


ROWS: dict[str, Build] = {
    "mamba": partial(_mamba, second=False),
    "mamba2": partial(_mamba, second=True),
    "jamba": _jamba,
    "granitehybrid": _granite,
    "falcon-h1": _falcon_h1,
    "nemotron_h": _nemotron_h,
    "nemotron_h_moe": _nemotron_h,
}
