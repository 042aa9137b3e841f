"""NVIDIA: the driver library alone, no toolkit; the primary context, as llama.cpp's runtime.

Names, arguments and numbers are those of cuda.h 12.9. The order of devices is the driver's under
this process's CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES, which is llama.cpp's order.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvwise.probe.backends._streams import Names, StreamCard
from kvwise.probe.library import Calls, DriverError, load

PREFIX = "CUDA"
PROVEN = "fakes"
_LIBRARIES = ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "nvcuda.dll")
_SIGNATURES = {
    "cuInit": "u", "cuDriverGetVersion": "p", "cuDeviceGetCount": "p", "cuDeviceGet": "pi",
    "cuDeviceGetName": "pii", "cuDeviceGetUuid_v2": "pi", "cuDeviceGetUuid": "pi",
    "cuDeviceGetLuid": "ppi", "cuDeviceGetPCIBusId": "pii", "cuDeviceTotalMem_v2": "pi",
    "cuDeviceGetAttribute": "pii", "cuDevicePrimaryCtxSetFlags_v2": "iu",
    "cuDevicePrimaryCtxRetain": "pi", "cuDevicePrimaryCtxRelease_v2": "i", "cuCtxSetCurrent": "p",
    "cuMemGetInfo_v2": "pp", "cuMemAlloc_v2": "pz", "cuMemFree_v2": "q",
    "cuMemsetD32Async": "quzp", "cuMemcpyDtoH_v2": "pqz", "cuEventCreate": "pu",
    "cuEventRecord": "pp", "cuEventSynchronize": "p", "cuEventElapsedTime": "ppp",
    "cuEventDestroy_v2": "p",
}  # fmt: skip
_ATTRIBUTES = {"major": 75, "minor": 76, "multiprocessors": 16, "clock_khz": 36, "bus_bits": 37,
               "integrated": 18, "tcc": 35, "time_limit": 17, "compute_mode": 20}  # fmt: skip
_BLOCKING_SYNC = 4  # the waiting thread sleeps
_NO_ROOM = (2, 600)  # out of memory; "not ready" is how WSL2 refuses what cannot be made resident
_NAMES = Names(
    info="cuMemGetInfo_v2", allocate="cuMemAlloc_v2", release="cuMemFree_v2",
    fill="cuMemsetD32Async", fetch="cuMemcpyDtoH_v2", create="cuEventCreate",
    record="cuEventRecord", wait="cuEventSynchronize", elapsed="cuEventElapsedTime",
    destroy="cuEventDestroy_v2", no_room=_NO_ROOM,
)  # fmt: skip


def expected(system: str) -> bool:
    """Whether this backend exists there at all."""
    return system in ("linux", "win32")


def open_driver(given: str | None = None) -> CudaDriver:
    """Load and start the driver. Raises Missing, DriverError."""
    return CudaDriver(load([given] if given else _LIBRARIES))


def _error_name(library: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    try:
        library.cuGetErrorName(code, ctypes.byref(text))
    except AttributeError:
        return ""
    return (text.value or b"").decode("ascii", "replace")


class CudaDriver:
    """The started driver."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._calls = Calls(library, _SIGNATURES, _error_name)
        self._calls("cuInit", 0)

    def devices(self) -> list[dict[str, Any]]:
        """What the driver says of each device; no context is made."""
        version = self._calls.int("cuDriverGetVersion")
        driver = f"CUDA {version // 1000}.{version % 1000 // 10}"
        return [
            self._facts(number, driver) for number in range(self._calls.int("cuDeviceGetCount"))
        ]

    def open(self, index: int) -> StreamCard:
        """Retain the primary context of a device; its total is what is left of the card then."""
        device = self._calls.int("cuDeviceGet", index)
        if self._calls.has("cuDevicePrimaryCtxSetFlags_v2"):
            self._calls.code("cuDevicePrimaryCtxSetFlags_v2", device, _BLOCKING_SYNC)
        context = ctypes.c_void_p()
        self._calls("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._calls("cuCtxSetCurrent", context)
        return StreamCard(
            self._calls, _NAMES, lambda: self._calls("cuDevicePrimaryCtxRelease_v2", device)
        )

    def _facts(self, number: int, driver: str) -> dict[str, Any]:
        device = self._calls.int("cuDeviceGet", number)
        told = {name: self._attribute(code, device) for name, code in _ATTRIBUTES.items()}
        total = ctypes.c_size_t()
        self._calls("cuDeviceTotalMem_v2", ctypes.byref(total), device)
        return {
            "name": self._calls.text("cuDeviceGetName", device),
            "index": number,
            "total_bytes": total.value,
            "uuid": self._uuid(device),
            "luid": self._luid(device),
            "pci": self._pci(device),
            "driver": driver,
            "driver_model": _model(told["tcc"], wsl=Path("/dev/dxg").exists()),
            "compute_capability": f"{told['major']}.{told['minor']}",
            "sm_count": told["multiprocessors"] or None,
            "bus_bytes_per_s": 2 * told["clock_khz"] * 1000 * told["bus_bits"] // 8,
            "unified": bool(told["integrated"]),
            "display": True if told["time_limit"] else None,
            "compute_mode": told["compute_mode"],
        }

    def _attribute(self, code: int, device: int) -> int:
        """0 for an attribute that this driver does not know."""
        try:
            return max(0, self._calls.int("cuDeviceGetAttribute", code, device))
        except DriverError:
            return 0

    def _uuid(self, device: int) -> str:
        """As CUDA_VISIBLE_DEVICES takes it, without GPU- or MIG-."""
        raw = ctypes.create_string_buffer(16)
        for name in ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"):
            if self._calls.has(name) and not self._calls.code(name, raw, device):
                digits = raw.raw.hex()
                return "-".join(_cut(digits, (8, 4, 4, 4, 12)))
        return ""

    def _luid(self, device: int) -> int | None:
        """What DXGI calls the adapter (Windows)."""
        raw, nodes = ctypes.create_string_buffer(8), ctypes.c_uint32()
        if not self._calls.has("cuDeviceGetLuid"):
            return None
        if self._calls.code("cuDeviceGetLuid", raw, ctypes.byref(nodes), device):
            return None
        return int.from_bytes(raw.raw, "little") or None

    def _pci(self, device: int) -> str:
        try:
            return self._calls.text("cuDeviceGetPCIBusId", device).lower()
        except DriverError:
            return ""


def _model(tcc: int, *, wsl: bool) -> str | None:
    """The Windows driver model as far as CUDA tells; NVML knows better (`probe/nvml.py`)."""
    if sys.platform == "win32":
        return "TCC" if tcc else "WDDM"
    return "WDDM" if wsl else None


def _cut(text: str, lengths: Sequence[int]) -> list[str]:
    parts = []
    for length in lengths:
        parts.append(text[:length])
        text = text[length:]
    return parts
