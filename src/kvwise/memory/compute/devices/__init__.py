"""What each kind of device supports, wants and asks for: one file per kind."""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.device import Device
from kvwise.memory.backends import HOST_ALIGNMENT, kind_of
from kvwise.memory.compute.backend import Backend, plain_size
from kvwise.memory.compute.devices import cuda, metal, vulkan

_PROCESSOR = Backend("CPU", HOST_ALIGNMENT)

_RULES = {
    "vulkan": (plain_size, vulkan.supports, vulkan.wants),
    "metal": (metal.alloc_size, metal.supports, metal.wants),
}
"""Kind -> bytes asked, operations that run, work taken over from the processor."""


def backend_of(device: Device, number: int) -> Backend:
    """The scheduler's view of one device."""
    kind = kind_of(device)
    if kind.name in _RULES:
        return Backend(f"GPU{number}", kind.alignment, *_RULES[kind.name], kind.asynchronous)
    if kind.row_padding:  # CUDA, and HIP that is built from the same source
        return Backend(
            f"GPU{number}", kind.alignment, cuda.alloc_size, cuda.supports, cuda.wants,
            kind.asynchronous,
        )  # fmt: skip
    return Backend(f"GPU{number}", kind.alignment, asynchronous=kind.asynchronous)


def backends_for(devices: Sequence[Device]) -> tuple[Backend, ...]:
    """Backends in priority order, the processor last."""
    return (*(backend_of(device, number) for number, device in enumerate(devices)), _PROCESSOR)
