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
from kvwise.text import phrase
from kvwise.units import GIB

if TYPE_CHECKING:
    from kvwise.engine.find import Engine

_MARGIN = GIB  # --fit-target's default (common/arg.cpp, b10605)
_MARGIN_REASON = phrase("a card that is not in the catalogue: llama.cpp's own margin")
_SIGNS = (
    "/proc/driver/nvidia/gpus", "/dev/nvidiactl", "/dev/nvmap", "/dev/kfd", "/dev/dri", "/dev/dxg",
    "/dev/kgsl-3d0", "/dev/mali0", "/dev/davinci_manager", "/dev/mtgpu.0",
)  # fmt: skip
_NAMED = "GGML_VK_VISIBLE_DEVICES"


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


def with_reserve(device: Device) -> Device:
    """The device with the reserve that its like needs here (free-memory growth after loading).

    A card of the catalogue has its own row; any other takes llama.cpp's margin.
    """
    from kvwise.catalogue import device_of, of_driver  # noqa: PLC0415  (its data is large)

    known = of_driver(device.name, device.total_bytes)
    backend = device.kind if known and device.kind in known.backends else None
    if known is None:
        return replace(device, reserve_bytes=_MARGIN, reserve_reason=_MARGIN_REASON)
    like = device_of(known, backend=backend)
    return replace(
        device,
        bandwidth_bytes_per_s=like.bandwidth_bytes_per_s,
        compute_capability=like.compute_capability,
        sm_count=like.sm_count,
        unified=like.unified,
        reserve_bytes=like.reserve_bytes,
        reserve_reason=like.reserve_reason,
    )
