"""Device numbers of a ledger: the model's devices first, then those that only others use."""

from __future__ import annotations

from collections.abc import Iterable

from kvwise.device import Device
from kvwise.memory.placement import buffer_name


class Seats:
    """Hands out the numbers; a device that is asked for gets a line."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self.devices = list(devices)

    def number(self, device: Device) -> int:
        """The number of a device, the next free one if it has none yet."""
        names = [buffer_name(each) for each in self.devices]
        name = buffer_name(device)
        if name not in names:
            self.devices.append(device)
            return len(names)
        return names.index(name)
