"""Hybrids of latent attention and Kimi Delta Attention: Kimi Linear, Kimi K3, Ling 3.

Source: src/models/kimi-linear.cpp, kimi-k3.cpp, bailingmoe3.cpp, b10605.
"""

from __future__ import annotations

from math import inf

from kvwise.memory.compute import ops
from kvwise.memory.compute import state_ops as st
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build, weighted
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, keys, latent, norm
from kvwise.memory.compute.pieces.decoder import (
    Decoder,
    feed_forward,
    finish,
    last_rows,
    picks_in_last,
    start,
)
from kvwise.memory.compute.pieces.ffn import Act, ffn
from kvwise.memory.compute.pieces.kda import Kda, kda
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.moe import Moe, gating_of, moe

LINEAR = Kda("softplus", ("ssm_g_a", "ssm_g_b"))
LING = Kda("bounded", ("ssm_g_a",), apart=False)


def attended(b: Builder, x: Tensor, il: int, *, turn: bool = False) -> Tensor:
    """Latent attention without its projection; Kimi's carries no positions."""
    size = latent.sizes(b, il)
    q = latent.queries(b, x, il)
    key = latent.compressed(b, x, il, size, turn=turn)
    if b.model.is_mla:
        extras = attention.Extras(v_mla=b.need(il, "attn_v_b.weight"))
        q, k, v = latent.absorbed(b, q, key, il, size, turn=turn)
        role = b.cache_of(il).role
        return keys.cached(b, q, k, v, il, role=role, out=None, extras=extras)
    n, heads = b.n_tokens, size.heads
    q = ops.reshape(q, size.head, heads, n)
    both = ops.mul_mat(b.need(il, "attn_kv_b.weight"), key[0])
    row = both.type.row_bytes(size.plain + size.value)
    plain = ops.view(both, (size.plain, heads, n), (row, row * heads))
    shift = both.type.row_bytes(size.plain)
    v = ops.cont(ops.view(both, (size.value, heads, n), (row, row * heads), shift))
    k = ops.concat(ops.repeat(key[1], size.turned, heads, n), plain, 0)
    return attention.cached(b, q, k, v, il, out=None)


def _kimi_linear(b: Builder) -> None:
    how = Decoder(moe=weighted(norm=True, gating="given"), shared="always")
    x = start(b, how)
    for il in range(b.n_layer):
        cur = norm.layer(b, x, il, "attn_norm")
        b.expand(cur)
        if b.model.is_recr(il):
            cur = kda(b, cur, il, LINEAR)
        else:
            cur = linear(b, attended(b, cur, il), il, "attn_output", bias=False)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        x = ops.add(feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, how), x)
    finish(b, x, how)


LING3 = Decoder(moe=weighted(norm="given", gating="given"), shared="plain", rows="normed")


def gated(b: Builder, normed: Tensor, il: int) -> Tensor:
    """Ling 3's latent attention: rotated, and gated per head."""
    value, heads, n = b.model.n_embd_head_v_mla, b.model.n_head[0], b.n_tokens
    cur = ops.reshape(attended(b, normed, il, turn=True), value, heads, n)
    gate = ops.mul_mat(b.need(il, "attn_gate.weight"), normed)
    cur = ops.mul(cur, ops.unary("SIGMOID", ops.reshape(gate, 1, heads, n)))
    cur = ops.cont(cur, value * heads, n)
    return ops.mul_mat(b.need(il, "attn_output.weight"), cur)


def _ling3(b: Builder) -> None:
    how = LING3
    x = start(b, how)
    for il in range(b.n_layer):
        b.layer_input(il, x)
        normed = norm.layer(b, x, il, "attn_norm")
        cur = kda(b, normed, il, LING) if b.model.is_recr(il) else gated(b, normed, il)
        if il == b.n_layer - 1 and picks_in_last(b, how):
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        x = ops.add(feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, how), x)
    finish(b, x, how)


def _kimi_k3(b: Builder) -> None:
    """Layers read a mixture of earlier states of the stream, which restarts at each."""
    model, how = b.model, Decoder()
    every = model.attn_res_block_size
    act: Act = "situ_both" if model.situ_linear_beta > 0 else "situ"
    bank = _Bank()
    x = start(b, how)
    for il in range(b.n_layer):
        cur = bank.mix(x, b.need(il, "attn_res_score.weight")) if every else x
        restart = bool(every) and il % every == 0
        if restart:
            bank.push(x)
        cur = norm.layer(b, cur, il, "attn_norm")
        b.expand(cur)
        cur = _k3_attention(b, cur, il)
        x = cur if restart else ops.add(x, cur)
        cur = bank.mix(x, b.need(il, "ffn_res_score.weight")) if every else x
        cur = norm.layer(b, cur, il, "ffn_norm")
        if il < model.n_layer_dense_lead:
            cur = ffn(b, cur, il, act, bias=False)
        else:
            cur = _k3_experts(b, cur, il, act)
        x = ops.add(x, cur)
    if every:
        x = bank.mix(x, b.need_top("output_res_score.weight"))
    (x,) = last_rows(b, x)
    finish(b, x, how)


class _Bank:
    """Earlier states of the residual stream: [n_embd, states, tokens]."""

    def __init__(self) -> None:
        self.states: Tensor | None = None

    def push(self, x: Tensor) -> None:
        one = ops.reshape(x, x.ne[0], 1, x.ne[1])
        self.states = one if self.states is None else ops.concat(self.states, one, 1)

    def mix(self, x: Tensor, score: Tensor) -> Tensor:
        """The stream and all states, weighed by their scores."""
        states = self.states
        if states is None:
            return x
        count, n = states.ne[1], x.ne[1]
        old = ops.sum_rows(ops.mul(ops.rms_norm(states), score))
        new = ops.sum_rows(ops.mul(ops.rms_norm(x), score))
        shares = ops.soft_max(ops.concat(ops.reshape(old, count, n), new, 0))
        size, row = shares.type.size, shares.nb[1]
        of_old = ops.cont(ops.view_2d(shares, count, n, row))
        of_new = ops.cont(ops.view_2d(shares, 1, n, row, count * size))
        return ops.add(st.hc_pre(states, of_old), ops.mul(x, of_new))


def _k3_attention(b: Builder, x: Tensor, il: int) -> Tensor:
    """Latent attention has a gate for each element of its result."""
    if b.model.is_recr(il):
        bounded = b.model.kda_gate_lower_bound > -inf
        return kda(b, x, il, Kda("negated" if bounded else "softplus", ("ssm_g",), every=True))
    cur = attended(b, x, il)
    gate = b.w(il, "attn_gate.weight")
    if gate is not None:
        cur = ops.mul(cur, ops.unary("SIGMOID", ops.mul_mat(gate, x)))
    return ops.mul_mat(b.need(il, "attn_output.weight"), cur)


def _k3_experts(b: Builder, x: Tensor, il: int, act: Act) -> Tensor:
    """Experts may work in a smaller space than the router and the shared network."""
    model = b.model
    small, back = b.w(il, "ffn_routed_down.weight"), b.w(il, "ffn_routed_up.weight")
    router = ops.mul_mat(b.need(il, "ffn_gate_inp.weight"), x)
    experts = Moe(
        act=act, gating=gating_of(model), norm=model.expert_weights_norm,
        scale=model.expert_weights_scale, router=router,
    )  # fmt: skip
    cur = moe(b, x if small is None else ops.mul_mat(small, x), il, experts)
    if b.has(il, "ffn_routed_norm.weight"):
        cur = norm.layer(b, cur, il, "ffn_routed_norm")
    if back is not None:
        cur = ops.mul_mat(back, cur)
    if not b.has(il, "ffn_gate_shexp.weight"):
        return cur
    return ops.add(cur, ffn(b, x, il, act, suffix="_shexp", bias=False))


ROWS: dict[str, Build] = {
    "kimi-linear": _kimi_linear,
    "kimi-k3": _kimi_k3,
    "bailingmoe3": _ling3,
}
