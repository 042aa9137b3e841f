"""Metal: bytes asked per tensor, operations that run, and what it takes from the processor.
Unverified: no such device was at hand.

Source: ggml/src/ggml-metal/ggml-metal.cpp (get_alloc_size, device_offload_op), ggml-metal-ops.cpp
(flash_attn_ext_extra_*, mul_mat_id_extra_*), ggml-metal-device.m (supports_op), b10605.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.memory import kernels
from kvwise.memory.compute.graph import Tensor, nbytes
from kvwise.units import pad

COPIED = frozenset({"q8_0", "q4_0", "q4_1", "q5_0", "q5_1"})
"""Cache types of which the kernel for prompts reads an f16 copy."""

OFFLOAD_BATCH = 32
QUERIES, CELLS = 8, 64  # of one group of threads of the kernel for prompts
FEW_QUERIES, FEW_CELLS = 1, 32  # of the kernel for single tokens
WORKGROUPS = 32
HALF, FLOAT, INT = 2, 4, 4


def supports(tensor: Tensor) -> bool:
    """Whether Metal runs this node; of other operations than attention all are assumed."""
    if tensor.op != "FLASH_ATTN_EXT":
        return True
    q, k, v = tensor.src[:3]
    if q is None or k is None or v is None:
        return False
    return kernels.metal(q.ne[0], v.ne[0], k.type.name, v.type.name)


def wants(tensor: Tensor) -> bool:
    """Only products of batches are brought over from host weights."""
    rows = {"MUL_MAT": tensor.ne[1], "MUL_MAT_ID": tensor.ne[2]}.get(tensor.op, 0)
    return rows >= OFFLOAD_BATCH


def alloc_size(tensor: Tensor, sources: Sequence[Tensor | None]) -> int:
    """A tensor's bytes and the scratch that its kernel keeps behind them."""
    size = nbytes(tensor)
    first = sources[0] if sources else None
    if first is None:
        return size
    if tensor.op == "FLASH_ATTN_EXT":
        return size + attention_scratch(sources)
    if tensor.op == "MUL_MAT_ID":
        ids = sources[2]
        return size + INT * first.ne[2] * (1 + (ids.ne[1] if ids is not None else 0))
    if tensor.op in {"ARGSORT", "CUMSUM"}:
        return 2 * size
    if tensor.op == "TOP_K":
        return 2 * INT * first.elements
    return size


def attention_scratch(sources: Sequence[Tensor | None]) -> int:
    """Padding of the last cells, a map of masked blocks, partial results, f16 copies of K and V."""
    q, k, v, mask = sources[:4]
    if q is None or k is None or v is None:
        return 0
    copied = q.ne[1] >= OFFLOAD_BATCH and k.type.name in COPIED
    shared = v.base is not None and v.root is k.root and v.offset == k.offset
    k_row = HALF * k.ne[0] if copied else k.nb[1]
    v_row = HALF * (k.ne[0] if shared else v.ne[0]) if copied else v.nb[1]
    masked = HALF * mask.ne[1] * mask.ne[2] * mask.ne[3] if mask is not None else 0
    padding = CELLS * (k_row * k.ne[2] * k.ne[3] + v_row * v.ne[2] * v.ne[3] + masked)
    partial = FLOAT * min(q.ne[1], 32) * q.ne[2] * q.ne[3] * WORKGROUPS * (v.ne[0] + 2)
    return padding + _blocks(q, mask) + partial + _copies(k, v, shared=shared)


def _blocks(q: Tensor, mask: Tensor | None) -> int:
    if mask is None:
        return 0
    few = q.ne[1] < 20 and q.ne[0] % 32 == 0
    queries, cells = (FEW_QUERIES, FEW_CELLS) if few else (QUERIES, CELLS)
    high, wide = -(-q.ne[1] // queries), -(-mask.ne[0] // cells)
    return pad(wide * high * mask.ne[2] * mask.ne[3], 32)


def _copies(k: Tensor, v: Tensor, *, shared: bool) -> int:
    """Room for f16 copies, kept whatever the cache type is."""
    size = pad(HALF * k.elements, 16)
    return size if shared else size + pad(HALF * v.elements, 16)
