"""What the driver takes on a device beside the engine's buffers: one row per kind of backend.

Source: public llama.cpp logs of 2026, fitted in `catalogue/start.py`. A virtual device takes
nothing, and a device whose free memory was read by a program that already held a context has it
subtracted already.
"""

from __future__ import annotations

from collections.abc import Callable

from kvwise.device import Device
from kvwise.memory.backends import ZOO
from kvwise.text import Phrase, phrase
from kvwise.units import MIB

Rule = Callable[[Device], tuple[int, Phrase]]

NOTHING = phrase("this kind of device takes nothing beside the engine's buffers")
INSIDE = phrase("what the driver takes is already missing from the free memory")


def _cuda(device: Device) -> tuple[int, Phrase]:
    from kvwise.catalogue import context_bytes  # noqa: PLC0415  (loads the catalogue's data)

    return context_bytes(device.sm_count), phrase(
        "a CUDA context: 42 MiB + 2.8 MiB for each of {count} multiprocessors",
        count=device.sm_count if device.sm_count is not None else "?",
    )


def _fixed(size: int, template: str) -> Rule:
    return lambda _device: (size, phrase(template))


_ROWS: dict[str, Rule] = {
    "cuda": _cuda,
    "hip": _fixed(200 * MIB, "a HIP runtime on a discrete card takes 20 to 182 MiB at start"),
    "vulkan": _fixed(256 * MIB, "Vulkan's budget starts some 256 MiB below the heap"),
    "metal": _fixed(0, "Metal's limit is for the buffers alone"),
}


def overhead(device: Device) -> tuple[int, Phrase]:
    """Bytes beside the buffers, and why."""
    rule = _ROWS.get(device.kind)
    if rule is None or device.source == ZOO:
        return 0, NOTHING
    if device.free_bytes < device.total_bytes:
        return 0, INSIDE
    return rule(device)
