"""Decoders that gate attention's result with the layer's input before they project it.

Source: src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.mixtures import rope_by_step
from kvwise.memory.compute.families.rows import Build, plain, weighted
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import norm
from kvwise.memory.compute.pieces.decoder import (
    Attention,
    Decoder,
    feed_forward,
    finish,
    last_rows,
    self_attention,
    start,
)

AS_GIVEN = weighted(norm="given", gating="given")


def _windowed_layers(b: Builder, il: int) -> bool:
    return b.model.is_swa(il)


def _full_layers(b: Builder, il: int) -> bool:
    return not b.model.is_swa(il)


def _sigmoid(b: Builder, cur: Tensor, x: Tensor, il: int) -> Tensor:
    """One factor per element."""
    gate = ops.mul_mat(b.need(il, "attn_gate.weight"), x)
    return ops.mul(cur, ops.unary("SIGMOID", gate))


def _softplus(b: Builder, cur: Tensor, x: Tensor, il: int) -> Tensor:
    """One factor per head, or per element; the matrix says which."""
    gate = ops.unary("SOFTPLUS", ops.mul_mat(b.need(il, "attn_gate.weight"), x))
    if gate.ne[0] == b.model.n_head[il]:
        return per_head(cur, gate)
    return ops.mul(cur, gate)


def _sigmoid_of_heads(b: Builder, cur: Tensor, x: Tensor, il: int) -> Tensor:
    """One factor per head, where the layer has a gate."""
    if not b.has(il, "attn_gate.weight"):
        return cur
    return per_head(cur, ops.unary("SIGMOID", ops.mul_mat(b.need(il, "attn_gate.weight"), x)))


def per_head(cur: Tensor, gate: Tensor) -> Tensor:
    width, n, _, _ = cur.ne
    heads = gate.ne[0]
    made = ops.mul(ops.reshape(cur, width // heads, heads, n), ops.reshape(gate, 1, heads, n))
    return ops.reshape(made, width, n)


def _normed_twice(b: Builder, how: Decoder, *, pinned: bool) -> None:
    """Norms after attention and after the network; rows are picked after the first of them."""
    x = start(b, how)
    for il in range(b.n_layer):
        b.layer_input(il, x)
        cur = self_attention(b, norm.layer(b, x, il, "attn_norm"), il, how.attn)
        layer = il if pinned else -1
        cur = norm.norm(b, cur, norm.weight(b, il, "post_attention_norm"), il=layer)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        cur = feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, how)
        x = ops.add(norm.norm(b, cur, norm.weight(b, il, "post_ffw_norm"), il=layer), x)
    finish(b, x, how)


def _afmoe(b: Builder) -> None:
    attn = Attention(qk_norm="before", rope=rope_by_step, gate=_sigmoid)
    how = Decoder(attn=attn, embed_scale=True, moe=AS_GIVEN, shared="plain")
    _normed_twice(b, how, pinned=True)


def _muse_glimmer(b: Builder) -> None:
    attn = Attention(qk_norm="before", rope=_windowed_layers, gate=_sigmoid)
    how = Decoder(attn=attn, embed_norm="bare", logit_scale="always", soft_cap="given")
    _normed_twice(b, how, pinned=False)


STEP35 = Attention(qk_norm="before", two_sizes=True, factors=_full_layers, gate=_sigmoid_of_heads)

ROWS: dict[str, Build] = {
    "afmoe": _afmoe,
    "muse-glimmer": _muse_glimmer,
    "laguna": plain(
        Attention(qk_norm="before", gate=_softplus), moe=AS_GIVEN, shared="plain"
    ),
    "step35": plain(
        STEP35, moe=AS_GIVEN, shared="always", rows="stream",
    ),
}  # fmt: skip
