"""A catalogue GPU as a Device: total, free and reserve on an operating system we are not on."""

from __future__ import annotations

import platform

from kvwise.catalogue.gpus import Gpu
from kvwise.catalogue.start import free_at_start, largest_at_start, reason, start_of, traits
from kvwise.device import Device
from kvwise.errors import UsageError
from kvwise.units import MIB

SYSTEMS = ("linux", "windows", "macos")

_KIND = {"cuda": "cuda", "hip": "hip", "metal": "metal", "vulkan": "vulkan", "sycl": "vulkan"}
_DESKTOP_FAMILIES = ("GeForce", "Radeon RX", "Arc", "Vega", "iGPU", "Ryzen", "Adreno")
# share of RAM that Metal may use, by RAM in MiB (macOS 26 logs); other sizes: three quarters
_METAL_SHARE = {8192: 667, 16384: 740, 18432: 740, 24576: 740, 32768: 780, 36864: 780,
                49152: 780, 65536: 810, 131072: 840}  # fmt: skip


def running_os() -> str:
    """`linux`, `windows` (also inside WSL, whose GPUs obey Windows) or `macos`."""
    system, release = platform.system(), platform.release()
    if system == "Darwin":
        return "macos"
    return "windows" if system == "Windows" or "microsoft" in release.lower() else "linux"


def device_of(
    gpu: Gpu,
    *,
    os: str | None = None,
    backend: str | None = None,
    display: bool | None = None,
    index: int = 0,
) -> Device:
    """The GPU as an engine would find it before it loads anything.

    `os` defaults to the running one, `backend` to the usual one there, `display` to yes for
    desktop cards on Windows.
    Raises UsageError for a backend or system the card does not have.
    """
    os = _system(gpu, os)
    backend = _backend(gpu, os, backend)
    if display is None:
        display = os == "windows" and gpu.family.startswith(_DESKTOP_FAMILIES)
    total, source = total_mib(gpu, os, backend)
    is_a = traits(gpu.vendor, gpu.family, gpu.memory_mib_nominal, unified=gpu.unified)
    row = start_of(os, backend, is_a, display)
    bandwidth = gpu.bandwidth_gb_s
    free = free_at_start(row, total * MIB, gpu.sm_count)
    return Device(
        name=gpu.name,
        kind=_KIND.get(backend, "generic"),
        total_bytes=total * MIB,
        free_bytes=free,
        index=index,
        bandwidth_bytes_per_s=None if bandwidth is None else round(bandwidth * 10**9),
        compute_capability=gpu.compute_capability,
        sm_count=gpu.sm_count,
        reserve_bytes=row.reserve * MIB,
        unified=gpu.unified,
        system=os,
        source=f"catalogue, {os} {backend}, total {source}",
        max_block_bytes=largest_at_start(row, free),
        reserve_reason=reason(row),
    )


def _system(gpu: Gpu, os: str | None) -> str:
    if gpu.vendor == "Apple":
        return "macos"
    if os is None:
        os = running_os()
        return "linux" if os == "macos" or gpu.family in ("Jetson", "DGX Spark") else os
    if os not in SYSTEMS:
        raise UsageError("{os!r} is not one of {known}", os=os, known=", ".join(SYSTEMS))
    if os == "macos":
        raise UsageError("llama.cpp has no {name} on macOS", name=gpu.name)
    return os


def _backend(gpu: Gpu, os: str, backend: str | None) -> str:
    if backend is None:
        # on Windows HIP's free carries no information, and Vulkan runs on all but NVIDIA best
        first = gpu.backends[0]
        return "vulkan" if os == "windows" and first in ("hip", "sycl") else first
    if backend not in gpu.backends:
        raise UsageError(
            "{name} has no {backend}", name=gpu.name, backend=backend,
            known=", ".join(gpu.backends), hint="it has {known}",
        )  # fmt: skip
    return backend


def total_mib(gpu: Gpu, os: str, backend: str) -> tuple[int, str]:
    """(what the engine calls the total, where that comes from): a log of this system if there is
    one, else worked out from another one or from the size on the box, never above it."""
    seen, nominal = gpu.reported, gpu.memory_mib_nominal
    key = "macos_metal_default" if backend == "metal" else f"{os}_{backend}"
    known = seen.get(key) or seen.get(backend)
    if known:  # a Vulkan heap can be larger than the card; the rest is not on it
        return known if gpu.unified else min(known, nominal), "as logged"
    if gpu.unified:
        share = 930 if gpu.vendor == "NVIDIA" else 500
        if backend == "metal":
            share = _METAL_SHARE.get(nominal, 750)
        return nominal * share // 1000, "by share of RAM"
    if backend == "cuda":
        return _cuda_total(gpu, os)
    return _other_total(gpu, backend), "worked out from the size"


def _other_total(gpu: Gpu, backend: str) -> int:
    """The size on the box minus the largest difference to a driver's total that was seen."""
    nominal = gpu.memory_mib_nominal
    if backend == "sycl":  # 912 MiB of 16 GB
        return nominal * 944 // 1000
    if gpu.vendor == "NVIDIA":  # Vulkan
        return nominal - 380
    return nominal * 995 // 1000 - 64


def _cuda_total(gpu: Gpu, os: str) -> tuple[int, str]:
    """CUDA on Windows: nvidia-smi's total - 1; the Linux driver holds back about 450 MiB more."""
    seen = gpu.reported
    if os == "windows":
        if "nvidia_smi" in seen:
            return seen["nvidia_smi"] - 1, "from nvidia-smi"
        return gpu.memory_mib_nominal * 995 // 1000, "worked out from the size"
    if "windows_cuda" in seen or "nvidia_smi" in seen:
        return max(seen.get("windows_cuda", 0), seen.get("nvidia_smi", 0)) - 450, "from Windows"
    return gpu.memory_mib_nominal * 995 // 1000 - 450, "worked out from the size"
