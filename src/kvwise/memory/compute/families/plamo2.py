"""PLaMo 2: a Mamba layer of its own kind, and attention in some layers.

Source: src/models/plamo2.cpp, b10605.
"""

from __future__ import annotations

from kvwise import builds
from kvwise.memory.compute import ops
from kvwise.memory.compute import state_ops as st
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import norm, recurrent
from kvwise.memory.compute.pieces.decoder import (
    Attention,
    Decoder,
    finish,
    last_rows,
    self_attention,
    start,
)
from kvwise.memory.compute.pieces.ffn import ffn

MIN_STEP_RANK = 64
"""The time steps' rank is a sixteenth of the model's width, but at least this."""


def _plamo2(b: Builder) -> None:
    """Norms before and after each part; older builds pick rows after the network."""
    attn = Attention(qk_norm="before", two_sizes=True)
    how = Decoder(attn=attn)
    x = start(b, how)
    for il in range(b.n_layer):
        cur = norm.layer(b, x, il, "attn_norm")
        cur = _mamba(b, cur, il) if b.model.is_recr(il) else self_attention(b, cur, il, attn)
        last = il == b.n_layer - 1
        early = b.since(builds.PLAMO2_ROWS_EARLIER)
        if last and early:
            cur, x = last_rows(b, cur, x)
        x = ops.add(norm.layer(b, cur, il, "post_attention_norm"), x)
        cur = ffn(b, norm.layer(b, x, il, "ffn_norm"), il, "swiglu")
        cur = norm.layer(b, cur, il, "post_ffw_norm")
        if last and not early:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
    finish(b, x, how)


def _mamba(b: Builder, x: Tensor, il: int) -> Tensor:
    model, n_seqs, steps = b.model, b.n_seqs, recurrent.sequence_tokens(b)
    inner, heads, taps = model.ssm_d_inner, model.ssm_dt_rank, model.ssm_d_conv
    head = inner // heads
    shape = (head, heads, steps, n_seqs)
    kept = ops.reshape(recurrent.read(b, "r", il), taps - 1, inner, n_seqs)
    x = ops.reshape(x, x.ne[0], steps, n_seqs)
    both = ops.permute(ops.mul_mat(b.need(il, "ssm_in.weight"), x), 0, 2, 1, 3)
    both = ops.cont(both, head * 2, heads, steps, n_seqs)
    cur = ops.cont(ops.view(both, shape, both.nb[1:], head * both.type.size), inner, steps, n_seqs)
    z = ops.view(both, shape, both.nb[1:])
    rolled = ops.concat(kept, ops.transpose(cur), 0)
    last = ops.view(rolled, (taps - 1, inner, n_seqs), rolled.nb[1:3], steps * rolled.nb[0])
    recurrent.write(b, "r", il, last)
    cur = ops.unary("SILU", st.ssm_conv(rolled, b.need(il, "ssm_conv1d.weight")))
    size = cur.type.size
    heads_nb = (head * size, inner * size, inner * steps * size)
    values = ops.view(cur, shape, heads_nb)
    made = _scan(b, cur, values, il)
    new = model.ssm_d_state * inner * n_seqs
    recurrent.write(b, "s", il, ops.view_1d(made, new, inner * b.n_tokens * size))
    y = ops.view(made, shape, heads_nb)
    y = ops.add(y, ops.mul(values, ops.reshape(b.need(il, "ssm_d"), 1, heads)))
    y = ops.glu("SWIGLU", ops.cont(z), y)
    y = ops.view(y, (inner, steps, n_seqs), y.nb[2:4])
    cur = ops.mul_mat(b.need(il, "ssm_out.weight"), y)
    return ops.reshape(cur, cur.ne[0], b.n_tokens)


def _scan(b: Builder, x: Tensor, values: Tensor, il: int) -> Tensor:
    """B, C and time steps, all normed, and the scan."""
    model, n_seqs, steps = b.model, b.n_seqs, recurrent.sequence_tokens(b)
    state, (head, heads) = model.ssm_d_state, values.ne[:2]
    made = ops.mul_mat(b.need(il, "ssm_x.weight"), x)
    size = made.type.size

    def part(width: int, first: int, name: str) -> Tensor:
        cut = ops.view(made, (width, steps, n_seqs), made.nb[1:3], first * size)
        return norm.layer(b, cut, il, name)

    in_, out = part(state, 0, "ssm_b_norm"), part(state, state, "ssm_c_norm")
    dt = part(max(MIN_STEP_RANK, model.n_embd // 16), 2 * state, "ssm_dt_norm")
    dt = ops.add(ops.mul_mat(b.need(il, "ssm_dt.weight"), dt), b.need(il, "ssm_dt.bias"))
    decay = ops.reshape(b.need(il, "ssm_a"), 1, heads)
    in_, out = (
        ops.view(t, (state, 1, steps, n_seqs), (state * t.nb[0], *t.nb[1:3])) for t in (in_, out)
    )
    cells = recurrent.state_cache(b).cells

    def rows(states: Tensor, which: Tensor) -> Tensor:
        apart = ops.reshape(states, state, head, heads, cells)
        return st.ssm_scan(apart, values, dt, decay, in_, out, which)

    return recurrent.read(b, "s", il, rows)


ROWS: dict[str, Build] = {"plamo2": _plamo2}
