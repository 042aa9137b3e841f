"""What each kind of device supports, wants and asks for: one file per kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from kvwise import builds
from kvwise.device import Device
from kvwise.memory import backends
from kvwise.memory.backends import HOST_ALIGNMENT, BackendKind, kind_of
from kvwise.memory.compute.backend import Backend, plain_size
from kvwise.memory.compute.devices import cuda, cuda_keeps, metal, vulkan

_PROCESSOR = Backend("CPU", HOST_ALIGNMENT)

_RULES = {
    "vulkan": (plain_size, vulkan.supports, vulkan.wants),
    "metal": (metal.alloc_size, metal.supports, metal.wants),
}
"""Kind -> bytes asked, operations that run, work taken over from the processor."""


def backend_of(device: Device, number: int, build: int = builds.OLDEST) -> Backend:
    """The scheduler's view of one device."""
    return _backend(kind_of(device), number, build)


@lru_cache(maxsize=256)
def _backend(kind: BackendKind, number: int, build: int) -> Backend:
    """One and the same for devices of a kind, so that what follows from it can be remembered."""
    asynchronous = backends.asynchronous(kind, build)
    if kind.name in _RULES:
        return Backend(f"GPU{number}", kind.alignment, *_RULES[kind.name], asynchronous)
    if not kind.row_padding:
        return Backend(f"GPU{number}", kind.alignment, asynchronous=asynchronous)
    # CUDA, and HIP that is built from the same source
    mixed = builds.has(build, builds.CUDA_MIXED_CACHES)
    newer = builds.has(build, builds.CUDA_OPERATIONS)
    return Backend(
        f"GPU{number}",
        kind.alignment,
        partial(cuda.alloc_size, newer=True) if mixed else cuda.alloc_size,
        partial(cuda.supports, mixed=mixed, newer=newer, any_indexer=kind.any_indexer),
        cuda.wants,
        asynchronous,
        cuda_keeps.kept if builds.has(build, builds.CUDA_KEEPS_FUSED) else None,
    )


def backends_for(devices: Sequence[Device], build: int = builds.OLDEST) -> tuple[Backend, ...]:
    """Backends in priority order, the processor last."""
    return (
        *(backend_of(device, number, build) for number, device in enumerate(devices)),
        _PROCESSOR,
    )
