"""Kimi Delta Attention: a delta net with a decay per channel, behind three convolutions.

Source: src/models/kimi-linear.cpp, kimi-k3.cpp, bailingmoe3.cpp, b10605.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvwise import builds
from kvwise.memory.compute import ops
from kvwise.memory.compute import state_ops as st
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import delta, norm, recurrent

Decay = Literal["softplus", "negated", "bounded"]
"""Softplus; or a sigmoid times a bound, of the negated value or of the value as it is."""


@dataclass(frozen=True, slots=True)
class Kda:
    """`gate`: names of the matrices, one after the other, that make the gate of the result.

    `apart`: the input takes the way over sequences to the gate, and new states are written as
    one run of elements. `every`: newer builds keep a snapshot of each age, however few the tokens.
    """

    decay: Decay
    gate: tuple[str, ...]
    apart: bool = True
    every: bool = False


def kda(b: Builder, x: Tensor, il: int, how: Kda) -> Tensor:
    """One layer, projection included."""
    head, heads = b.model.n_embd_head_kda, b.model.n_head[0]
    steps, n_seqs, n = recurrent.sequence_tokens(b), b.n_seqs, b.n_tokens
    kept = recurrent.read(b, "r", il)
    whole = how.every and b.since(builds.K3_SNAPSHOTS)
    q, k, v = (_convolved(b, x, kept, il, part, every=whole) for part in range(3))
    decay = ops.reshape(_decay(b, x, il, how.decay), head, heads, steps, n_seqs)
    beta = ops.mul_mat(b.need(il, "ssm_beta.weight"), x)
    beta = ops.unary("SIGMOID", ops.reshape(beta, 1, heads, steps, n_seqs))
    state = ops.reshape(recurrent.read(b, "s", il), head, head, heads, n_seqs)
    net = delta.Net(delta.normed(b, q), delta.normed(b, k), v, decay, beta, state)
    out = ops.cont(delta.attend(b, il, net, flat=how.apart and not whole))
    gate = x
    if how.apart:
        gate = ops.reshape(ops.reshape(x, x.ne[0], steps, n_seqs), x.ne[0], n)
    for name in how.gate:
        gate = ops.mul_mat(b.need(il, name + ".weight"), gate)
    gate = ops.unary("SIGMOID", ops.reshape(gate, head, heads, n))
    out = norm.layer(b, ops.reshape(out, head, heads, n), il, "ssm_norm")
    out = ops.cont(ops.mul(out, gate), head * heads, n)
    return ops.mul_mat(b.need(il, "attn_output.weight"), out)


def _convolved(b: Builder, x: Tensor, kept: Tensor, il: int, part: int, *, every: bool) -> Tensor:
    """Q, K or V; each has a third of the rolling state."""
    head, heads = b.model.n_embd_head_kda, b.model.n_head[0]
    steps, n_seqs, taps = recurrent.sequence_tokens(b), b.n_seqs, b.model.ssm_d_conv
    name, width = "qkv"[part], head * heads
    size, third = kept.type.size, (taps - 1) * width
    shape, nb = (taps - 1, width, n_seqs), ((taps - 1) * size, 3 * third * size)
    cur = ops.mul_mat(b.need(il, f"attn_{name}.weight"), x)
    cur = ops.reshape(cur, width, steps, n_seqs)
    before = ops.view(kept, shape, nb, part * third * size)
    cur = ops.concat(before, ops.transpose(cur), 0)
    store, cache = recurrent.storage(b, "r", il), recurrent.state_cache(b)
    snapshots = cache.n_rs_seq + 1
    for age in range(snapshots if every else min(steps, snapshots)):
        last = ops.view(cur, shape, cur.nb[1:3], max(0, steps - age) * cur.nb[0])
        place = (age * cache.cells * 3 + part) * third * size
        b.expand(ops.cpy(last, ops.view(store, shape, nb, place)))
    kernel = ops.reshape(b.need(il, f"ssm_conv1d_{name}.weight"), taps, width)
    cur = ops.reshape(st.ssm_conv(cur, kernel), width, b.n_tokens)
    return ops.reshape(ops.unary("SILU", cur), head, heads, steps, n_seqs)


def _decay(b: Builder, x: Tensor, il: int, how: Decay) -> Tensor:
    """[head, heads, tokens]."""
    head, heads = b.model.n_embd_head_kda, b.model.n_head[0]
    cur = ops.mul_mat(b.need(il, "ssm_f_a.weight"), x)
    if b.has(il, "ssm_f_b.weight"):
        cur = ops.mul_mat(b.need(il, "ssm_f_b.weight"), cur)
    cur = ops.add(cur, b.need(il, "ssm_dt.bias"))
    if how == "softplus":
        cur = ops.unary("SOFTPLUS", cur)
    slope = ops.reshape(b.need(il, "ssm_a"), 1, heads, 1)
    cur = ops.mul(ops.reshape(cur, head, heads, b.n_tokens), slope)
    if how == "softplus":
        return cur
    if how == "negated":
        cur = ops.scale(cur)
    return ops.scale(ops.unary("SIGMOID", cur))
