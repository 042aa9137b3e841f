"""CUDA: bytes asked per tensor, operations that run, and what it takes from the processor.

Sources: ggml/src/ggml-cuda/ggml-cuda.cu (get_alloc_size, device_supports_op, offload_op) and
fattn.cu (kernel choice, f16 copies of K and V), b10605 and b11549, default build options, compute
capability 8.9 or newer (on Turing and Ampere the kernel for one or two rows differs a little,
which no prompt graph meets).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvwise.gguf.types import F16, F32
from kvwise.memory.compute.graph import Tensor, is_contiguous, nbytes

ROW_PADDING = 512
"""Elements to which the last row of a quantized tensor is padded (MATRIX_ROW_PADDING)."""

OFFLOAD_BATCH = 32
"""Rows from which a node with a host weight is worth moving (GGML_OP_OFFLOAD_MIN_BATCH)."""

_EQUAL_HEADS = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
_KV_STRIDE = 256
_KV_TYPES = frozenset({"f32", "f16", "bf16", "q4_0", "q8_0"})
_MORE_KV_TYPES = _KV_TYPES | {"q4_1", "q5_0", "q5_1"}


def alloc_size(tensor: Tensor, sources: Sequence[Tensor | None], *, newer: bool = False) -> int:
    """Bytes asked for a tensor in CUDA memory; `newer`: CUDA_MIXED_CACHES holds."""
    size = nbytes(tensor)
    if tensor.op == "FLASH_ATTN_EXT":
        return attention_size(tensor, sources, size, newer=newer)
    kind = tensor.type
    if kind.block > 1:
        over = tensor.ne[0] % ROW_PADDING
        if over:
            size += kind.row_bytes(ROW_PADDING - over)
    return size


def attention_size(
    tensor: Tensor, sources: Sequence[Tensor | None], size: int, *, newer: bool
) -> int:
    """The result plus f16 copies of K and V, where the kernel needs them."""
    q, k, v, mask = sources[:4]
    kernel = attention_kernel(q, k, v, mask, tensor.params, newer=newer)
    if kernel == "none" or k is None or v is None:
        return size
    only_f32 = kernel == "vector" and not (newer and _no_vector_kernel(k, v))
    if k.type.name != "f16" and (not only_f32 or k.type.name == "f32"):
        size = _pad(size, 128) + 2 * k.elements
    # latent attention keeps V inside K: one copy serves both
    same = v is not k and v.root is k.root and v.offset == k.offset and v.base is not None
    if v.type.name != "f16" and (not only_f32 or v.type.name == "f32") and not same:
        size = _pad(size, 128) + 2 * v.elements
    return size


def _no_vector_kernel(k: Tensor, v: Tensor) -> bool:
    """Types that the vector kernel was not compiled for: it reads copies in f16."""
    one, two = ("f16" if t.type.name == "f32" else t.type.name for t in (k, v))
    return one != two or one not in _KV_TYPES


def _pad(size: int, to: int) -> int:
    return (size + to - 1) // to * to


def attention_kernel(
    q: Tensor | None,
    k: Tensor | None,
    v: Tensor | None,
    mask: Tensor | None,
    max_bias: float,
    *,
    newer: bool = False,
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
        or not _types_fit(k.type.name, v.type.name, newer=newer)
        or (mask is not None and mask.ne[2] != 1)
    ):
        return "none"
    small = _small_batch(q, k, v, ratio, grouped=grouped, newer=newer)
    return "vector" if small else "matrix"


def _types_fit(k: str, v: str, *, newer: bool) -> bool:
    if newer:
        return k in _MORE_KV_TYPES and v in _MORE_KV_TYPES
    return k == v and k in _KV_TYPES


def _small_batch(
    q: Tensor, k: Tensor, v: Tensor, ratio: int, *, grouped: bool, newer: bool
) -> bool:
    """The kernel for one or two rows (as chosen on Ada or newer)."""
    head, rows = q.ne[0], q.ne[1]
    if head > 256 or head % 64 or head == 192 or k.ne[1] % _KV_STRIDE:
        return False
    if k.type.block > 1 or v.type.block > 1:
        return rows <= 2
    if rows != 1:
        return False
    wide = ratio > 4 and (k.ne[1] >= 8192 or (newer and head >= 256))
    return not grouped or (q.ne[3] == 1 and not wide)


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


def wants(tensor: Tensor) -> bool:
    """Whether the batch is large enough to bring the node's host weight over."""
    op = tensor.op
    if op == "GET_ROWS":
        return False
    if op == "MUL_MAT":
        return tensor.ne[1] >= OFFLOAD_BATCH
    if op in ("MUL_MAT_ID", "ROPE", "ROPE_BACK"):
        return tensor.ne[2] >= OFFLOAD_BATCH
    return tensor.rows >= OFFLOAD_BATCH


def supports(
    tensor: Tensor, *, mixed: bool = False, newer: bool = False, any_indexer: bool = False
) -> bool:
    """Whether CUDA runs this node; `mixed`: CUDA_MIXED_CACHES, `newer`: CUDA_OPERATIONS hold;
    `any_indexer`: see `BackendKind`."""
    op = tensor.op.partition(":")[0]
    if op == "LIGHTNING_INDEXER":
        size, heads, _, _ = _first(tensor).ne
        return (any_indexer or indexer_sized(heads, size, newer=newer)) and _indexer_fits(tensor)
    if op == "FLASH_ATTN_EXT":
        q, k, v, mask = tensor.src[:4]
        return attention_kernel(q, k, v, mask, tensor.params, newer=mixed) != "none"
    rule = (_NEWER_RULES if newer else _RULES).get(op)
    return True if rule is None else rule(tensor)


def _first(tensor: Tensor) -> Tensor:
    found = tensor.src[0]
    if found is None:
        raise ValueError(tensor.op)
    return found


def _unary(tensor: Tensor) -> bool:
    return is_contiguous(_first(tensor))


def _glu(tensor: Tensor) -> bool:
    return is_contiguous(_first(tensor), 1)


def _rows(tensor: Tensor) -> bool:
    """Elements of a row without gaps."""
    x = _first(tensor)
    return x.ne[0] == x.type.block or x.nb[0] == x.type.size


def _mul_mat(tensor: Tensor) -> bool:
    a, b = tensor.src[0], tensor.src[1]
    if a is None or b is None:
        return True
    if a.nb[0] != a.type.size or b.nb[0] != b.type.size:
        return False
    return not (b.type is F16 and a.type is not F16) and a.type.name not in _NO_PRODUCT


def _get_rows(tensor: Tensor) -> bool:
    x = _first(tensor)
    if x.type.name in ("iq4_nl", "mxfp4"):
        return x.ne[0] % 256 == 0
    return x.type.name in _GET_ROWS


def _set_rows(tensor: Tensor) -> bool:
    x = _first(tensor)
    if x.type is F16:
        return tensor.type is F16
    return x.type is F32 and tensor.type.name in _SET_ROWS


def _cpy(tensor: Tensor) -> bool:
    a, b = tensor.src[0], tensor.src[1]
    if a is None or b is None:
        return True
    one, two = a.type.name, b.type.name
    if one in _FLOATS and two in _FLOATS:
        return True
    if (one == "f32" and two in _FROM_F32) or (two == "f32" and one in _TO_F32):
        return True
    if one == two == "i32":
        return True
    return one == two and is_contiguous(a) and is_contiguous(b)


def _arithmetic(tensor: Tensor) -> bool:
    all_ = (tensor, tensor.src[0], tensor.src[1])
    return all(t is None or t.type in (F32, F16) for t in all_)


def _repeat(tensor: Tensor) -> bool:
    return _first(tensor).type in (F32, F16)


def _concat(tensor: Tensor) -> bool:
    a, b = tensor.src[0], tensor.src[1]
    if a is None or b is None or a.type is not b.type:
        return False
    if a.type.block == 1:
        return True
    whole = tensor.params == 3
    return all(is_contiguous(t) if whole else _contiguous_to_3(t) for t in (a, b))


def _contiguous_to_3(t: Tensor) -> bool:
    step = t.type.size * (t.ne[0] // t.type.block)
    return t.nb[0] == t.type.size and t.nb[1] == step and t.nb[2] == step * t.ne[1]


def _rope(tensor: Tensor) -> bool:
    x = _first(tensor)
    return x.nb[0] == x.type.size and is_contiguous(x, 2)


def _contiguous(tensor: Tensor) -> bool:
    return is_contiguous(_first(tensor))


def _floating(tensor: Tensor) -> bool:
    return _first(tensor).type.name in _FLOATS


def _rows_in_f32(tensor: Tensor) -> bool:
    x = _first(tensor)
    return x.type is F32 and is_contiguous(x, 1)


def _f32(tensor: Tensor) -> bool:
    return _first(tensor).type is F32


def _same_float(tensor: Tensor) -> bool:
    x = _first(tensor)
    return x.type is tensor.type and x.type.name in ("f32", "bf16")


def _clamp(tensor: Tensor) -> bool:
    return is_contiguous(_first(tensor), 1)


def _newer_arithmetic(tensor: Tensor) -> bool:
    a, b = tensor.src[:2]
    names = [t.type.name for t in (tensor, a, b) if t is not None]
    if "bf16" in names:
        return names[:2] == ["bf16", "bf16"] and names[2] in ("bf16", "f32")
    return _arithmetic(tensor)


def _newer_mul_mat_id(tensor: Tensor) -> bool:
    """An input that must stay in f32 (`params`) is not taken."""
    return not tensor.params and _mul_mat(tensor)


def _newer_ssm_scan(tensor: Tensor) -> bool:
    state, decay = tensor.src[0], tensor.src[3]
    if state is not None and decay is not None and decay.ne[0] == 1 and state.ne[0] == 96:
        return state.ne[1] % 16 == 0
    return _ssm_scan(tensor)


def _ssm_scan(tensor: Tensor) -> bool:
    state, decay, groups = tensor.src[0], tensor.src[3], tensor.src[4]
    if state is None or decay is None or groups is None:
        return False
    if decay.ne[0] == 1:  # Mamba-2
        return state.ne[0] in (128, 256) and state.ne[1] % 16 == 0
    return (
        state.ne[0] == 16
        and state.ne[1] == 1
        and state.ne[2] % 128 == 0
        and groups.ne[1] == 1
        and tensor.params <= 1
    )


def indexer_sized(heads: int, size: int, *, newer: bool = False) -> bool:
    """Whether the fused indexer has a kernel for so many heads of so many elements."""
    return size == _INDEXER_SIZE and heads in (_NEWER_HEADS if newer else _HEADS)


def _indexer_fits(tensor: Tensor) -> bool:
    """Types and strides that these kernels read. Source: lightning-indexer.cu."""
    k = tensor.src[1]
    if k is None or k.type.name not in INDEXER_TYPES:
        return False
    pair = (_first(tensor), k)
    return all(t.type.block > 1 or not any(step % 16 for step in t.nb[1:]) for t in pair)


def _ssm_conv(tensor: Tensor) -> bool:
    return _first(tensor).ne[1] % 128 == 0


_FLOATS = frozenset({"f32", "f16", "bf16"})
_HEADS = frozenset({32, 64})
_NEWER_HEADS = _HEADS | {4}
_INDEXER_SIZE = 128
INDEXER_TYPES = _FLOATS | {"q8_0", "q5_1", "q5_0", "q4_1", "q4_0"}
_FROM_F32 = frozenset({"q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "i32"})
_TO_F32 = frozenset({"q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "i32"})
_SET_ROWS = _FLOATS | {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl"}
_NO_PRODUCT = frozenset({"tq1_0", "tq2_0", "q8_1", "i8", "i16", "i32", "i64", "f64"})
_GET_ROWS = frozenset(
    {
        "f16", "f32", "bf16", "i32", "q1_0", "q2_0", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0",
        "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",
        "iq1_s", "iq1_m", "iq4_xs",
    }
)  # fmt: skip

_RULES: dict[str, Callable[[Tensor], bool]] = {
    "UNARY": _unary, "GLU": _glu, "MUL_MAT": _mul_mat, "MUL_MAT_ID": _mul_mat,
    "GET_ROWS": _get_rows, "SET_ROWS": _set_rows, "CPY": _cpy, "REPEAT": _repeat,
    "CONCAT": _concat, "NORM": _rows, "RMS_NORM": _rows, "L2_NORM": _rows, "ADD": _arithmetic,
    "SUB": _arithmetic, "MUL": _arithmetic, "DIV": _arithmetic, "SSM_SCAN": _ssm_scan,
    "SSM_CONV": _ssm_conv, "ROPE": _rope, "ROPE_BACK": _rope, "SUM_ROWS": _contiguous,
    "MEAN": _contiguous, "GROUP_NORM": _contiguous,
}  # fmt: skip
"""Operation -> rule; what is not here always runs."""

_NEWER_RULES = _RULES | {
    "UNARY": _floating, "SUM_ROWS": _rows_in_f32, "MEAN": _rows_in_f32, "ROLL": _f32,
    "SCALE": _same_float, "CLAMP": _clamp, "ADD": _newer_arithmetic, "SUB": _newer_arithmetic,
    "MUL": _newer_arithmetic, "DIV": _newer_arithmetic, "MUL_MAT_ID": _newer_mul_mat_id,
    "SSM_SCAN": _newer_ssm_scan,
}  # fmt: skip
