"""A matrix product with the optional scale and bias of its weight.

Source: src/llama-graph.cpp build_lora_mm, build_lora_mm_id, b10605.
"""

from __future__ import annotations

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor


def linear(b: Builder, x: Tensor, il: int, name: str, *, bias: bool = True) -> Tensor:
    """`blk.IL.NAME.weight` times `x`, times `.scale`, plus `.bias` (where the file has them)."""
    cur = scaled(ops.mul_mat(b.need(il, name + ".weight"), x), b.w(il, name + ".scale"))
    extra = b.w(il, name + ".bias") if bias else None
    return cur if extra is None else ops.add(cur, extra)


def scaled(x: Tensor, scale: Tensor | None) -> Tensor:
    """`x` times the weight's own scale, where the file has one."""
    return x if scale is None else ops.mul(x, scale)


def of_experts(b: Builder, x: Tensor, il: int, name: str, ids: Tensor) -> Tensor:
    """The chosen experts' products, times each expert's own scale."""
    cur = ops.mul_mat_id(b.need(il, name + ".weight"), x, ids)
    scale = b.w(il, name + ".scale")
    if scale is None:
        return cur
    count = scale.ne[0]
    per_token = ops.repeat(ops.reshape(scale, 1, count, 1), 1, count, x.ne[2])
    return ops.mul(cur, ops.get_rows(per_token, ids))
