"""Hyper connections: several residual streams, mixed before and after each part of a layer.

Source: src/models/deepseek4.cpp (build_hc_*), ggml/src/ggml.c (ggml_dsv4_hc_*), b10605.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.gguf.types import F32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor, contiguous_strides

PRE, COMB, POST = "DSV4_HC_PRE", "DSV4_HC_COMB", "DSV4_HC_POST"
"""The fused operations."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """What a part of a layer reads, and what puts its result back into the streams."""

    read: Tensor
    streams: Tensor
    post: Tensor
    comb: Tensor


def start(b: Builder, x: Tensor) -> Tensor:
    """Every stream begins with the embeddings: [n_embd, streams, tokens]."""
    n_embd, n = x.ne[0], x.ne[1]
    return ops.repeat(ops.reshape(x, n_embd, 1, n), n_embd, b.model.dsv4_hc_mult, n)


def before(b: Builder, streams: Tensor, il: int, part: str) -> Mixed:
    """One stream out of all for `part` (`attn` or `ffn`) of a layer."""
    scale = b.need(il, f"hc_{part}_scale.weight")
    base = b.need(il, f"hc_{part}_base.weight")
    mixes = _mixes(streams, b.need(il, f"hc_{part}_fn.weight"))
    count = streams.ne[1]
    pre = ops.scale(_gate(mixes, scale, base, count, 0))
    post = ops.scale(_gate(mixes, scale, base, count, 1))
    return Mixed(_pre(b, streams, pre, il), streams, post, _comb(b, mixes, scale, base, il))


def after(b: Builder, x: Tensor, mixed: Mixed, il: int) -> Tensor:
    """The streams with the result `x` of the part mixed in."""
    streams, post, comb = mixed.streams, mixed.post, mixed.comb
    if POST not in b.unfused:
        return _fused(b, POST, streams.ne, (x, streams, post, comb), il)
    n_embd, count, n, _ = streams.ne
    out: Tensor | None = None
    for to in range(count):
        cur = ops.mul(x, ops.view_2d(post, 1, n, post.nb[1], to * post.nb[0]))
        for stream in range(count):
            one = ops.view_2d(streams, n_embd, n, streams.nb[2], stream * streams.nb[1])
            share = to * comb.nb[0] + stream * comb.nb[1]
            cur = ops.add(cur, ops.mul(one, ops.view_2d(comb, 1, n, comb.nb[2], share)))
        cur = ops.reshape(cur, n_embd, 1, n)
        out = cur if out is None else ops.concat(out, cur, 1)
    if out is None:
        raise ops.Unbuildable("no residual streams")
    return out


def head(b: Builder, streams: Tensor) -> Tensor:
    """One stream for the output."""
    mixes = _mixes(streams, b.need_top("output_hc_fn.weight"))
    pre = ops.mul(mixes, b.need_top("output_hc_scale.weight"))
    pre = ops.unary("SIGMOID", ops.add(pre, b.need_top("output_hc_base.weight")))
    return _sum(streams, ops.scale(pre))


def _fused(
    b: Builder, op: str, ne: tuple[int, int, int, int], src: tuple[Tensor, ...], il: int
) -> Tensor:
    made = ops.new(op, F32, ne, src)
    b.fused_nodes.append((made, il))
    return made


def _mixes(streams: Tensor, weight: Tensor) -> Tensor:
    n_embd, count, n, _ = streams.ne
    return ops.mul_mat(weight, ops.rms_norm(ops.reshape(streams, n_embd * count, n)))


def _gate(mixes: Tensor, scale: Tensor, base: Tensor, count: int, part: int) -> Tensor:
    """One weight per stream and token."""
    first = part * count
    cur = ops.view_2d(mixes, count, mixes.ne[1], mixes.nb[1], mixes.type.row_bytes(first))
    return ops.unary("SIGMOID", _affine(cur, scale, base, part, (count, first)))


def _affine(x: Tensor, scale: Tensor, base: Tensor, part: int, where: tuple[int, int]) -> Tensor:
    """`x` times one scale, plus `where` = (elements, first) of the base."""
    x = ops.mul(x, ops.view_1d(scale, 1, scale.type.row_bytes(part)))
    return ops.add(x, ops.view_1d(base, where[0], base.type.row_bytes(where[1])))


def _pre(b: Builder, streams: Tensor, weights: Tensor, il: int) -> Tensor:
    if PRE not in b.unfused:
        shape = (streams.ne[0], streams.ne[2], 1, 1)
        return _fused(b, PRE, shape, (streams, weights), il)
    return _sum(streams, weights)


def _sum(streams: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of all streams."""
    n_embd, count, n, _ = streams.ne
    parts = [
        ops.mul(
            ops.view_2d(streams, n_embd, n, streams.nb[2], i * streams.nb[1]),
            ops.view_2d(weights, 1, n, weights.nb[1], i * weights.nb[0]),
        )
        for i in range(count)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = ops.add(total, part)
    return total


def _comb(b: Builder, mixes: Tensor, scale: Tensor, base: Tensor, il: int) -> Tensor:
    """How much of each stream goes into each: [to, from, tokens]."""
    count, n = b.model.dsv4_hc_mult, mixes.ne[1]
    if COMB not in b.unfused:
        return _fused(b, COMB, (count, count, n, 1), (mixes, scale, base), il)
    square, first = count * count, 2 * count
    comb = ops.view_2d(mixes, square, n, mixes.nb[1], mixes.type.row_bytes(first))
    comb = _affine(comb, scale, base, 2, (square, first))
    return _sinkhorn(ops.reshape(comb, count, count, n), b.model.dsv4_hc_sinkhorn_iters)


def _sinkhorn(comb: Tensor, rounds: int) -> Tensor:
    """Columns normed, then rows and columns in turn."""
    comb = ops.soft_max(comb)
    epsilon = ops.fill(Tensor("NONE", F32, (1, 1, 1, 1), contiguous_strides(F32, (1, 1, 1, 1))))
    comb = _columns(ops.add(comb, epsilon), epsilon)
    for _ in range(1, rounds):
        comb = ops.div(comb, ops.add(ops.sum_rows(comb), epsilon))
        comb = _columns(comb, epsilon)
    return comb


def _columns(comb: Tensor, epsilon: Tensor) -> Tensor:
    total = ops.sum_rows(ops.cont(ops.permute(comb, 1, 0, 2, 3)))
    return ops.div(comb, ops.permute(ops.add(total, epsilon), 1, 0, 2, 3))
