"""Which driver serves a kind of device, so that what was measured under another one is not used.

Only files are looked at, nothing is loaded: the NVIDIA module's own version, the system's kernel,
and name, size and time of the driver's libraries.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_NVIDIA = Path("/proc/driver/nvidia/version")
_VERSION = re.compile(r"Kernel Module(?: for \S{1,20})?\s+(\d{2,4}(?:\.\d{1,6}){1,3})\s", re.ASCII)
_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
            "/usr/lib/wsl/lib", "/opt/rocm/lib")  # fmt: skip
_LIBRARIES = {
    "cuda": ("libcuda.so*", "nvcuda.dll"),
    "hip": ("libamdhip64.so*", "amdhip64*.dll"),
    "vulkan": (
        "libvulkan_*.so*",
        "libGLX_nvidia.so*",
        "nvoglv64.dll",
        "amdvlk64.dll",
        "igvk64.dll",
    ),
}


def driver_of(kind: str, folders: Sequence[str] | None = None, nvidia: Path = _NVIDIA) -> str:
    """A name that changes when the driver does; empty when nothing tells.

    `550.54.14 #1a2b3c4d`, `6.8.0-45-generic #1a2b3c4d`: the version for people, and a digest.
    """
    if sys.platform == "darwin":  # Metal comes with the system
        return platform.mac_ver()[0]
    states = sorted(_states(kind, _folders() if folders is None else folders))
    version = _nvidia(nvidia) if kind in ("cuda", "vulkan") else ""
    if not states and not version:
        return ""
    digest = hashlib.sha256("\n".join(states).encode()).hexdigest()[:8]
    return f"{version or platform.release()} #{digest}"


def _folders() -> tuple[str, ...]:
    if sys.platform == "win32":
        return (str(Path(os.environ.get("SYSTEMROOT", "C:/Windows")) / "System32"),)
    return _FOLDERS


def _states(kind: str, folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        for pattern in _LIBRARIES.get(kind, ()):
            for path in Path(folder).glob(pattern):
                try:
                    state = path.stat()
                except OSError:
                    continue
                yield f"{path} {state.st_size} {state.st_mtime_ns}"


def _nvidia(path: Path) -> str:
    """`NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 ...`"""
    try:
        match = _VERSION.search(path.read_text("utf-8", "replace")[:4096])
    except OSError:
        return ""
    return match[1] if match else ""
