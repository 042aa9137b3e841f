"""A driver's library through ctypes: found, its functions called, its refusals named."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

_TYPES = {
    "i": ctypes.c_int32,
    "u": ctypes.c_uint32,
    "q": ctypes.c_uint64,
    "z": ctypes.c_size_t,
    "p": ctypes.c_void_p,
    "f": ctypes.c_float,
}


class Missing(Exception):
    """There is no such driver on this machine."""


class DriverError(Exception):
    """A call of the driver failed; `code` is the driver's own."""

    def __init__(self, call: str, code: int, text: str = "") -> None:
        super().__init__(call, code, text)
        self.call, self.code, self.text = call, code, text


def load(names: Sequence[str]) -> ctypes.CDLL:
    """The first library that is there. Raises Missing, or DriverError for one that is broken."""
    broken = ""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            if not _absent(name, str(error)):
                broken = broken or str(error)
    if broken:
        raise DriverError("dlopen", 0, broken)
    raise Missing(", ".join(names))


def _absent(name: str, text: str) -> bool:
    """Whether it is this library that is missing, and not one that it needs."""
    return (name in text and "No such file" in text) or "Could not find module" in text


class Calls:
    """The functions of a library that return a code, 0 = done.

    `signatures` gives each function's arguments, a letter for each: i u 32 bits, q 64, z size,
    p pointer, f float. Without them Python passes every number as 32 bits.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        signatures: Mapping[str, str],
        error_name: Callable[[ctypes.CDLL, int], str] = lambda _library, _code: "",
    ) -> None:
        self.library = library
        self._signatures = signatures
        self._error_name = error_name
        self._known: dict[str, Callable[..., int]] = {}

    def has(self, name: str) -> bool:
        """Whether this driver is new enough to have the function."""
        return hasattr(self.library, name)

    def code(self, name: str, *arguments: object) -> int:
        """The code that a function returns. Raises DriverError when the driver lacks it."""
        if name not in self._known:
            if not self.has(name):
                raise DriverError(name, 0, "not in this driver")
            function = getattr(self.library, name)
            function.argtypes = [_TYPES[letter] for letter in self._signatures[name]]
            self._known[name] = function
        return self._known[name](*arguments)

    def do(self, name: str, *arguments: object) -> None:
        """Call a function that returns nothing."""
        self.code(name, *arguments)

    def __call__(self, name: str, *arguments: object) -> None:
        """Call it. Raises DriverError when it returns anything but 0."""
        code = self.code(name, *arguments)
        if code:
            raise self.error(name, code)

    def error(self, name: str, code: int) -> DriverError:
        """A code as an error, with the driver's own name for it."""
        return DriverError(name, code, self._error_name(self.library, code))

    def int(self, name: str, *arguments: object) -> int:
        """The int that a function writes to its first argument."""
        found = ctypes.c_int32()
        self(name, ctypes.byref(found), *arguments)
        return found.value

    def text(self, name: str, *arguments: object) -> str:
        """The text that a function writes to its first argument, of the length in its second."""
        buffer = ctypes.create_string_buffer(256)
        self(name, buffer, len(buffer), *arguments)
        return buffer.value.decode("utf-8", "replace")
