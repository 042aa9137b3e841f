"""AMD: the HIP runtime, and on Linux what the kernel's amdgpu driver counts for everybody.

HIP's free sees only ROCm's own allocations, so the desktop's are missing there; sysfs has them
(llama.cpp issue 24906). No call with a versioned structure is used. The order of devices is the
runtime's under HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, which is llama.cpp's order.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

from kvwise.probe.backends._streams import Names, StreamCard
from kvwise.probe.library import Calls, DriverError, load

PREFIX = "ROCm"
PROVEN = "fakes"
_LIBRARIES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so",
              "amdhip64_7.dll", "amdhip64_6.dll")  # fmt: skip
_SIGNATURES = {
    "hipInit": "u", "hipDriverGetVersion": "p", "hipGetDeviceCount": "p", "hipSetDevice": "i",
    "hipDeviceGetName": "pii", "hipDeviceGetPCIBusId": "pii", "hipDeviceTotalMem": "pi",
    "hipMemGetInfo": "pp", "hipMalloc": "pz", "hipFree": "q", "hipMemsetD32Async": "quzp",
    "hipMemcpyDtoH": "pqz", "hipEventCreateWithFlags": "pu", "hipEventRecord": "pp",
    "hipEventSynchronize": "p", "hipEventElapsedTime": "ppp", "hipEventDestroy": "p",
}  # fmt: skip
_NAMES = Names(
    info="hipMemGetInfo", allocate="hipMalloc", release="hipFree", fill="hipMemsetD32Async",
    fetch="hipMemcpyDtoH", create="hipEventCreateWithFlags", record="hipEventRecord",
    wait="hipEventSynchronize", elapsed="hipEventElapsedTime", destroy="hipEventDestroy",
    no_room=(2,),
)  # fmt: skip
_SYSFS = Path("/sys/bus/pci/devices")


def expected(system: str) -> bool:
    """Whether this backend exists there at all."""
    return system in ("linux", "win32")


def open_driver(given: str | None = None) -> HipDriver:
    """Load and start the runtime. Raises Missing, DriverError."""
    return HipDriver(load([given] if given else _LIBRARIES))


def _driver_model() -> str | None:
    """Every AMD card obeys Windows' own memory manager there."""
    return "WDDM" if sys.platform == "win32" else None


def _error_name(library: ctypes.CDLL, code: int) -> str:
    try:
        named = library.hipGetErrorName
    except AttributeError:
        return ""
    named.restype = ctypes.c_char_p
    return (named(code) or b"").decode("ascii", "replace")


class HipDriver:
    """The started runtime."""

    def __init__(self, library: ctypes.CDLL, sysfs: Path = _SYSFS) -> None:
        self._calls, self._sysfs = Calls(library, _SIGNATURES, _error_name), sysfs
        self._calls("hipInit", 0)

    def devices(self) -> list[dict[str, Any]]:
        """What the runtime and the kernel say of each device."""
        return [self._facts(number) for number in range(self._calls.int("hipGetDeviceCount"))]

    def open(self, index: int) -> HipCard:
        """A device, ready to give memory."""
        self._calls("hipSetDevice", index)
        return HipCard(self._calls, self._kernel(self._pci(index)))

    def _facts(self, number: int) -> dict[str, Any]:
        total = ctypes.c_size_t()
        self._calls("hipDeviceTotalMem", ctypes.byref(total), number)
        vram, _ = self._kernel(self._pci(number)) or (None, None)
        version = self._calls.int("hipDriverGetVersion")
        return {
            "name": self._calls.text("hipDeviceGetName", number),
            "index": number,
            "total_bytes": total.value,
            "pci": self._pci(number),
            "driver": f"HIP {version // 10_000_000}.{version // 100_000 % 100}",
            "driver_model": _driver_model(),
            # an APU is given the system's memory beside its carve-out, a card never
            "unified": vram is not None and total.value > vram + vram // 16,
        }

    def _pci(self, number: int) -> str:
        try:
            return self._calls.text("hipDeviceGetPCIBusId", number).lower()
        except DriverError:
            return ""

    def _kernel(self, pci: str) -> tuple[int, int] | None:
        """(total, used) bytes of video memory as amdgpu counts them, for all processes."""
        folder = self._sysfs / pci if pci else None
        if folder is None:
            return None
        try:
            total, used = (
                int((folder / f"mem_info_vram_{name}").read_text("ascii"))
                for name in ("total", "used")
            )
        except (OSError, ValueError):
            return None
        return total, used


class HipCard(StreamCard):
    """A device whose free memory is the smaller of what HIP and the kernel say."""

    def __init__(self, calls: Calls, kernel: tuple[int, int] | None) -> None:
        super().__init__(calls, _NAMES, lambda: None)
        self._desktop = 0
        if kernel:  # what others hold and HIP does not see; ours is the same in both
            vram, used = kernel
            free, total = super().memory()
            self._desktop = max(0, min(free, total) - max(0, vram - used))

    def memory(self) -> tuple[int, int]:
        """(free, total) in bytes."""
        free, total = super().memory()
        return max(0, free - self._desktop), total
