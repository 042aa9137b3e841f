"""Norms with optional weight and bias.

Source: src/llama-graph.cpp build_norm, b10605.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Literal

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor

Norm = Literal["rms", "layer", "group"]

SECOND = ("ffn_norm", "post_attention_norm")
"""One of these stands between attention and what follows, unless both read the same."""


def norm(
    b: Builder,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None = None,
    *,
    kind: Norm = "rms",
    il: int = -1,
) -> Tensor:
    """The norm of `x`, times `weight`, plus `bias`; `il` = -1 belongs to no layer."""
    if kind == "rms":
        cur = ops.rms_norm(x)
    elif kind == "layer":
        cur = ops.layer_norm(x)
    else:
        cur = ops.group_norm(ops.reshape(x, x.ne[0], 1, x.ne[1]))
        cur = ops.reshape(cur, cur.ne[0], cur.ne[2])
    if weight is not None or bias is not None:
        b.pin_norm(cur, il)
    if weight is not None:
        cur = ops.mul(cur, weight)
    return cur if bias is None else ops.add(cur, bias)


def layer(b: Builder, x: Tensor, il: int, name: str, *, kind: Norm = "rms") -> Tensor:
    """The norm of a layer by its name (`attn_norm`), with the bias the file has."""
    return norm(b, x, weight(b, il, name), b.w(il, name + ".bias"), kind=kind, il=il)


def one_norm(names: Container[str], il: int) -> bool:
    """Whether layer `il` of a model with these weights norms its input alone: both of its parts
    read the same then."""
    start = f"blk.{il}."
    second = any(f"{start}{name}.weight" in names for name in SECOND)
    return f"{start}attn_norm.weight" in names and not second


def weight(b: Builder, il: int, name: str) -> Tensor | None:
    """The weight of a norm by its name; some files leave `.weight` away, as llama.cpp does."""
    found = b.w(il, name + ".weight")
    return b.w(il, name) if found is None else found
