"""Models and devices that the plan tests share."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kvwise.device import Device, Host
from kvwise.gguf.model import Model
from kvwise.opening import open_model
from kvwise.units import GIB

ZOO = Path(__file__).parents[1] / "zoo/models"
RAM = Host.of("64GiB")


@cache
def model(name: str) -> Model:
    return open_model(str(ZOO / f"{name}.json.gz"))


def gpu(free: float, *, total: float | None = None, kind: str = "cuda", index: int = 0) -> Device:
    """A GPU with so many GiB, 192 MiB of them in reserve."""
    size = round(free * GIB)
    return Device(
        f"GPU{index}",
        kind=kind,
        total_bytes=round((total or free) * GIB),
        free_bytes=size,
        index=index,
        reserve_bytes=192 * 1024**2,
    )
