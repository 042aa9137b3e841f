"""Windows: what its memory manager grants this process on an adapter, and how much it has moved.

Budget and usage are those of the calling process, so they are read inside the probing child; its
usage of shared (non-local) memory grows when Windows moves blocks there. Called through COM's
tables of functions; slots and structures are those of dxgi.h, dxgi1_2.h and dxgi1_4.h.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kvwise.probe.library import DriverError, load

_LIBRARIES = ("dxgi.dll",)
_FACTORY = "770aae78f26f4dbaa829253c83d1b387"
_ADAPTER_3 = "645967a413924310a7988053ce3e93fd"
_QUERY_INTERFACE, _RELEASE, _GET_DESC, _ENUM_ADAPTERS, _QUERY_MEMORY = 0, 2, 10, 12, 14
_DESC_SIZE, _NAME_SIZE, _LUID_AT, _FLAGS_AT = 312, 256, 296, 304
_SOFTWARE, _NOT_FOUND = 2, 0x887A0002
_LOCAL, _SHARED = 0, 1
_MOST_ADAPTERS = 32


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes that Windows grants this process in a kind of memory, and those that it uses."""

    budget_bytes: int
    usage_bytes: int


class Adapter:
    """A graphics adapter, by the number that Windows gave it (`luid`) or, for drivers that do not
    tell that number, by a name that only one adapter has.

    Raises Missing outside Windows, DriverError when Windows refuses or no adapter is meant.
    """

    def __init__(self, luid: int | None, given: str | None = None, *, name: str = "") -> None:
        library = load([given] if given else _LIBRARIES)
        found, self.luid = _find(_factory(library), luid, name)
        self._adapter = _interface(found, _ADAPTER_3)

    def local(self) -> Budget:
        """Memory of the card itself."""
        return self._query(_LOCAL)

    def shared(self) -> Budget:
        """Memory of the host that the card may use."""
        return self._query(_SHARED)

    def _query(self, group: int) -> Budget:
        raw = ctypes.create_string_buffer(32)
        arguments = (ctypes.c_uint32(0), ctypes.c_int32(group), raw)
        types = (ctypes.c_uint32, ctypes.c_int32, ctypes.c_void_p)
        _call(self._adapter, _QUERY_MEMORY, "QueryVideoMemoryInfo", types, arguments)
        return Budget(*struct.unpack_from("<2Q", raw))


def _factory(library: ctypes.CDLL) -> int:
    made = ctypes.c_void_p()
    code = library.CreateDXGIFactory1(_guid(_FACTORY), ctypes.byref(made))
    if code or not made.value:
        raise DriverError("CreateDXGIFactory1", code & 0xFFFFFFFF)
    return made.value


def _find(factory: int, luid: int | None, name: str) -> tuple[int, int]:
    """(adapter, its number). Raises DriverError when none or more than one is meant."""
    meant: dict[int, int] = {}
    for adapter, raw in _adapters(factory):
        (number,) = struct.unpack_from("<Q", raw, _LUID_AT)
        called = raw.raw[:_NAME_SIZE].decode("utf-16-le", "replace").split("\0")[0].strip()
        software = struct.unpack_from("<I", raw, _FLAGS_AT)[0] & _SOFTWARE
        by_name = luid is None and called.lower() == name.lower() and not software
        if (number == luid or by_name) and number not in meant:
            meant[number] = adapter
        else:
            _call(adapter, _RELEASE, "", (), ())
    if len(meant) == 1:
        ((number, adapter),) = meant.items()
        return adapter, number
    raise DriverError("EnumAdapters1", _NOT_FOUND, "more than one" if meant else "no such adapter")


def _adapters(factory: int) -> Iterator[tuple[int, ctypes.Array[ctypes.c_char]]]:
    """Every adapter with its description."""
    for place in range(_MOST_ADAPTERS):
        adapter, raw = ctypes.c_void_p(), ctypes.create_string_buffer(_DESC_SIZE)
        types = (ctypes.c_uint32, ctypes.c_void_p)
        found = (ctypes.c_uint32(place), ctypes.byref(adapter))
        try:
            _call(factory, _ENUM_ADAPTERS, "EnumAdapters1", types, found)
        except DriverError as error:
            if error.code == _NOT_FOUND:  # that was the last
                return
            raise
        assert adapter.value is not None  # noqa: S101  (EnumAdapters1 succeeded)
        _call(adapter.value, _GET_DESC, "GetDesc1", (ctypes.c_void_p,), (raw,))
        yield adapter.value, raw


def _interface(thing: int, name: str) -> int:
    found = ctypes.c_void_p()
    types = (ctypes.c_void_p, ctypes.c_void_p)
    _call(thing, _QUERY_INTERFACE, "QueryInterface", types, (_guid(name), ctypes.byref(found)))
    assert found.value is not None  # noqa: S101  (QueryInterface succeeded)
    return found.value


def _call(
    thing: int, slot: int, name: str, types: tuple[type, ...], arguments: tuple[object, ...]
) -> None:
    """Call a method of a COM object; a call with a name must succeed."""
    table = ctypes.cast(thing, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))).contents
    method = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *types)(table[slot] or 0)
    code = method(thing, *arguments)
    if name and code:
        raise DriverError(name, code & 0xFFFFFFFF)


def _guid(digits: str) -> ctypes.Array[ctypes.c_char]:
    """A GUID's 16 bytes: its first three numbers are little-endian."""
    raw = bytes.fromhex(digits)
    return ctypes.create_string_buffer(raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:], 16)
