"""The processor's name, as its maker prints it."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_BOARD = Path("/sys/firmware/devicetree/base/model")
_NAME = re.compile(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", re.MULTILINE)
_MOST = 1 << 16


def cpu_name(cpuinfo: Path = _CPUINFO, board: Path = _BOARD) -> str:
    """`AMD Ryzen 7 5800X 8-Core Processor`; where nobody says, the board or the architecture."""
    found = ""
    if sys.platform.startswith("linux"):
        named = _NAME.search(_text(cpuinfo))
        found = named[1] if named else _text(board)
    elif sys.platform == "darwin":
        found = _apple()
    elif sys.platform == "win32":
        found = _windows()
    words = " ".join(found.replace("\0", " ").split())
    return words or platform.processor() or platform.machine()


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST)
    except OSError:
        return ""


def _apple() -> str:
    """sysctl's machdep.cpu.brand_string: `Apple M2`."""
    try:
        library = ctypes.CDLL("libSystem.dylib")
        size = ctypes.c_size_t(256)
        value = ctypes.create_string_buffer(size.value)
        name = b"machdep.cpu.brand_string"
        failed = library.sysctlbyname(name, value, ctypes.byref(size), None, 0)
    except (OSError, AttributeError):
        return ""
    return "" if failed else value.value.decode("utf-8", "replace")


def _windows() -> str:
    if sys.platform == "win32":
        import winreg  # noqa: PLC0415

        place = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place) as key:
                return str(winreg.QueryValueEx(key, "ProcessorNameString")[0])
        except OSError:
            return ""
    return ""
