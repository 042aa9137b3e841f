"""The GPUs of this machine, asked only where there can be one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvwise.device import Device
from kvwise.errors import EngineError
from kvwise.units import MIB

if TYPE_CHECKING:
    from kvwise.engine.find import Engine

_SIGNS = (
    "/proc/driver/nvidia/gpus", "/dev/nvidiactl", "/dev/nvmap", "/dev/kfd", "/dev/dri", "/dev/dxg",
    "/dev/kgsl-3d0", "/dev/mali0", "/dev/davinci_manager", "/dev/mtgpu.0",
)  # fmt: skip
_NAMED = "GGML_VK_VISIBLE_DEVICES"
_SCREENS = "/sys/class/drm"
_VENDORS = {"NVIDIA": "0x10de", "AMD": "0x1002", "Intel": "0x8086"}


def may_have_gpu(signs: Sequence[str] = _SIGNS) -> bool:
    """False only when this machine certainly has no GPU that llama.cpp would use.

    On Linux every driver leaves a file behind (`/dev/dxg` is Windows' own, seen from WSL2). A
    software GPU (llvmpipe) leaves none, and llama.cpp takes it only where a variable names it.
    """
    if not sys.platform.startswith("linux") or os.environ.get(_NAMED, "").strip():
        return True
    return any(Path(sign).exists() for sign in signs)


def devices(engine: Engine | None = None) -> list[Device]:
    """The GPUs that an engine (None = the default one) sees here, in its order; empty without any.

    What `kvwise probe` found out about them is taken into account, and what `kvwise verify` saw a
    load take beside its buffers under the same driver and engine; where no engine answers, a fresh
    probe stands in. Raises EngineError when there can be a GPU and neither says what it has.
    """
    if not may_have_gpu():
        return []
    from kvwise.engine.devices import list_devices  # noqa: PLC0415  (starts a process)
    from kvwise.engine.find import find  # noqa: PLC0415
    from kvwise.probe.advice import usable, with_probe  # noqa: PLC0415
    from kvwise.probe.remember import fresh, last  # noqa: PLC0415
    from kvwise.unaccounted import with_measured  # noqa: PLC0415

    kept = last()
    try:
        used = engine or find()
        listed = [with_reserve(device) for device in list_devices(used)]
    except EngineError:
        if engine is None and kept and kept.devices and fresh(kept) == kept.devices:
            return list(usable(kept))
        raise
    known = with_probe(listed, kept, fresh(kept)) if kept else listed
    return with_measured(known, used)


def with_reserve(device: Device, screens: str = _SCREENS) -> Device:
    """The device with the reserve that its like needs here (free-memory growth after loading).

    By system, backend and whether a screen hangs on a card of its maker; a card of the catalogue
    also by what it is.
    """
    from kvwise.catalogue import device_of, of_driver  # noqa: PLC0415  (its data is large)
    from kvwise.catalogue.offline import running_os  # noqa: PLC0415
    from kvwise.catalogue.start import reason, start_of, traits  # noqa: PLC0415

    known = of_driver(device.name, device.total_bytes)
    system = running_os()
    maker = known.vendor if known else _maker(device)
    screen = has_screen(maker, screens) if system == "linux" else None
    if known is None:
        is_a = traits(maker, "", device.total_bytes // MIB, unified=device.unified)
        row = start_of(system, device.kind, is_a, system == "windows" if screen is None else screen)
        return replace(device, reserve_bytes=row.reserve * MIB, reserve_reason=reason(row))
    backend = device.kind if device.kind in known.backends else None
    like = device_of(known, backend=backend, display=screen)
    return replace(
        device,
        bandwidth_bytes_per_s=like.bandwidth_bytes_per_s,
        compute_capability=like.compute_capability,
        sm_count=like.sm_count,
        unified=like.unified,
        reserve_bytes=like.reserve_bytes,
        reserve_reason=like.reserve_reason,
    )


def has_screen(maker: str, screens: str = _SCREENS) -> bool:
    """Whether a screen is connected to a card of this maker, as Linux lists connectors."""
    wanted = _VENDORS.get(maker)
    for status in Path(screens).glob("card*-*/status"):
        try:
            connected = status.read_text(encoding="ascii").strip() == "connected"
            card = status.parent.parent / status.parent.name.partition("-")[0]
            vendor = (card / "device/vendor").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if connected and wanted in (None, vendor):
            return True
    return False


def _maker(device: Device) -> str:
    """Whose card it is, by backend or name; empty = unknown."""
    by_kind = {"cuda": "NVIDIA", "hip": "AMD", "metal": "Apple"}
    words = {"nvidia": "NVIDIA", "geforce": "NVIDIA", "amd": "AMD", "radeon": "AMD",
             "intel": "Intel"}  # fmt: skip
    name = device.name.lower()
    found = (maker for word, maker in words.items() if word in name)
    return by_kind.get(device.kind) or next(found, "")
