"""What a GPU of the catalogue typically has free, system by system, with a display and without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvwise.catalogue.gpus import Gpu
from kvwise.catalogue.offline import SYSTEMS, device_of
from kvwise.device import Device
from kvwise.errors import UsageError


@dataclass(frozen=True, slots=True)
class Typical:
    """A GPU under one system and backend; `display` None = it makes no difference."""

    os: str
    backend: str
    display: bool | None
    device: Device


def typical(gpu: Gpu) -> Iterator[Typical]:
    """Every system that llama.cpp runs the GPU on, its backends in order of preference."""
    for os in SYSTEMS:
        for backend in gpu.backends:
            try:
                without, with_one = (
                    device_of(gpu, os=os, backend=backend, display=display)
                    for display in (False, True)
                )
            except UsageError:  # no such system for this GPU
                continue
            if gpu.vendor == "Apple" and os != "macos":
                continue
            if without == with_one:
                yield Typical(os, backend, None, without)
            else:
                yield Typical(os, backend, False, without)
                yield Typical(os, backend, True, with_one)
