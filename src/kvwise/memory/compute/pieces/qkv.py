"""Q, K and V of a layer: from one matrix or from three.

Source: src/llama-graph.cpp build_qkv, b10605.
"""

from __future__ import annotations

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces.linear import linear

Sizes = tuple[int, int, int]
"""Elements of a head, heads of Q, heads of K and V."""


def qkv(b: Builder, x: Tensor, il: int, sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """Three tensors [head, heads, tokens]; views when the matrix is fused."""
    head, n_head, n_head_kv = sizes
    if b.has(il, "attn_qkv.weight"):
        return fused(b, x, il, sizes)
    q = clamped(b, linear(b, x, il, "attn_q"))
    k = clamped(b, linear(b, x, il, "attn_k"))
    v = clamped(b, linear(b, x, il, "attn_v"))
    n = b.n_tokens
    return (
        ops.reshape(q, head, n_head, n),
        ops.reshape(k, head, n_head_kv, n),
        ops.reshape(v, head, n_head_kv, n),
    )


def fused(b: Builder, x: Tensor, il: int, sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """Three views into the product of one matrix."""
    head, n_head, n_head_kv = sizes
    cur = clamped(b, linear(b, x, il, "attn_qkv"))
    row, step, n = head * cur.type.size, cur.nb[1], b.n_tokens
    return (
        ops.view_3d(cur, (head, n_head, n), (row, step)),
        ops.view_3d(cur, (head, n_head_kv, n), (row, step), row * n_head),
        ops.view_3d(cur, (head, n_head_kv, n), (row, step), row * (n_head + n_head_kv)),
    )


def two_sized(
    b: Builder, x: Tensor, il: int, sizes: Sizes, head_v: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Q and K of one head size, V of another; no biases, scales or clamps."""
    head, n_head, n_head_kv = sizes
    n = b.n_tokens
    if not b.has(il, "attn_qkv.weight"):
        q, k, v = (ops.mul_mat(b.need(il, f"attn_{t}.weight"), x) for t in "qkv")
        return (
            ops.reshape(q, head, n_head, n),
            ops.reshape(k, head, n_head_kv, n),
            ops.reshape(v, head_v, n_head_kv, n),
        )
    cur = ops.mul_mat(b.need(il, "attn_qkv.weight"), x)
    size, step = cur.type.size, cur.nb[1]
    row, row_v = head * size, head_v * size
    return (
        ops.view_3d(cur, (head, n_head, n), (row, step)),
        ops.view_3d(cur, (head, n_head_kv, n), (row, step), row * n_head),
        ops.view_3d(cur, (head_v, n_head_kv, n), (row_v, step), row * (n_head + n_head_kv)),
    )


def clamped(b: Builder, x: Tensor) -> Tensor:
    """`x` clamped where the model asks for it."""
    return ops.clamp(x) if b.model.f_clamp_kqv > 0 else x
