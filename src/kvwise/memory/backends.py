"""One row per kind of device: what its backend says about memory.

Source: `get_alignment`, `get_alloc_size`, `get_host_buffer_type` and `get_props` of
ggml/src/ggml-{cpu,cuda,vulkan,metal,rpc}, b10605. The rows `generic` and `cuda` are those of
zoo/README.md and proved to the byte; the others follow the source where it gives one answer and
are marked unverified where the answer depends on the driver (Vulkan's and Metal's alignment).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvwise import builds
from kvwise.device import Device
from kvwise.gguf.types import GGMLType
from kvwise.units import GIB, pad

HOST_ALIGNMENT = 32
"""Bytes: the CPU buffer type's alignment, also of pinned memory (ggml-cpu, TENSOR_ALIGNMENT)."""


ANY_SIZE = 1 << 62
"""A largest buffer that only the machine itself can tell (`Device.max_block_bytes`)."""


@dataclass(frozen=True, slots=True)
class BackendKind:
    """Memory rules of one kind of device.

    `prefix` names its buffers (`CUDA0`); `host_buffer` its pinned host memory, empty = none;
    `row_padding` elements to which the last row of a quantized tensor is padded, 0 = never;
    `asynchronous` = async copies and events, which pipeline parallelism needs; `maps_host` = can
    use a mapped file in place; `op_offload_batch` = rows from which it takes work of host weights;
    `chunk_bytes` = where it cuts weights, caches and compute buffers, 0 = one allocation each;
    `any_indexer` = runs the fused indexer of any size, as the zoo's card did while it was recorded;
    `source` = where its figures were read, `verified` = they were checked against measurements.
    """

    name: str
    prefix: str
    host_buffer: str = ""
    alignment: int = 128
    row_padding: int = 0
    asynchronous: bool = False
    maps_host: bool = False
    op_offload_batch: int = 0
    chunk_bytes: int = 0
    any_indexer: bool = False
    verified: bool = True
    source: str = ""


_ROWS = (
    BackendKind("generic", "VGPU", source="zoo/README.md: a device behind RPC, 18,000 figures"),
    BackendKind(
        "cuda", "CUDA", "CUDA_Host", 128, 512, True, op_offload_batch=32,
        source="ggml-cuda.cu get_alignment (128), get_alloc_size (MATRIX_ROW_PADDING 512), no "
        "get_max_size, get_props (async, events, pinned), offload_op; zoo/golden `cuda`",
    ),
    BackendKind(
        "hip", "ROCm", "ROCm_Host", 128, 512, True, op_offload_batch=32, verified=False,
        source="the CUDA source compiled for HIP; its flash attention kernels depend on the card",
    ),
    BackendKind(
        "vulkan", "Vulkan", "Vulkan_Host", 64, 0, True, op_offload_batch=32, chunk_bytes=GIB,
        verified=False,
        source="ggml-vulkan.cpp: alignment is minStorageBufferOffsetAlignment (16 to 256 by "
        "driver), alloc size the tensor's own, GGML_VK_SUBALLOCATION_BLOCK_SIZE 1 GiB",
    ),
    BackendKind(
        "metal", "MTL", "", 32, 0, True, maps_host=True, chunk_bytes=ANY_SIZE, verified=False,
        source="ggml-metal.cpp: alignment 32, cut at maxBufferLength (a property of the machine), "
        "scratch of flash attention, experts and sorting inside their results",
    ),
    BackendKind("rpc", "RPC", "", 128, source="ggml-rpc.cpp: asks the other side"),
)  # fmt: skip

KINDS: dict[str, BackendKind] = {row.name: row for row in _ROWS}

ZOO = "zoo"
"""`Device.source` of the zoo's virtual GPUs, whose buffers are VGPU0, VGPU1... and VGPU_Host."""

_ZOO_KINDS = {
    row.name: replace(
        row,
        prefix="VGPU",
        host_buffer="VGPU_Host" if row.host_buffer else "",
        any_indexer=True,
    )
    for row in _ROWS
}


def kind_of(device: Device) -> BackendKind:
    """The row of a device; an unknown kind behaves as `generic`."""
    rows = _ZOO_KINDS if device.source == ZOO else KINDS
    return rows.get(device.kind, rows["generic"])


def asynchronous(kind: BackendKind, build: int) -> bool:
    """Whether a kind has async copies and events in a build of llama.cpp."""
    return kind.asynchronous or (kind.name == "rpc" and builds.has(build, builds.RPC_ASYNCHRONOUS))


def alloc_size(kind: BackendKind | None, element: GGMLType, row: int, nbytes: int) -> int:
    """Bytes a tensor asks for, before alignment; `row` is its first dimension in elements.

    None is the host. Source: ggml_backend_cuda_buffer_type_get_alloc_size, b10605.
    """
    if kind is None or not kind.row_padding or not element.quantized:
        return nbytes
    over = row % kind.row_padding
    return nbytes + element.row_bytes(kind.row_padding - over) if over else nbytes


def tensor_size(kind: BackendKind | None, element: GGMLType, row: int, nbytes: int) -> int:
    """Bytes a tensor takes in a buffer: what it asks for, aligned (ggml-alloc.c, b10605)."""
    alignment = HOST_ALIGNMENT if kind is None else kind.alignment
    return pad(alloc_size(kind, element, row, nbytes), alignment)
