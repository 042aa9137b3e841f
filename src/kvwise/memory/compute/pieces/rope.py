"""Rotary positions: which factors, and which layers have none.

Source: src/llama-model.cpp get_rope_factors, b10605.
"""

from __future__ import annotations

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor


def factors(b: Builder, il: int) -> Tensor | None:
    """The layer's frequency factors: fixed ones, else those for long or short contexts."""
    fixed = b.top("rope_freqs.weight", il)
    if fixed is not None:
        return fixed
    long = b.context.n_ctx_seq > b.model.n_ctx_orig_yarn
    return b.top(f"rope_factors_{'long' if long else 'short'}.weight", il)


def rope(b: Builder, x: Tensor, il: int, *, scaled: bool = False) -> Tensor:
    """`x` with its positions turned in; `scaled`: with the layer's factors."""
    return ops.rope(x, b.positions(), factors(b, il) if scaled or b.borrowed else None)
