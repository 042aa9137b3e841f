"""Everything that a compute buffer depends on, as the key of what is remembered of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.backends import BackendKind, kind_of
from kvwise.memory.compute.growing import Mode
from kvwise.memory.compute.reserve import Job, job
from kvwise.memory.context import Context
from kvwise.memory.ledger import Cache
from kvwise.memory.placement import Placement


@dataclass(frozen=True, slots=True)
class Key:
    """Caches and devices follow from the rest: they are carried, not compared."""

    model: Model
    context: Context
    placement: Placement
    kinds: tuple[BackendKind, ...]
    weights: tuple[object, ...]
    mode: Mode
    caches: tuple[Cache, ...] = field(compare=False)
    launch: Launch = field(compare=False)
    devices: tuple[Device, ...] = field(compare=False)

    @classmethod
    def of(  # noqa: PLR0917  (the order of `compute`)
        cls, model: Model, context: Context, placement: Placement, caches: tuple[Cache, ...],
        launch: Launch, devices: Sequence[Device], mode: Mode = "reserved",
    ) -> Self:  # fmt: skip
        """Of one context on the devices that `placement.select` chose."""
        weights = (
            launch.override_tensor, launch.n_cpu_moe, launch.load_mtp, launch.mmap, launch.repack,
        )  # fmt: skip
        kinds = tuple(kind_of(device) for device in devices)
        return cls(model, context, placement, kinds, weights, mode, caches, launch, tuple(devices))

    def job(self) -> Job:
        """What the graph is built from."""
        return job(self.model, self.context, self.placement, self.caches, self.launch, self.devices)
