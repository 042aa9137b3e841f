"""Compute buffers as the ledger sees them: bytes per device, how they were found, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory import compute
from kvwise.memory.context import Context
from kvwise.memory.ledger import Basis, Cache
from kvwise.memory.placement import HOST, Placement
from kvwise.memory.weights import Weights
from kvwise.text import Phrase, phrase

ComputeMode = Literal["reserved", "no-alloc"]


@dataclass(frozen=True, slots=True)
class Scratch:
    """Bytes per device number (`HOST` included)."""

    by_device: Mapping[int, int] = field(default_factory=dict)
    basis: Basis = "estimated"
    reason: Phrase | None = None


def scratch(
    model: Model,
    context: Context,
    *,
    placement: Placement,
    made: Sequence[Cache],
    weights: Weights,
    devices: Sequence[Device],
    launch: Launch,
    mode: ComputeMode,
) -> Scratch:
    """The compute buffers of a context."""
    answer = getattr(compute, "compute", None)
    if answer is None:
        sizes = dict.fromkeys((*range(len(devices)), HOST), 0)
        return Scratch(sizes, "estimated", phrase("no rule for compute buffers yet"))
    found = answer(model, context, placement, made, weights, devices, launch, mode)
    return Scratch(found.by_device, found.basis, found.reason)
