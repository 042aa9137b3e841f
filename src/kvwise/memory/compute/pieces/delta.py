"""Gated delta nets: fused, one token at a time, or in chunks.

Source: src/models/delta-net-base.cpp, b10605.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvwise import builds
from kvwise.memory.compute import ops
from kvwise.memory.compute import state_ops as st
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.devices.cuda import OFFLOAD_BATCH
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import recurrent

CHUNK = 64
"""Tokens of a chunk; with a decay per channel `CHUNK_PER_CHANNEL`."""

CHUNK_PER_CHANNEL = 16


@dataclass(frozen=True, slots=True)
class Net:
    """Inputs of a delta net: [head, heads, tokens, sequences] each.

    `decay` has one value per head or per channel, `beta` one per head; `state` is
    [head, head, heads, sequences].
    """

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor
    beta: Tensor
    state: Tensor


def normed(b: Builder, x: Tensor) -> Tensor:
    """Queries or keys, of length one."""
    if b.since(builds.DELTA_NORM_BY_RMS):
        return ops.scale(ops.rms_norm(x))
    return ops.l2_norm(x)


def fused_chunks(b: Builder) -> bool:
    """Whether the fused form is on for more than one token (settled for the whole model)."""
    return "fused_op_unavailable" not in b.context.notes


def fused_steps(b: Builder) -> bool:
    """Whether it is on for one token.

    Both forms are off for the same reason, a GPU that takes large batches of host layers; the
    probe of this one has a token per sequence.
    """
    return fused_chunks(b) or b.context.n_seq_max < OFFLOAD_BATCH


def attend(b: Builder, il: int, net: Net, *, flat: bool = False) -> Tensor:
    """Results [head, heads, tokens, sequences]; new states go into the cache (see `write`)."""
    kept = recurrent.state_cache(b).n_rs_seq + 1
    if kept > 1:
        return _with_snapshots(b, il, net, kept)
    out, state = once(b, net)
    recurrent.write(b, "s", il, state, flat=flat)
    return out


def once(b: Builder, net: Net) -> tuple[Tensor, Tensor]:
    """Results, and the new states, which nobody has kept yet."""
    if fused_steps(b) if net.q.ne[2] == 1 else fused_chunks(b):
        return _fused(net)
    return _stepped(net) if net.q.ne[2] == 1 else _chunked(net)


def _result(made: Tensor, net: Net) -> Tensor:
    head, heads, n, n_seqs = net.v.ne
    size = made.type.size
    steps = (head * size, head * heads * size, head * heads * n * size)
    return ops.view(made, (head, heads, n, n_seqs), steps)


def _fused(net: Net) -> tuple[Tensor, Tensor]:
    made = st.gated_delta_net(net.q, net.k, net.v, net.decay, net.beta, net.state)
    head, heads, n, n_seqs = net.v.ne
    size = made.type.size
    steps = (head * size, head * head * size, head * head * heads * size)
    below = head * heads * n * n_seqs * size
    return _result(made, net), ops.view(made, (head, head, heads, n_seqs), steps, below)


def _with_snapshots(b: Builder, il: int, net: Net, kept: int) -> Tensor:
    """The fused form writes a state for each of the last tokens."""
    made = st.gated_delta_net(net.q, net.k, net.v, net.decay, net.beta, net.state, kept)
    out = _result(made, net)
    head, heads, n, n_seqs = net.v.ne
    size, row = made.type.size, head * head * heads
    shape = (row, n_seqs, min(n, kept))
    new = ops.view_3d(
        made, shape, (row * size, row * n_seqs * size), head * heads * n * n_seqs * size
    )
    store = recurrent.storage(b, "s", il)
    plane = recurrent.state_cache(b).cells * store.nb[1]
    b.expand(ops.cpy(new, ops.view_3d(store, shape, (store.nb[1], plane))))
    return out


def _stepped(net: Net) -> tuple[Tensor, Tensor]:
    """One token per sequence, without the fused operation."""
    _, heads, _, n_seqs = net.v.ne
    q, k, v = (ops.permute(t, 0, 2, 1, 3) for t in (ops.scale(net.q), net.k, net.v))
    decay = ops.unary("EXP", ops.reshape(net.decay, 1, net.decay.ne[0], heads, n_seqs))
    beta = ops.reshape(net.beta, 1, 1, heads, n_seqs)
    state = ops.mul(net.state, decay)
    known = ops.sum_rows(ops.mul(state, k))
    change = ops.mul(ops.sub(v, ops.transpose(known)), beta)
    keys = ops.repeat(k, *state.ne)
    state = ops.add(state, ops.mul(keys, ops.transpose(change)))
    return ops.permute(ops.sum_rows(ops.mul(state, q)), 2, 0, 1, 3), state


def _chunked(net: Net) -> tuple[Tensor, Tensor]:
    """Chunks of tokens in parallel, their states one after the other."""
    _, heads, n, n_seqs = net.v.ne
    per_channel = net.decay.ne[0] == net.q.ne[0] and net.decay.ne[1] == net.q.ne[1]
    size = CHUNK_PER_CHANNEL if per_channel else CHUNK
    q, k, v, g, beta = (
        ops.permute(t, 0, 2, 1, 3) for t in (ops.scale(net.q), net.k, net.v, net.decay, net.beta)
    )
    extra = -n % size
    chunks = (n + extra) // size
    q, k, v, g, beta = (ops.pad(t, 0, extra) for t in (q, k, v, g, beta))

    def cut(t: Tensor, count: int) -> Tensor:
        return ops.reshape(t, t.ne[0], size, chunks, count * n_seqs)

    heads_k = net.q.ne[1]
    v_b, k_b = ops.mul(v, beta), ops.mul(k, beta)
    q, k, k_b = cut(q, heads_k), cut(k, heads_k), cut(k_b, heads)
    v, v_b, g = cut(v, heads), cut(v_b, heads), cut(g, heads)
    g = st.cumsum(ops.cont(ops.transpose(g)))
    parts = _products_per_channel if per_channel else _products
    key, query = parts(q, k, k_b, g, heads * n_seqs)
    query = st.tri(query)
    solved = _solve(st.tri(key), size)
    v = ops.mul_mat(ops.cont(ops.transpose(v_b)), solved)
    return _states(replace(net, q=q, k=k, v=v, decay=g), k_b, query, solved, n)


def _decay(g_j: Tensor, g_i: Tensor) -> Tensor:
    return ops.unary("EXP", st.tri(ops.sub(g_j, g_i)))


def _products(q: Tensor, k: Tensor, k_b: Tensor, g: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Decayed products of keys with keys, and of keys with queries, within each chunk."""
    size, chunks = k.ne[1], k.ne[2]
    g_j = ops.repeat(ops.reshape(g, 1, size, chunks, rows), size, size, chunks, rows)
    mask = _decay(g_j, g)
    return ops.mul(ops.mul_mat(k, k_b), mask), ops.mul(ops.mul_mat(k, q), mask)


def _products_per_channel(
    q: Tensor, k: Tensor, k_b: Tensor, g: Tensor, rows: int
) -> tuple[Tensor, Tensor]:
    head, size, chunks, count = k.ne
    blocks = chunks * count
    g_i = ops.reshape(g, size, 1, head, blocks)
    g_j = ops.repeat(ops.reshape(g, 1, size, head, blocks), size, size, head, blocks)
    mask = ops.cont(ops.permute(_decay(g_j, g_i), 2, 1, 0, 3), head, size, size, blocks)
    k_b = ops.reshape(k_b, head, size, 1, blocks)
    k = ops.reshape(k, head, 1, size, blocks)
    q = ops.reshape(q, head, size, 1, blocks)
    by_key, by_query = ops.mul(mask, k_b), ops.mul(mask, q)
    made = (ops.mul_mat(by_key, k), ops.mul_mat(by_query, k))
    key, query = (ops.cont(ops.transpose(ops.reshape(t, size, size, chunks, rows))) for t in made)
    return key, query


def _solve(lower: Tensor, size: int) -> Tensor:
    """(1 + lower)^-1 by substitution."""
    one = st.diag(ops.fill(ops.view_1d(lower, size)))
    left = ops.add(lower, one)
    return ops.add(st.solve_tri(left, ops.unary("NEG", lower)), one)


def _states(net: Net, k_b: Tensor, query: Tensor, solved: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The state from chunk to chunk; each chunk's result goes into the values' place."""
    q, k, v, g = net.q, net.k, net.v, net.decay
    head, _, heads, n_seqs = net.state.ne
    size, chunks = k.ne[1], k.ne[2]
    grown = ops.unary("EXP", g)
    k_b = ops.cont(ops.transpose(k_b))
    k_decayed = ops.mul_mat(ops.mul(k_b, grown), solved)
    q_grown = ops.mul(q, ops.cont(ops.transpose(grown)))
    last = ops.view(g, (1, *g.ne[1:]), g.nb[1:], (g.ne[0] - 1) * g.type.size)
    last = ops.cont(last)
    last_grown = ops.transpose(ops.unary("EXP", last))
    rest = ops.unary("NEG", ops.sub(g, last))
    rest = ops.cont(ops.transpose(ops.unary("EXP", rest)))
    k_rest = ops.cont(ops.transpose(ops.mul(k, rest)))
    state = ops.reshape(net.state, head, head, 1, heads * n_seqs)
    values = ops.cont(ops.transpose(v))
    for chunk in range(chunks):
        old = ops.mul_mat(_slice(k_decayed, chunk), state)
        new = ops.sub(_slice(values, chunk), old)
        within = ops.mul_mat(new, _slice(query, chunk))
        across = ops.mul_mat(state, _slice(q_grown, chunk))
        v = st.set_inplace(v, ops.add(across, within))
        grown_keys = ops.mul_mat(_slice(k_rest, chunk), new)
        state = ops.add(ops.mul(state, _slice(last_grown, chunk)), grown_keys)
    width = head * v.type.size
    out = ops.view(
        v,
        (head, n, heads, n_seqs),
        (width, width * size * chunks, width * size * chunks * heads),
    )
    return ops.permute(out, 0, 2, 1, 3), ops.reshape(state, head, head, heads, n_seqs)


def _slice(t: Tensor, chunk: int) -> Tensor:
    ne, nb = t.ne, t.nb
    return ops.view(t, (ne[0], ne[1], 1, ne[3]), nb[1:], chunk * nb[2])
