"""What was found on a machine: its devices, its host, and which backends failed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from kvwise.device import Host
from kvwise.probe.notes import Note

OUTCOMES = ("measured", "asked", "failed")


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device as it was found. Sizes in bytes; None = not known.

    `outcome`: measured = memory was taken; asked = the driver's figures only; failed = no figures
    beyond what stands here (a note says why). `free_bytes` is what the driver calls free to a
    process that holds a context. `largest_block_bytes` and `all_blocks_bytes` could be had
    within `ceiling_bytes`, `spilled_bytes` of them in system memory. `context_bytes` is what our
    own context took, `card_free_bytes` what nobody used before it (NVML, all programs);
    `max_buffer_bytes` and `chunk_bytes` are the backend's own limits.
    """

    name: str
    backend: str
    index: int = 0
    outcome: str = "asked"
    total_bytes: int = 0
    free_bytes: int | None = None
    largest_block_bytes: int | None = None
    all_blocks_bytes: int | None = None
    blocks: tuple[int, ...] = ()
    spilled: bool | None = None
    spilled_bytes: int = 0
    driver_model: str | None = None
    compute_capability: str | None = None
    write_bytes_per_s: int | None = None
    device: str = ""
    driver: str = ""
    uuid: str = ""
    pci: str = ""
    luid: int | None = None
    sm_count: int | None = None
    bus_bytes_per_s: int | None = None
    display: bool | None = None
    unified: bool = False
    software: bool = False
    mig: bool | None = None
    compute_mode: int = 0
    others_bytes: int | None = None
    card_free_bytes: int | None = None
    ceiling_bytes: int | None = None
    margin_bytes: int | None = None
    context_bytes: int | None = None
    max_allocation_bytes: int | None = None
    max_buffer_bytes: int | None = None
    chunk_bytes: int | None = None
    heaps: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[Note, ...] = ()

    def with_fields(self, found: Mapping[str, Any]) -> DeviceReport:
        """The report with fields that a child sent; unknown names are dropped."""
        known = {name: value for name, value in found.items() if name in _NAMES}
        for name in ("blocks", "heaps"):
            if name in known:
                known[name] = tuple(known[name])
        return replace(self, **known)

    def noted(self, code: str, **values: int | str) -> DeviceReport:
        """The report with one more remark."""
        return replace(self, notes=(*self.notes, Note(code, values)))

    @property
    def written(self) -> bool:
        """Whether what was taken could be written, too."""
        return self.write_bytes_per_s is not None

    @property
    def has(self) -> frozenset[str]:
        """Codes of its remarks."""
        return frozenset(note.code for note in self.notes)


_NAMES = frozenset(each.name for each in fields(DeviceReport)) - {"notes", "backend"}


VARIABLES = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES",
             "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")  # fmt: skip
"""What decides which devices a driver shows to a program, and in which order."""


def environment() -> dict[str, str]:
    """Those of this process that are set."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


@dataclass(frozen=True, slots=True)
class Report:
    """A whole machine at a moment (`time` in UTC), seen through an `environment`; `drivers` names
    each backend's driver (`probe/driver.py`)."""

    time: datetime
    system: str = ""
    devices: tuple[DeviceReport, ...] = ()
    host: Host = field(default_factory=Host)
    host_limits: tuple[Mapping[str, Any], ...] = ()
    failures: tuple[tuple[str, Note], ...] = ()  # a backend without devices, and why
    environment: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[tuple[str, Note], ...] = ()  # on a backend as a whole
    drivers: Mapping[str, str] = field(default_factory=dict)

    @property
    def age_s(self) -> float:
        """Seconds since it was made; negative for one from the future."""
        return (datetime.now(UTC) - self.time).total_seconds()
