"""The GPUs we know. Data: data/gpus.json, from vendor sheets, pages and public logs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Gpu:
    """One row of the catalogue. MiB and GB/s as printed; `reported` is what drivers and engines
    said, by `os_backend`. For unified memory `memory_mib_nominal` is the machine's RAM.

    `name` is this row's alone, `driver_name` may be borne by others. The first of `aliases` is
    the short name to type, and this row's alone as well; those that other rows have too name a
    product that is sold with more than one memory.
    """

    name: str
    vendor: str
    family: str
    driver_name: str
    memory_mib_nominal: int
    backends: tuple[str, ...]
    source: str
    aliases: tuple[str, ...] = ()
    reported: dict[str, int] = field(default_factory=dict)
    bandwidth_gb_s: float | None = None
    compute_capability: str | None = None
    gfx: str | None = None
    xe: str | None = None
    arch: str = ""
    sm_count: int | None = None
    fp16_tflops_dense: float | None = None
    fp16_kind: str | None = None
    tensor_cores: bool = False
    unified: bool = False
    pcie: str | None = None
    note: str = ""

    @property
    def called(self) -> str:
        """The short name that means this row and no other."""
        return self.aliases[0] if self.aliases else self.name

    @property
    def modified(self) -> bool:
        """Whether somebody soldered more memory on a card that has its name from its maker."""
        return "(modified)" in self.name


@cache
def gpus() -> tuple[Gpu, ...]:
    """The whole catalogue."""
    text = (Path(__file__).parent.parent / "data" / "gpus.json").read_text(encoding="utf-8")
    return tuple(_gpu(row) for row in json.loads(text))


def _gpu(row: dict[str, Any]) -> Gpu:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Gpu(**values)
