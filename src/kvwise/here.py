"""The GPUs of this machine, asked only where there can be one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kvwise.device import Device

_SIGNS = ("/proc/driver/nvidia/gpus", "/dev/nvidiactl", "/dev/kfd", "/dev/dri", "/dev/dxg")


def may_have_gpu(signs: Sequence[str] = _SIGNS) -> bool:
    """False only when this machine certainly has no GPU that llama.cpp could use.

    On Linux every driver leaves a file behind (`/dev/dxg` is Windows' own, seen from WSL2).
    """
    return not sys.platform.startswith("linux") or any(Path(sign).exists() for sign in signs)


def devices() -> list[Device]:
    """The GPUs that the engine sees here, in its order; empty when there are none.

    Raises EngineError when there can be one and no engine says what it has.
    """
    if not may_have_gpu():
        return []
    from kvwise.engine.devices import list_devices  # noqa: PLC0415  (starts a process)
    from kvwise.engine.find import find  # noqa: PLC0415

    return list_devices(find())
