"""Hybrids of gated attention and gated delta nets: Qwen3-Next, Qwen3.5 and 3.6.

Source: src/models/qwen3next.cpp, qwen35.cpp, qwen35moe.cpp, b10605.
"""

from __future__ import annotations

from functools import partial

from kvwise.memory.compute import ops
from kvwise.memory.compute import state_ops as st
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, delta, embed, norm, recurrent
from kvwise.memory.compute.pieces.decoder import (
    Decoder,
    finish,
    last_rows,
    picks_in_last,
)
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.moe import Moe, moe
from kvwise.memory.compute.pieces.rope import rope

Heads = tuple[int, int, int, int]
"""Elements of a key's head, heads of keys, elements of a value's head, heads of values."""


def _build(b: Builder, *, next_: bool) -> None:
    how = Decoder(rows="normed")
    x = embed.tokens(b)
    for il in range(b.n_layer):
        b.layer_input(il, x)
        cur = norm.layer(b, x, il, "attn_norm")
        b.expand(cur)
        if b.model.is_recr(il):
            cur = delta_net(b, cur, il, next_=next_)
        else:
            cur = attend(b, cur, il, next_=next_)
        if il == b.n_layer - 1 and picks_in_last(b, how):
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        cur = feed_forward(b, norm.layer(b, x, il, "post_attention_norm"), il)
        x = ops.add(cur, x)
    finish(b, x, how)


def attend(b: Builder, x: Tensor, il: int, *, next_: bool) -> Tensor:
    """Each head of Q stands beside its gate in one product."""
    model, n = b.model, b.n_tokens
    head, heads, heads_kv = model.n_embd_head_v(il), model.n_head[il], model.n_head_kv[il]
    both = linear(b, x, il, "attn_q", bias=False)
    size = both.type.size
    if next_:
        both = ops.reshape(both, head * 2, heads, n)
        steps: tuple[int, ...] = both.nb[1:]
    else:
        steps = (head * 2 * size, head * 2 * heads * size)
    q = norm.layer(b, ops.view(both, (head, heads, n), steps), il, "attn_q_norm")
    gate = ops.cont(ops.view(both, (head, heads, n), steps, head * size), head * heads, n)
    k = ops.reshape(linear(b, x, il, "attn_k", bias=False), head, heads_kv, n)
    v = ops.reshape(linear(b, x, il, "attn_v", bias=False), head, heads_kv, n)
    k = norm.layer(b, k, il, "attn_k_norm")
    cur = attention.cached(b, rope(b, q, il), rope(b, k, il), v, il, out=None)
    cur = ops.mul(cur, ops.unary("SIGMOID", gate))
    return linear(b, cur, il, "attn_output", bias=False)


def delta_net(b: Builder, x: Tensor, il: int, *, next_: bool) -> Tensor:
    model, steps, n_seqs = b.model, recurrent.sequence_tokens(b), b.n_seqs
    heads_v = model.ssm_dt_rank
    sizes = (model.ssm_d_state, model.ssm_n_group, model.ssm_d_inner // heads_v, heads_v)
    _, heads_k, head_v, _ = sizes
    if next_:
        mixed, z = _mixed_next(b, x, il, sizes)
        beta, decay = _gates_next(b, x, il, sizes)
    else:
        mixed = linear(b, x, il, "attn_qkv", bias=False)
        mixed = ops.reshape(mixed, mixed.ne[0], steps, n_seqs)
        z = linear(b, x, il, "attn_gate", bias=False)
        beta, decay = _gates(b, x, il, heads_v)
    kernel = b.need(il, "ssm_conv1d.weight")
    rolled = recurrent.roll(b, il, mixed, kernel.ne[0])
    state = ops.reshape(recurrent.read(b, "s", il), head_v, head_v, heads_v, n_seqs)
    mixed = ops.unary("SILU", st.ssm_conv(rolled, kernel))
    q, k, v = _split(b, mixed, sizes)
    if heads_k != heads_v and (next_ or not delta.fused_chunks(b)):
        repeat = _interleave if next_ else _repeat
        q, k = repeat(q, heads_v), repeat(k, heads_v)
    out = delta.attend(b, il, delta.Net(q, k, v, decay, beta, state))
    out = norm.layer(b, out, il, "ssm_norm")
    out = ops.mul(out, ops.unary("SILU", ops.reshape(z, head_v, heads_v, steps, n_seqs)))
    cur = ops.reshape(out, head_v * heads_v, steps, n_seqs)
    cur = linear(b, cur, il, "ssm_out", bias=False)
    return ops.reshape(cur, b.n_embd, b.n_tokens)


def _split(b: Builder, mixed: Tensor, sizes: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Q and K, normed, and V: views into the convolution's result."""
    head_k, heads_k, head_v, heads_v = sizes
    steps, n_seqs, size = recurrent.sequence_tokens(b), b.n_seqs, mixed.type.size
    row = (head_k * heads_k * 2 + head_v * heads_v) * size
    nb_k, nb_v = (head_k * size, row, row * steps), (head_v * size, row, row * steps)
    keys = (head_k, heads_k, steps, n_seqs)
    width = head_k * heads_k * size
    q = delta.normed(b, ops.view(mixed, keys, nb_k))
    k = delta.normed(b, ops.view(mixed, keys, nb_k, width))
    return q, k, ops.view(mixed, (head_v, heads_v, steps, n_seqs), nb_v, 2 * width)


def _repeat(x: Tensor, heads: int) -> Tensor:
    return ops.repeat(x, x.ne[0], heads, x.ne[2], x.ne[3])


def _interleave(x: Tensor, heads: int) -> Tensor:
    """Each head several times in a row."""
    head, count, steps, n_seqs = x.ne
    apart = ops.reshape(x, head, 1, count, steps * n_seqs)
    more = ops.repeat(apart, head, heads // count, count, steps * n_seqs)
    return ops.reshape(more, head, heads, steps, n_seqs)


def _gates(b: Builder, x: Tensor, il: int, heads: int) -> tuple[Tensor, Tensor]:
    """How much is written, and how much of the state stays."""
    steps, n_seqs = recurrent.sequence_tokens(b), b.n_seqs
    beta = linear(b, x, il, "ssm_beta", bias=False)
    beta = ops.unary("SIGMOID", ops.reshape(beta, 1, heads, steps, n_seqs))
    alpha = ops.reshape(linear(b, x, il, "ssm_alpha", bias=False), heads, steps, n_seqs)
    return beta, _decay(b, alpha, il)


def _decay(b: Builder, alpha: Tensor, il: int) -> Tensor:
    heads, steps, n_seqs, _ = alpha.ne
    cur = ops.unary("SOFTPLUS", ops.add(alpha, b.need(il, "ssm_dt.bias")))
    cur = ops.mul(cur, b.need(il, "ssm_a"))
    return ops.reshape(cur, 1, heads, steps, n_seqs)


def _gates_next(b: Builder, x: Tensor, il: int, sizes: Heads) -> tuple[Tensor, Tensor]:
    """Both out of one product, grouped by the heads of keys."""
    _, heads_k, _, heads_v = sizes
    steps, n_seqs, each = recurrent.sequence_tokens(b), b.n_seqs, heads_v // heads_k
    both = ops.mul_mat(b.need(il, "ssm_ba.weight"), x)
    both = ops.reshape(both, 2 * heads_v // heads_k, heads_k, steps, n_seqs)
    shape = (each, heads_k, steps, n_seqs)
    write = ops.cont(ops.view(both, shape, both.nb[1:]))
    stay = ops.view(both, shape, both.nb[1:], each * both.type.size)
    beta = ops.reshape(ops.unary("SIGMOID", write), 1, heads_v, steps, n_seqs)
    return beta, _decay(b, ops.cont(stay, heads_v, steps, n_seqs), il)


def _mixed_next(b: Builder, x: Tensor, il: int, sizes: Heads) -> tuple[Tensor, Tensor]:
    """Q, K and V in one row, and the gate of the result; older files have one matrix for all."""
    steps, n_seqs = recurrent.sequence_tokens(b), b.n_seqs
    if b.has(il, "attn_qkv.weight"):
        b.leave(il, "ssm_in.weight")
        mixed = ops.mul_mat(b.need(il, "attn_qkv.weight"), x)
        mixed = ops.reshape(mixed, mixed.ne[0], steps, n_seqs)
        return mixed, ops.mul_mat(b.need(il, "attn_gate.weight"), x)
    head_k, heads_k, head_v, heads_v = sizes
    each = head_v * heads_v // heads_k
    whole = ops.mul_mat(b.need(il, "ssm_in.weight"), x)
    whole = ops.reshape(whole, 2 * head_k + 2 * each, heads_k, steps, n_seqs)
    parts, start = [], 0
    for width in (head_k, head_k, each, each):
        offset = start * whole.type.size
        parts.append(ops.view(whole, (width, heads_k, steps, n_seqs), whole.nb[1:], offset))
        start += width
    q, k, v = (ops.cont(part, part.ne[0] * heads_k, steps, n_seqs) for part in parts[:3])
    return ops.concat(ops.concat(q, k, 0), v, 0), ops.cont(parts[3])


def feed_forward(b: Builder, x: Tensor, il: int) -> Tensor:
    """A dense network, or experts and a shared one behind a gate of its own."""
    if not b.has(il, "ffn_gate_inp.weight"):
        return ffn(b, x, il, bias=False)
    cur = moe(b, x, il, Moe(norm=True, scale=b.model.expert_weights_scale))
    if not b.has(il, "ffn_up_shexp.weight"):
        return cur
    shared = ffn(b, x, il, suffix="_shexp", bias=False)
    gate = ops.mul_mat(b.need(il, "ffn_gate_inp_shexp.weight"), x)
    return ops.add(cur, ops.mul(shared, ops.unary("SIGMOID", gate)))


ROWS: dict[str, Build] = {
    "qwen3next": partial(_build, next_=True),
    "qwen35": partial(_build, next_=False),
    "qwen35moe": partial(_build, next_=False),
}
