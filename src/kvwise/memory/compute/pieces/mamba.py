"""Mamba layers of both kinds.

Source: src/models/mamba-base.cpp, b10605.
"""

from __future__ import annotations

from kvwise import builds
from kvwise.memory.compute import ops
from kvwise.memory.compute import state_ops as st
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import norm, recurrent
from kvwise.memory.compute.pieces.linear import linear


def mamba(b: Builder, x: Tensor, il: int) -> Tensor:
    """A layer of the first kind: a decay per channel and state."""
    model, n_seqs, steps = b.model, b.n_seqs, recurrent.sequence_tokens(b)
    inner, state = model.ssm_d_inner, model.ssm_d_state
    kept = recurrent.read(b, "r", il)
    kept = ops.reshape(kept, model.ssm_d_conv - 1, inner, n_seqs)
    x = ops.reshape(x, x.ne[0], steps, n_seqs)
    both = linear(b, x, il, "ssm_in", bias=False)
    shape, nb = (inner, *both.ne[1:3]), both.nb[1:3]
    z = ops.view(both, shape, nb, inner * both.type.size)
    rolled = ops.concat(kept, ops.transpose(ops.view(both, shape, nb)), 0)
    last = ops.view(
        rolled, (model.ssm_d_conv - 1, inner, n_seqs), rolled.nb[1:3], steps * rolled.nb[0]
    )
    recurrent.write(b, "r", il, last)
    cur = _convolved(b, rolled, il)
    made = _scan(b, cur, il)
    width = cur.ne[0] * cur.ne[1] * cur.type.size
    new = ops.view_1d(made, state * inner * n_seqs, width * n_seqs)
    recurrent.write(b, "s", il, new)
    y = ops.view(made, (inner, steps, n_seqs), (cur.nb[1], width))
    y = ops.add(y, ops.mul(cur, b.need(il, "ssm_d")))
    y = ops.glu("SWIGLU", ops.cont(z), y)
    cur = linear(b, y, il, "ssm_out", bias=False)
    return ops.reshape(cur, cur.ne[0], b.n_tokens)


def _convolved(b: Builder, rolled: Tensor, il: int) -> Tensor:
    cur = st.ssm_conv(rolled, b.need(il, "ssm_conv1d.weight"))
    return ops.unary("SILU", ops.add(cur, b.need(il, "ssm_conv1d.bias")))


def _scan(b: Builder, x: Tensor, il: int) -> Tensor:
    """Time steps, B and C made of `x`, and the scan over all states."""
    model, n_seqs, steps = b.model, b.n_seqs, recurrent.sequence_tokens(b)
    state, rank = model.ssm_d_state, model.ssm_dt_rank
    made = ops.mul_mat(b.need(il, "ssm_x.weight"), x)
    nb = (state * made.nb[0], made.nb[1], made.nb[2])
    dt = ops.view(made, (rank, steps, n_seqs), made.nb[1:3])
    groups = (state, 1, steps, n_seqs)
    in_ = ops.view(made, groups, nb, rank * made.nb[0])
    out = ops.view(made, groups, nb, (rank + state) * made.nb[0])
    names = ("ssm_dt_norm", "ssm_b_norm", "ssm_c_norm")
    if model.ssm_dt_b_c_rms or all(norm.weight(b, il, name) is not None for name in names):
        dt, in_, out = (
            norm.layer(b, t, il, name) for t, name in zip((dt, in_, out), names, strict=True)
        )
    elif b.since(builds.STEPS_COPIED):
        dt = ops.cont(dt)
    dt = ops.add(ops.mul_mat(b.need(il, "ssm_dt.weight"), dt), b.need(il, "ssm_dt.bias"))
    decay = b.need(il, "ssm_a")
    inner = model.ssm_d_inner
    heads = ops.reshape(x, 1, inner, steps, n_seqs)
    cells = recurrent.state_cache(b).cells

    def rows(states: Tensor, which: Tensor) -> Tensor:
        apart = ops.reshape(states, state, 1, inner, cells)
        return st.ssm_scan(apart, heads, dt, decay, in_, out, which)

    return recurrent.read(b, "s", il, rows)


def mamba2(b: Builder, x: Tensor, il: int) -> Tensor:
    """A layer of the second kind: a decay per head, groups of B and C."""
    model, n_seqs, steps = b.model, b.n_seqs, recurrent.sequence_tokens(b)
    inner, state, groups = model.ssm_d_inner, model.ssm_d_state, model.ssm_n_group
    heads = model.ssm_dt_rank
    head = inner // heads
    mixed = inner + 2 * groups * state
    whole = linear(b, x, il, "ssm_in", bias=False)
    whole = ops.reshape(whole, whole.ne[0], steps, n_seqs)
    size, nb = whole.type.size, whole.nb[1:3]
    z = ops.view(whole, (head, heads, steps, n_seqs), (head * size, *nb))
    dt = ops.view(whole, (heads, steps, n_seqs), nb, (inner + mixed) * size)
    cur = ops.view(whole, (mixed, steps, n_seqs), nb, inner * size)
    cur = _convolved(b, recurrent.roll(b, il, cur, model.ssm_d_conv, newest_first=True), il)
    values = ops.view(cur, (head, heads, steps, n_seqs), (head * size, *cur.nb[1:3]))
    y = _scan2(b, cur, values, dt, il)
    y = ops.add(y, ops.mul(values, b.need(il, "ssm_d")))
    y = ops.glu("SWIGLU", ops.cont(z), y)
    if b.has(il, "ssm_norm.weight"):
        y = ops.reshape(y, inner // groups, groups, steps, n_seqs)
        y = norm.layer(b, y, il, "ssm_norm")
    return linear(b, ops.reshape(y, inner, b.n_tokens), il, "ssm_out", bias=False)


def _scan2(b: Builder, cur: Tensor, values: Tensor, dt: Tensor, il: int) -> Tensor:
    """The scan; its new states, and snapshots of them, go into the cache."""
    model, n_seqs, steps = b.model, b.n_seqs, recurrent.sequence_tokens(b)
    inner, state, groups = model.ssm_d_inner, model.ssm_d_state, model.ssm_n_group
    head, heads = values.ne[:2]
    size = cur.type.size
    shape, nb = (state, groups, steps, n_seqs), (state * size, *cur.nb[1:3])
    in_ = ops.view(cur, shape, nb, inner * size)
    out = ops.view(cur, shape, nb, (inner + groups * state) * size)
    dt = ops.add(ops.cont(dt), b.need(il, "ssm_dt.bias"))
    decay = b.need(il, "ssm_a")
    cache = recurrent.state_cache(b)
    snapshots = cache.n_rs_seq + 1
    store = recurrent.storage(b, "s", il)

    def rows(states: Tensor, which: Tensor) -> Tensor:
        apart = ops.reshape(states, state, head, heads, store.ne[1])
        return st.ssm_scan(apart, values, dt, decay, in_, out, which, snapshots)

    made = recurrent.read(b, "s", il, rows)
    row = state * inner
    kept = (row, n_seqs, min(steps, snapshots))
    row *= size
    new = ops.view(made, kept, (row, row * n_seqs), values.elements * size)
    b.expand(ops.cpy(new, ops.view(store, kept, (store.nb[1], cache.cells * row))))
    step = values.nb[1]
    strides = (step, heads * step, steps * heads * step)
    return ops.view(made, (head, heads, steps, n_seqs), strides)
