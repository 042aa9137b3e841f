"""Apple: the limit of what a process may keep on the GPU at once, asked of Metal itself.

llama.cpp takes that limit for the total, and what is left of it for free; nothing is taken to
find out, because the memory is the system's own and a buffer beyond the limit fails only when it
is first used (ggml-metal-device.m, b10605).
"""

from __future__ import annotations

import ctypes
from typing import Any

from kvwise.probe.library import DriverError, load
from kvwise.probe.measure import Card

PREFIX = "MTL"
PROVEN = "fakes"
_METAL = "/System/Library/Frameworks/Metal.framework/Metal"
_GRAPHICS = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"
_OBJC = "/usr/lib/libobjc.A.dylib"


def expected(system: str) -> bool:
    """Whether this backend exists there at all."""
    return system == "darwin"


def open_driver(given: str | None = None) -> MetalDriver:
    """Load the frameworks. Raises Missing, DriverError."""
    if given is None:
        load([_GRAPHICS])  # without it a program of the command line gets no device
    return MetalDriver(load([given or _METAL]), load([given or _OBJC]))


class MetalDriver:
    """The default device, the only one that llama.cpp uses."""

    def __init__(self, metal: ctypes.CDLL, objc: ctypes.CDLL) -> None:
        self._objc = objc
        objc.sel_registerName.restype = ctypes.c_void_p
        objc.sel_registerName.argtypes = [ctypes.c_char_p]
        metal.MTLCreateSystemDefaultDevice.restype = ctypes.c_void_p
        self._device = metal.MTLCreateSystemDefaultDevice()

    def devices(self) -> list[dict[str, Any]]:
        """The device with its limits; none on a machine without Metal."""
        if not self._device:
            return []
        limit = self._number("recommendedMaxWorkingSetSize")
        free = max(0, limit - self._number("currentAllocatedSize"))
        return [
            {
                "name": self._text("name"),
                "index": 0,
                "total_bytes": limit,
                "free_bytes": free,
                "max_buffer_bytes": self._number("maxBufferLength"),
                "unified": bool(self._number("hasUnifiedMemory") & 0xFF),  # BOOL is one byte
            }
        ]

    def open(self, index: int) -> Card:
        """Metal's limit is a rule, not memory to be taken."""
        raise DriverError("open", index, "Metal devices are not measured")

    def _send(self, receiver: int, selector: str, result: type) -> Any:
        """One message. objc_msgSend has the type of the method that it calls."""
        send = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_void_p)(
            ("objc_msgSend", self._objc)
        )
        return send(receiver, self._objc.sel_registerName(selector.encode("ascii")))

    def _number(self, selector: str) -> int:
        return int(self._send(self._device, selector, ctypes.c_uint64))

    def _text(self, selector: str) -> str:
        string = self._send(self._device, selector, ctypes.c_void_p)
        raw = self._send(string, "UTF8String", ctypes.c_char_p) if string else None
        return (raw or b"").decode("utf-8", "replace")
