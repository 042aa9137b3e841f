"""Qwen 4: gated delta nets and attention over pools of tokens, several residual streams, and
embeddings of n-grams in one layer.

Source: src/models/qwen4exp.cpp, src/llama-memory-hybrid-idx.cpp, b11549.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.gguf.types import BY_NAME, F16, F32, I32, GGMLType
from kvwise.memory.compute import ops
from kvwise.memory.compute import state_ops as st
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families.delta_nets import feed_forward
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor, contiguous_strides
from kvwise.memory.compute.pieces import (
    attention,
    cache,
    delta,
    embed,
    hyper,
    indexer,
    keys,
    norm,
    output,
    recurrent,
)
from kvwise.memory.compute.pieces.decoder import last_rows
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.rope import rope
from kvwise.units import pad

I64 = BY_NAME["i64"]
PADDED = 64
"""Pools are counted in steps of it, and the last one is never used."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Inputs of the pooled indexer: how many tokens to a pool, pools in all, new ones, chosen."""

    size: int
    count: int
    new: int
    top: int
    cells: Tensor
    members: Tensor
    mask: Tensor
    tail: Tensor
    new_members: Tensor
    new_cells: Tensor
    new_positions: Tensor


def _qwen4(b: Builder) -> None:
    model = b.model
    grams = _grams(b)
    x = embed.tokens(b)
    b.expand(x)
    pools = pools_of(b) if model.indexer_kpool else None
    streams = hyper.start(b, x)
    b.expand(streams)
    for il in range(b.n_layer):
        b.layer_input(il, streams)
        if grams is not None and il == model.ple_layer:
            streams = _with_grams(b, streams, grams, il)
        cur, inject = mixed(b, streams, il, "hc_attn_")
        b.expand(cur)
        cur = _delta(b, cur, il) if model.is_recr(il) else attend(b, cur, pools, il)
        if il == b.n_layer - 1:
            n_embd, count, n, _ = streams.ne
            flat = ops.reshape(streams, n_embd * count, n)
            cur, inject, flat = last_rows(b, cur, inject, flat)
            streams = ops.reshape(flat, n_embd, count, flat.ne[1])
        streams = combined(b, streams, cur, inject, il)
        cur, inject = mixed(b, streams, il, "hc_ffn_")
        streams = combined(b, streams, feed_forward(b, cur, il), inject, il)
    n_embd, count, n, _ = streams.ne
    hidden = ops.reshape(streams, n_embd * count, n)
    b.outputs.append(hidden)
    b.expand(hidden)
    b.embd = cur = _last(b, streams)
    output.hand_out(b, output.logits(b, cur, bias=False))


# --- residual streams: a gate of low rank for each, and weights that scatter the result ---


def by_stream(weight: Tensor, streams: Tensor) -> Tensor:
    """A weight per element of each stream, which files keep as they like."""
    weight.ne = (streams.ne[0], streams.ne[1], 1, 1)
    weight.nb = contiguous_strides(weight.type, weight.ne)
    return weight


def _normed(streams: Tensor, weight: Tensor) -> Tensor:
    """Each stream on its own."""
    return ops.mul(ops.rms_norm(streams), by_stream(weight, streams))


def _gated(streams: Tensor, weights: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    n_embd, count, n, _ = streams.ne
    scale, down, up = weights
    normed = ops.reshape(_normed(streams, scale), n_embd * count, n)
    low = ops.unary("SILU", ops.scale(ops.mul_mat(down, normed)))
    return normed, ops.mul_mat(up, low)


def mixed(b: Builder, streams: Tensor, il: int, start: str) -> tuple[Tensor, Tensor]:
    """What a part of a layer reads, and how its result goes into each stream."""
    normed, cur = read(b, streams, il, start)
    return cur, ops.mul_mat(b.need(il, start + "inject.weight"), normed)


def read(b: Builder, streams: Tensor, il: int, start: str) -> tuple[Tensor, Tensor]:
    """The normed streams side by side, and one stream out of all; weights begin with `start`."""
    n_embd, count, n, _ = streams.ne
    norm_, down, up = (b.need(il, f"{start}{each}.weight") for each in ("norm", "down", "up"))
    normed, gate = _gated(streams, (norm_, down, up))
    if hyper.PRE in b.unfused:
        return normed, _averaged(normed, gate, count)
    shape = (n_embd, count, n)
    src = (ops.reshape(normed, *shape), ops.reshape(gate, *shape))
    cur = ops.new(hyper.PRE, F32, (n_embd, n, 1, 1), src)
    b.fused_nodes.append((cur, il))
    return normed, cur


def _averaged(normed: Tensor, gate: Tensor, count: int) -> Tensor:
    n_embd, n = normed.ne[0] // count, normed.ne[1]
    gated = ops.mul(normed, ops.unary("SIGMOID", gate))
    gated = ops.reshape(gated, n_embd, count, n)
    step = gated.type.row_bytes(n_embd)
    cur = ops.cont(ops.view_2d(gated, n_embd, n, step * count))
    for stream in range(1, count):
        cur = ops.add(cur, ops.view_2d(gated, n_embd, n, step * count, step * stream))
    return ops.scale(cur)


def combined(b: Builder, streams: Tensor, made: Tensor, inject: Tensor, il: int) -> Tensor:
    weights = ops.scale(ops.unary("SIGMOID", ops.scale(inject)))
    if hyper.POST not in b.unfused:
        cur = ops.new(hyper.POST, F32, streams.ne, (made, streams, weights, None))
        b.fused_nodes.append((cur, il))
        return cur
    n_embd, count, n, _ = streams.ne
    weights = ops.reshape(weights, 1, count, n)
    wide = ops.repeat(ops.reshape(made, n_embd, 1, n), n_embd, count, n)
    return ops.add(streams, ops.mul(wide, weights))


def _last(b: Builder, streams: Tensor) -> Tensor:
    """The mixer at the end is the norm of the output, and never fused."""
    norm_, down, up = (b.need_top(f"output_hc_{each}.weight") for each in ("norm", "down", "up"))
    normed, gate = _gated(streams, (norm_, down, up))
    return _averaged(normed, gate, streams.ne[1])


# --- embeddings of n-grams ---


def _grams(b: Builder) -> Tensor | None:
    model = b.model
    if model.ple_layer < 0:
        return None
    heads = (model.ple_ngram_size - 1) * model.ple_heads_per_ngram
    rows = b.input("n-gram rows", I32, heads * b.n_tokens)
    cur = ops.get_rows(b.need_top("per_layer_token_embd.weight"), rows)
    cur = ops.reshape(cur, model.n_embd_per_layer * heads, b.n_tokens)
    b.expand(cur)
    return cur


def _with_grams(b: Builder, streams: Tensor, grams: Tensor, il: int) -> Tensor:
    """The streams with gated values of the n-grams, and a dilated convolution over these."""
    n_embd, count, n, _ = streams.ne
    key = ops.mul_mat(b.need(il, "ple_key.weight"), grams)
    value = ops.mul_mat(b.need(il, "ple_value.weight"), grams)
    key = _grouped(b, key, il, "ple_norm_key", count)
    query = _grouped(b, streams, il, "ple_norm_query", count)
    fit = ops.scale(ops.sum_rows(ops.mul(key, query)))
    size = ops.sqrt(ops.clamp(ops.unary("ABS", fit)))
    gate = ops.unary("SIGMOID", ops.mul(ops.unary("SGN", fit), size))
    wide = ops.repeat(ops.reshape(value, n_embd, 1, n), n_embd, count, n)
    gated = ops.mul(wide, gate)
    flat = ops.reshape(gated, n_embd * count, n)
    normed = ops.reshape(_grouped(b, flat, il, "ple_norm_conv", count), n_embd * count, n)
    made = ops.reshape(ops.cont(_convolved(b, normed, il)), n_embd, count, n)
    return ops.add(streams, ops.add(gated, made))


def _grouped(b: Builder, x: Tensor, il: int, name: str, count: int) -> Tensor:
    cur = ops.reshape(x, b.n_embd, count, b.n_tokens)
    return _normed(cur, b.need(il, name + ".weight"))


def _convolved(b: Builder, x: Tensor, il: int) -> Tensor:
    """Depthwise, a step of one n-gram apart, as a sum of shifted copies."""
    taps, apart = b.model.ple_conv_kernel, b.model.ple_ngram_size
    steps, n_seqs, width = recurrent.sequence_tokens(b), b.n_seqs, x.ne[0]
    before = (taps - 1) * apart
    store = _gram_storage(b, il)
    rolled = _rolled(b, store, ops.reshape(x, width, steps, n_seqs), before)
    kernel = b.need(il, "ple_conv1d.weight")
    total: Tensor | None = None
    for tap in range(taps):
        first = before - (taps - 1 - tap) * apart
        shape, size = (steps, width, n_seqs), rolled.type.size
        part = ops.view_3d(rolled, shape, rolled.nb[1:3], first * size)
        part = ops.cont(ops.transpose(part))
        weight = ops.cont(ops.view_2d(kernel, 1, width, kernel.nb[1], tap * kernel.nb[0]))
        weight = ops.reshape(weight, width)
        if weight.type is not F32:
            weight = ops.cast(weight, F32)
        part = ops.mul(part, weight)
        total = part if total is None else ops.add(total, part)
    if total is None:
        raise Unbuildable("a convolution without taps")
    return ops.unary("SILU", total)


def _gram_storage(b: Builder, il: int) -> Tensor:
    for kept in b.caches:
        if kept.role == "ple":
            shape = (kept.r_row, kept.cells * (1 + kept.n_rs_seq), 1, 1)
            return b.cache_tensor("p", il, F32, shape)
    raise Unbuildable("the n-grams have no state")


def _rolled(b: Builder, store: Tensor, x: Tensor, columns: int) -> Tensor:
    """The kept columns before `x` [channels, tokens, sequences]; a copy for every snapshot."""
    width, n_seqs = x.ne[0], b.n_seqs
    kept = recurrent.state_cache(b)
    state = ops.reshape(recurrent.read_from(b, store), columns, width, n_seqs)
    cur = ops.concat(state, ops.transpose(x), 0)
    row = columns * width
    for age in range(kept.n_rs_seq + 1):
        first = max(0, cur.ne[0] - columns - age)
        shape, size = (columns, width, n_seqs), cur.type.size
        last = ops.cont(ops.view_3d(cur, shape, cur.nb[1:3], first * size))
        place = age * kept.cells * store.type.row_bytes(row)
        b.expand(ops.cpy(last, ops.view_2d(store, row, n_seqs, store.nb[1], place)))
    return cur


# --- layers ---


def _delta(b: Builder, x: Tensor, il: int) -> Tensor:
    model, steps, n_seqs = b.model, recurrent.sequence_tokens(b), b.n_seqs
    head, heads_k, heads = model.ssm_d_state, model.ssm_n_group, model.ssm_dt_rank
    mixed = linear(b, x, il, "attn_qkv", bias=False)
    mixed = ops.reshape(mixed, mixed.ne[0], steps, n_seqs)
    z = linear(b, x, il, "attn_gate", bias=False)
    beta = ops.reshape(linear(b, x, il, "ssm_beta", bias=False), 1, heads, steps, n_seqs)
    beta = ops.unary("SIGMOID", beta)
    alpha = ops.reshape(linear(b, x, il, "ssm_alpha", bias=False), heads, steps, n_seqs)
    stays = ops.unary("SOFTPLUS", ops.add(alpha, b.need(il, "ssm_dt.bias")))
    stays = ops.reshape(ops.mul(stays, b.need(il, "ssm_a")), 1, heads, steps, n_seqs)
    kernel = b.need(il, "ssm_conv1d.weight")
    rolled = _rolled(b, recurrent.storage(b, "r", il), mixed, kernel.ne[0] - 1)
    state = ops.reshape(recurrent.read(b, "s", il), head, head, heads, n_seqs)
    mixed = ops.unary("SILU", st.ssm_conv(rolled, kernel))
    size, width = mixed.type.size, head * heads_k
    row = (2 * width + head * heads) * size
    shape, nb = (head, heads_k, steps, n_seqs), (head * size, row, row * steps)
    q = delta.normed(b, ops.view(mixed, shape, nb))
    k = delta.normed(b, ops.view(mixed, shape, nb, width * size))
    v = ops.view(mixed, (head, heads, steps, n_seqs), nb, 2 * width * size)
    if heads_k != heads and not (delta.fused_steps(b) and delta.fused_chunks(b)):
        q, k = (ops.repeat(each, head, heads, steps, n_seqs) for each in (q, k))
    out = delta.attend(b, il, delta.Net(q, k, v, stays, beta, state))
    out = norm.layer(b, out, il, "ssm_norm")
    out = ops.mul(out, ops.unary("SIGMOID", ops.reshape(z, head, heads, steps, n_seqs)))
    cur = ops.reshape(out, head * heads, steps, n_seqs)
    return ops.reshape(linear(b, cur, il, "ssm_out", bias=False), b.n_embd, b.n_tokens)


def attend(b: Builder, x: Tensor, pools: Pools | None, il: int) -> Tensor:
    """Each head of Q stands beside its gate; where there are pools, only the best are seen."""
    model, n = b.model, b.n_tokens
    mask: Tensor | None = None
    if pools is not None and model.dsv4_compress_ratios[il] > 0:
        mask = _choose(b, x, pools, il)
    else:
        b.leave(il, "indexer.")
    head, heads, heads_kv = model.n_embd_head_v(il), model.n_head[il], model.n_head_kv[il]
    both, k, v = (linear(b, x, il, f"attn_{side}", bias=False) for side in "qkv")
    size = both.type.size
    steps = (head * 2 * size, head * 2 * heads * size)
    q = norm.layer(b, ops.view(both, (head, heads, n), steps), il, "attn_q_norm")
    k = norm.layer(b, ops.reshape(k, head, heads_kv, n), il, "attn_k_norm")
    gate = ops.cont(ops.view(both, (head, heads, n), steps, head * size), head * heads, n)
    v = ops.reshape(v, head, heads_kv, n)
    if mask is not None:
        mask = ops.reshape(mask, *mask.ne)
    q, k = rope(b, q, il), rope(b, k, il)
    cur = attention.cached(b, q, k, v, il, out=None, mask=mask)
    cur = ops.mul(cur, ops.unary("SIGMOID", gate))
    return linear(b, cur, il, "attn_output", bias=False)


# --- pools of tokens ---


def pools_of(b: Builder) -> Pools:
    """As many pools as the whole cache can hold are reserved, all of them new."""
    model, n = b.model, b.n_tokens
    size, kept = model.indexer_kpool, b.cache_named("idx")
    most = kept.cells // size * b.context.n_seq_max
    count = max(PADDED, pad(most + 1, PADDED))
    new = max(most, 1)
    made = Pools(
        size,
        count,
        new,
        min(count, model.indexer_top_k // size),
        cells=b.input("pool cells", I32, count),
        members=b.input("pool members", I32, size, count),
        mask=b.input("pool mask", F16, count, n),
        tail=b.input("pool tail", I32, size - 1, n),
        new_members=b.input("new pool members", I32, size, new),
        new_cells=b.input("new pool cells", I64, new),
        new_positions=b.input("new pool positions", I32, 4 * new),
    )
    b.expand(made.cells, made.members, made.mask, made.tail)
    return made


def _choose(b: Builder, x: Tensor, pools: Pools, il: int) -> Tensor:
    """The mask with all but the best pools of each token closed."""
    model, n = b.model, b.n_tokens
    size, heads, top = model.indexer_head_size, model.indexer_n_head, pools.top
    raw = ops.mul_mat(b.need(il, "indexer.k_proj.weight"), x)
    packed = ops.reshape(ops.concat(raw, _filled(F32, size, n), 0), 2 * size, 1, n)
    kept = keys.keys_of(b, "idx")
    keys.write(b, kept, packed, il)
    pooled = _pooled(b, keys.read(b, kept, il), pools, il)
    q = ops.reshape(ops.mul_mat(b.need(il, "indexer.q_proj.weight"), x), size, heads, n)
    q = rope(b, norm.layer(b, q, il, "indexer.q_norm"), il)
    weights = _filled(F32, heads, n)
    scores = ops.new(indexer.FUSED, F32, (pools.count, n, 1, 1), (q, pooled, weights, pools.mask))
    b.fused_nodes.append((scores, il))
    best = ops.top_k(scores, top)
    cells = ops.get_rows(pools.members, ops.reshape(best, top * n))
    cells = ops.concat(ops.reshape(cells, pools.size * top, n), pools.tail, 0)
    b.expand(cells)
    theirs = ops.get_rows(ops.reshape(scores, 1, pools.count, n), best)
    live = ops.clamp(ops.scale(theirs))
    live = ops.reshape(ops.repeat(live, pools.size, top, n), pools.size * top, n)
    tail = ops.clamp(ops.scale(ops.cast(pools.tail, F32)))
    return _opened(b, cells, ops.concat(live, tail, 0), il)


def _pooled(b: Builder, stored: Tensor, pools: Pools, il: int) -> Tensor:
    """New pools out of raw keys, then the pooled keys of all: [size, 1, pools]."""
    size, count, new = b.model.indexer_head_size, pools.size, pools.new
    base = stored.base
    if base is None:
        raise Unbuildable("the indexer's cache has no storage")
    step, cells, kind = base.nb[1], base.ne[1] * base.ne[2], base.type
    raw = ops.view_2d(base, size, cells, step)
    whole = ops.view_2d(base, size, cells, step, kind.row_bytes(size))
    rows = ops.get_rows(raw, ops.reshape(pools.new_members, count * new))
    rows = ops.reshape(rows, size, count, new)
    made: Tensor | None = None
    for member in range(count):
        one = ops.view_2d(rows, size, new, rows.nb[2], member * rows.nb[1])
        made = ops.cont(one) if made is None else ops.add(made, one)
    if made is None:
        raise Unbuildable("pools of no tokens")
    made = norm.layer(b, ops.scale(made), il, "indexer.k_norm")
    made = ops.rope(ops.reshape(made, size, 1, new), pools.new_positions)
    b.expand(ops.set_rows(whole, ops.reshape(made, size, new), pools.new_cells))
    return ops.reshape(ops.get_rows(whole, pools.cells), size, 1, pools.count)


def _opened(b: Builder, cells: Tensor, live: Tensor, il: int) -> Tensor:
    mask = cache.mask_input(b, b.cache_of(il))
    n, count, all_cells, kind = b.n_tokens, cells.ne[0], mask.ne[0], mask.type
    rows = all_cells + count
    closed = ops.reshape(ops.repeat(_filled(kind, rows), rows, n), 1, rows, n)
    zeros = ops.reshape(ops.repeat(_filled(kind, count), count, n), 1, count, n)
    dump = ops.scale(st.cumsum(ops.fill(live)))
    where = ops.mul(ops.sub(ops.cast(cells, F32), dump), live)
    where = ops.cast(ops.add(where, dump), I32)
    opened = ops.set_rows(closed, zeros, ops.reshape(where, count, n, 1))
    row = opened.nb[2]
    steps = (row, row * mask.ne[1], row * mask.ne[1] * mask.ne[2])
    return ops.add(ops.view(opened, mask.ne, steps), mask)


def _filled(kind: GGMLType, *ne: int) -> Tensor:
    shape = (*ne, 1, 1, 1)[:4]
    return ops.fill(Tensor("NONE", kind, shape, contiguous_strides(kind, shape)))  # type: ignore[arg-type]


ROWS: dict[str, Build] = {"qwen4exp": _qwen4}
