"""The files that a launch names beside its model; opening them is for the faces."""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.gguf.header import Header
from kvwise.gguf.model import Model


@dataclass(frozen=True, slots=True)
class Companions:
    """`draft` is the model of `-md`, `mmproj` the header of `--mmproj`, `loras` those of the
    adapters in the order of `options.asked.adapters`. What is None or missing is not counted,
    and the ledger says so."""

    draft: Model | None = None
    mmproj: Header | None = None
    loras: tuple[Header, ...] = ()


NONE = Companions()
