"""How many bytes a tensor takes on a virtual device, by kind of backend; pure.

`generic` takes a tensor's own bytes. `cuda` adds what the CUDA backend adds: quantized rows are
padded to 512 elements, and flash attention keeps an F16 copy of K and V of other types.
Source: ggml/src/ggml-cuda/ggml-cuda.cu (ggml_backend_cuda_buffer_type_get_alloc_size),
fattn.cu (ggml_cuda_get_best_fattn_kernel) and fattn-common.cuh, b10605, Ada (8.9) and newer.
"""

from __future__ import annotations

from kvwise.engine.virtual_wire import AllocSize, WireTensor
from kvwise.gguf.types import F16, F32, I32, GGMLType
from kvwise.units import pad

ALIGNMENT = 128
"""Bytes; what the CUDA backend answers, and the RPC server of one (ggml-cuda.cu)."""
_ROW = 512  # MATRIX_ROW_PADDING, elements
_MMA_ONLY = {192: 128, 320: 256, 512: 512, 576: 512}  # width of K -> of V
_SAME_WIDTH = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
_CACHE_TYPES = frozenset({"f32", "f16", "bf16", "q4_0", "q8_0"})


def alloc_size(question: AllocSize, kind: str) -> int:
    """Bytes of the tensor on a device of that kind; kinds but `cuda` take its own bytes."""
    tensor = question.tensor
    size = tensor.nbytes
    if kind != "cuda":
        return size
    if _is_flash_attention(question):
        size = _flash_attention(question, size)
    return size + _row_padding(tensor)


def _row_padding(tensor: WireTensor) -> int:
    rest = tensor.ne[0] % _ROW
    return tensor.type.row_bytes(_ROW - rest) if tensor.type.quantized and rest else 0


def _is_flash_attention(question: AllocSize) -> bool:
    """Asked only for flash attention, experts' products and quantized weights (ggml-rpc.cpp);
    the numbers of operations change with builds, the sources of these do not."""
    sources = (*question.sources, None, None, None)
    query, keys, values = sources[0], sources[1], sources[2]
    return (
        query is not None
        and keys is not None
        and values is not None
        and values.type is not I32
        and keys.ne[1] == values.ne[1]
        and query.ne[0] == keys.ne[0]
    )


def _flash_attention(question: AllocSize, size: int) -> int:
    query, keys, values = question.sources[:3]
    if query is None or keys is None or values is None:
        return size
    mask = question.sources[3] if len(question.sources) > 3 else None
    kernel = _kernel(query, keys, values, mask if not _alibi(question.tensor) else None)
    if kernel == "none":
        return size
    if _copied(keys.type, kernel):
        size = pad(size, ALIGNMENT) + keys.elements * F16.size
    if _copied(values.type, kernel) and not _is_view_of(values, keys):
        size = pad(size, ALIGNMENT) + values.elements * F16.size
    return size


def _copied(kind: GGMLType, kernel: str) -> bool:
    return kind is F32 if kernel == "vec" else kind is not F16


def _alibi(tensor: WireTensor) -> bool:
    """Its second parameter, max_bias, is not zero; such attention takes the ungrouped kernels."""
    return any(tensor.params[4:8])


def _is_view_of(values: WireTensor, keys: WireTensor) -> bool:
    same = values.view_src == keys.view_src and values.view_offs == keys.view_offs
    return values.view_src != 0 and (values.view_src == keys.id or same)


def _kernel(
    query: WireTensor, keys: WireTensor, values: WireTensor, mask: WireTensor | None
) -> str:
    """`none`, `vec` (one or two tokens), or `mma`: which kernel an Ada GPU would take."""
    grouped = _groups_apply(query, keys, values, mask)
    if (mask and mask.ne[2] != 1) or not _supported(query, keys, values, grouped):
        return "none"
    width, tokens = query.ne[0], query.ne[1]
    if width > 256 or width % 64 or width == 192 or keys.ne[1] % 256:
        return "mma"
    if keys.type.quantized or values.type.quantized:
        small = tokens <= 2
    else:
        many = query.ne[2] // keys.ne[2] > 4 and keys.ne[1] >= 8192
        small = tokens == 1 and query.ne[3] == 1 and not many
    return "vec" if small or (not grouped and tokens == 1) else "mma"


def _groups_apply(
    query: WireTensor, keys: WireTensor, values: WireTensor, mask: WireTensor | None
) -> bool:
    if mask is None or not keys.ne[2] or query.ne[2] // keys.ne[2] < 2 or keys.ne[1] % 256:
        return False
    plain = (tensor for tensor in (query, keys, values, mask) if not tensor.type.quantized)
    return all(stride % 16 == 0 for tensor in plain for stride in tensor.nb[1:])


def _supported(query: WireTensor, keys: WireTensor, values: WireTensor, grouped: bool) -> bool:
    width, ratio = keys.ne[0], query.ne[2] // max(1, keys.ne[2])
    if width in _MMA_ONLY:
        heads = {192: 8, 320: 32}.get(width, 1)
        shapes = values.ne[0] == _MMA_ONLY[width] and grouped and ratio % heads == 0
    else:
        shapes = width in _SAME_WIDTH and values.ne[0] == width
    return shapes and keys.type is values.type and keys.type.name in _CACHE_TYPES
