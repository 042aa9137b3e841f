"""NVIDIA's management library: what CUDA does not tell, without taking any memory.

Driver model (WDDM, TCC, MCDM), display, MIG, and who else computes on the card. Its calls have
been seen to hang in the kernel, so it is asked in a child of its own. Structures and codes: nvml.h.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any

from kvwise.probe.library import Calls, DriverError, load

_LIBRARIES = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "nvml.dll")
_SIGNATURES = {
    "nvmlInit_v2": "", "nvmlDeviceGetCount_v2": "p", "nvmlDeviceGetHandleByIndex_v2": "up",
    "nvmlDeviceGetUUID": "ppu", "nvmlDeviceGetPciInfo_v3": "pp", "nvmlDeviceGetMemoryInfo_v2": "pp",
    "nvmlDeviceGetDriverModel_v2": "ppp", "nvmlDeviceGetDriverModel": "ppp",
    "nvmlDeviceGetDisplayActive": "pp", "nvmlDeviceGetMigMode": "ppp",
    "nvmlDeviceGetComputeRunningProcesses_v3": "ppp", "nvmlSystemGetDriverVersion": "pu",
}  # fmt: skip
_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}
_MEMORY_VERSION = 0x2000028  # 40 bytes, version 2
_PCI_SIZE, _PCI_AT = 68, 36
_PROCESS = struct.Struct("<IxxxxQII")  # pid, bytes (all ones = not told), two instance ids
_MOST_PROCESSES = 128


class Nvml:
    """The started library. Raises Missing, DriverError."""

    def __init__(self, given: str | None = None) -> None:
        self._calls = Calls(load([given] if given else _LIBRARIES), _SIGNATURES)
        self._calls("nvmlInit_v2")

    def cards(self) -> list[dict[str, Any]]:
        """Facts of every card of the machine, in PCI order; what is not told is absent."""
        return [self._card(number) for number in range(self._calls.int("nvmlDeviceGetCount_v2"))]

    def free(self, pci: str) -> int | None:
        """Bytes that nobody uses on a card, None when it is not told."""
        for number in range(self._calls.int("nvmlDeviceGetCount_v2")):
            handle = self._handle(number)
            if self._pci(handle) == pci:
                return self._memory(handle).get("free")
        return None

    def _card(self, number: int) -> dict[str, Any]:
        handle = self._handle(number)
        found: dict[str, Any] = {
            "pci": self._pci(handle),
            "driver_model": self._driver_model(handle),
            "display": self._flag("nvmlDeviceGetDisplayActive", handle),
            "mig": self._flag("nvmlDeviceGetMigMode", handle, ctypes.byref(ctypes.c_int32())),
            "others_bytes": self._others(handle),
            "card_free_bytes": self._free(handle),
            "driver": self._version(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _handle(self, number: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._calls("nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(handle))
        return handle

    def _pci(self, handle: ctypes.c_void_p) -> str:
        """Like CUDA writes it: 0000:01:00.0."""
        raw = ctypes.create_string_buffer(_PCI_SIZE)
        self._calls("nvmlDeviceGetPciInfo_v3", handle, raw)
        return raw.raw[_PCI_AT:].split(b"\0")[0].decode("ascii", "replace").lower()[-12:]

    def _memory(self, handle: ctypes.c_void_p) -> dict[str, int]:
        raw = ctypes.create_string_buffer(struct.pack("<Q", _MEMORY_VERSION), 40)
        self._calls("nvmlDeviceGetMemoryInfo_v2", handle, raw)
        return dict(
            zip(
                ("total", "reserved", "free", "used"),
                struct.unpack_from("<4Q", raw, 8),
                strict=True,
            )
        )

    def _driver_model(self, handle: ctypes.c_void_p) -> str | None:
        """None outside Windows; only the newer call can name MCDM."""
        pending = ctypes.byref(ctypes.c_int32())
        for name in ("nvmlDeviceGetDriverModel_v2", "nvmlDeviceGetDriverModel"):
            found = self._flag_value(name, handle, pending)
            if found is not None:
                return _MODELS.get(found)
        return None

    def _flag(self, name: str, handle: ctypes.c_void_p, *more: object) -> bool | None:
        found = self._flag_value(name, handle, *more)
        return None if found is None else bool(found)

    def _flag_value(self, name: str, handle: ctypes.c_void_p, *more: object) -> int | None:
        """None for what this card, driver or system does not tell."""
        found = ctypes.c_int32()
        try:
            self._calls(name, handle, ctypes.byref(found), *more)
        except DriverError:
            return None
        return found.value

    def _others(self, handle: ctypes.c_void_p) -> int | None:
        """Bytes of other computing processes; None where Windows keeps it to itself."""
        count = ctypes.c_uint32(_MOST_PROCESSES)
        raw = ctypes.create_string_buffer(_PROCESS.size * _MOST_PROCESSES)
        try:
            self._calls("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), raw)
        except DriverError:
            return None
        rows = [_PROCESS.unpack_from(raw, _PROCESS.size * at) for at in range(count.value)]
        used = [row[1] for row in rows if row[0] != os.getpid()]
        return None if any(size == (1 << 64) - 1 for size in used) else sum(used)

    def _free(self, handle: ctypes.c_void_p) -> int | None:
        try:
            return self._memory(handle).get("free")
        except DriverError:
            return None

    def _version(self) -> str | None:
        try:
            return self._calls.text("nvmlSystemGetDriverVersion")
        except DriverError:
            return None
