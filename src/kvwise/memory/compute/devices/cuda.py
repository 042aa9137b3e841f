"""CUDA: bytes asked per tensor, operations that run, and what it takes from the processor.

Sources: ggml/src/ggml-cuda/ggml-cuda.cu (get_alloc_size, device_supports_op, offload_op) and
fattn.cu (kernel choice, f16 copies of K and V), b10605, default build options, compute
capability 8.9 or newer (on Turing and Ampere the kernel for one or two rows differs a little,
which no prompt graph meets).
"""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.memory.compute.graph import Tensor, nbytes

ROW_PADDING = 512
"""Elements to which the last row of a quantized tensor is padded (MATRIX_ROW_PADDING)."""

OFFLOAD_BATCH = 32
"""Rows from which a node with a host weight is worth moving (GGML_OP_OFFLOAD_MIN_BATCH)."""

_EQUAL_HEADS = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
_KV_STRIDE = 256
_KV_TYPES = frozenset({"f32", "f16", "bf16", "q4_0", "q8_0"})


def alloc_size(tensor: Tensor, sources: Sequence[Tensor | None]) -> int:
    """Bytes asked for a tensor in CUDA memory."""
    size = nbytes(tensor)
    if tensor.op == "FLASH_ATTN_EXT":
        return attention_size(tensor, sources, size)
    kind = tensor.type
    if kind.block > 1:
        over = tensor.ne[0] % ROW_PADDING
        if over:
            size += kind.row_bytes(ROW_PADDING - over)
    return size


def attention_size(tensor: Tensor, sources: Sequence[Tensor | None], size: int) -> int:
    """The result plus f16 copies of K and V, where the kernel needs them."""
    q, k, v, mask = sources[:4]
    kernel = attention_kernel(q, k, v, mask, tensor.params)
    if kernel == "none" or k is None or v is None:
        return size
    only_f32 = kernel == "vector"
    if k.type.name != "f16" and (not only_f32 or k.type.name == "f32"):
        size = _pad(size, 128) + 2 * k.elements
    # latent attention keeps V inside K: one copy serves both
    same = v is not k and v.root is k.root and v.offset == k.offset and v.base is not None
    if v.type.name != "f16" and (not only_f32 or v.type.name == "f32") and not same:
        size = _pad(size, 128) + 2 * v.elements
    return size


def _pad(size: int, to: int) -> int:
    return (size + to - 1) // to * to


def attention_kernel(
    q: Tensor | None, k: Tensor | None, v: Tensor | None, mask: Tensor | None, max_bias: float
) -> str:
    """Which flash-attention kernel runs: `none`, `vector` or `matrix` (tensor cores)."""
    if q is None or k is None or v is None:
        return "none"
    ratio = q.ne[2] // k.ne[2]
    grouped = ratio >= 2 and mask is not None and max_bias == 0.0 and k.ne[1] % _KV_STRIDE == 0
    for t in (q, k, v, mask):
        if t is not None and t.type.block == 1 and any(step % 16 for step in t.nb[1:]):
            grouped = False
    if (
        not _heads_fit(k.ne[0], v.ne[0], ratio, grouped=grouped)
        or k.type is not v.type
        or k.type.name not in _KV_TYPES
        or (mask is not None and mask.ne[2] != 1)
    ):
        return "none"
    return "vector" if _small_batch(q, k, ratio, grouped=grouped) else "matrix"


def _small_batch(q: Tensor, k: Tensor, ratio: int, *, grouped: bool) -> bool:
    """The kernel for one or two rows (as chosen on Ada or newer)."""
    head, rows = q.ne[0], q.ne[1]
    if head > 256 or head % 64 or head == 192 or k.ne[1] % _KV_STRIDE:
        return False
    if k.type.block > 1:
        return rows <= 2
    if rows != 1:
        return False
    return not grouped or (q.ne[3] == 1 and not (ratio > 4 and k.ne[1] >= 8192))


def _heads_fit(k_head: int, v_head: int, ratio: int, *, grouped: bool) -> bool:
    if k_head in _EQUAL_HEADS:
        return v_head == k_head
    if not grouped:
        return False
    return (
        (k_head == 192 and v_head == 128 and ratio % 8 == 0)
        or (k_head == 320 and v_head == 256 and ratio % 32 == 0)
        or (k_head == 512 and v_head == 512)
        or (k_head == 576 and v_head == 512)
    )
