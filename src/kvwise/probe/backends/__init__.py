"""One file per backend, found by its name; a driver is loaded only inside a probing child.

A file has `PREFIX` (llama.cpp's name of such devices: CUDA0), `PROVEN` (what its calls were run
on), `expected(system)` (can there be one on linux, win32, darwin) and `open_driver(given)`, which
returns a `Driver` or raises `Missing` (no such driver here) or `DriverError`.
"""

from __future__ import annotations

from pkgutil import iter_modules
from typing import Any, Protocol

from kvwise.probe.measure import Card

Facts = dict[str, Any]
"""Fields of `report.DeviceReport` that a driver says about a device without taking memory."""


class Driver(Protocol):
    """A loaded driver."""

    def devices(self) -> list[Facts]:
        """The devices that llama.cpp would use, in its order."""
        ...

    def open(self, index: int) -> Card:
        """The device at that place, ready to give memory."""
        ...


def names() -> list[str]:
    """All backends there are."""
    return sorted(found.name for found in iter_modules(__path__) if found.name[0] != "_")
