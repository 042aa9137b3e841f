"""Windows' performance counters: how much of a process lies in the memory that GPUs share.

The third witness of a spill, beside the speed of the memory and DXGI. The counters come from the
video memory manager, so what CUDA takes counts as well. Names, codes and structures are those of
pdh.h and pdhmsg.h; an instance of `GPU Process Memory` is called
`pid_N_luid_0xHIGH_0xLOW_phys_M` and there is one for each process and adapter.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Iterator

from kvwise.probe.library import Calls, DriverError, load

_LIBRARIES = ("pdh.dll",)
_SIGNATURES = {
    "PdhOpenQueryW": "pqp", "PdhAddEnglishCounterW": "ppqp", "PdhCollectQueryData": "p",
    "PdhGetFormattedCounterArrayW": "puppp", "PdhCloseQuery": "p",
}  # fmt: skip
_SHARED = r"\GPU Process Memory(*)\Shared Usage"
_LARGE = 0x400  # PDH_FMT_LARGE: whole numbers
_MORE_DATA = 0x800007D2
_VALID = (0, 1)  # PDH_CSTATUS_VALID_DATA, _NEW_DATA
_ITEM = struct.Struct("<QIxxxxq")  # pointer to the instance's name, its status, its value
_MOST_BYTES = 1 << 22
_LONGEST_NAME = 256
_INSTANCE = re.compile(r"pid_(\d+)_luid_0x([0-9a-f]+)_0x([0-9a-f]+)_", re.IGNORECASE)


class SharedUsage:
    """The counter for every process, on one adapter (`luid` None = on all of them).

    Raises Missing outside Windows, DriverError when refused.
    """

    def __init__(self, luid: int | None, given: str | None = None) -> None:
        self._luid, self._calls = luid, Calls(load([given] if given else _LIBRARIES), _SIGNATURES)
        self._query, self._counter = ctypes.c_void_p(), ctypes.c_void_p()
        self._calls("PdhOpenQueryW", None, 0, ctypes.byref(self._query))
        path = ctypes.create_string_buffer((_SHARED + "\0").encode("utf-16-le"))
        self._calls("PdhAddEnglishCounterW", self._query, path, 0, ctypes.byref(self._counter))

    def bytes_of(self, pid: int | None = None) -> int:
        """Bytes of a process (None = this one) in memory that the adapter shares with the host; 0
        as long as the process has no instance. Raises DriverError."""
        self._calls("PdhCollectQueryData", self._query)
        own = os.getpid() if pid is None else pid
        return sum(value for name, value in self._instances() if self._is(name, own))

    def _is(self, name: str, pid: int) -> bool:
        found = _INSTANCE.match(name)
        if found is None or int(found[1]) != pid:
            return False
        return self._luid is None or int(found[2], 16) << 32 | int(found[3], 16) == self._luid

    def _instances(self) -> Iterator[tuple[str, int]]:
        size, count = ctypes.c_uint32(), ctypes.c_uint32()
        call, raw = "PdhGetFormattedCounterArrayW", None
        places = ctypes.byref(size), ctypes.byref(count)
        code = self._calls.code(call, self._counter, _LARGE, *places, raw)
        while code & 0xFFFFFFFF == _MORE_DATA and size.value <= _MOST_BYTES:
            raw = ctypes.create_string_buffer(size.value + _ITEM.size)
            code = self._calls.code(call, self._counter, _LARGE, *places, raw)
        if code:
            raise DriverError(call, code & 0xFFFFFFFF)
        for number in range(count.value if raw else 0):
            name, status, value = _ITEM.unpack_from(raw or b"", number * _ITEM.size)
            if status in _VALID:
                yield _wide(name), value


def _wide(address: int) -> str:
    """A zero-terminated string of 16-bit characters, whatever Python's own wide ones are here."""
    letters = []
    for place in range(_LONGEST_NAME):
        letter = ctypes.c_uint16.from_address(address + 2 * place).value
        if not letter:
            break
        letters.append(chr(letter))
    return "".join(letters)
