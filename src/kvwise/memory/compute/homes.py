"""Which backend's memory holds a weight, a layer's cache, the output.

Device numbers are those of `memory/placement.py` (GPUs from 0, HOST); backend numbers are the
scheduler's (GPUs from 0, the processor last). Where each weight lies is `memory/weights.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvwise.memory.placement import HOST, Placement

_PER_LAYER = ("rope_freqs.", "rope_factors_")
"""RoPE factors: one copy on every device of a layer."""


class Homes:
    """Backend number of every weight, layer and cache."""

    __slots__ = ("_placement", "_where")

    def __init__(self, placement: Placement, where: Mapping[str, int]) -> None:
        self._placement = placement
        self._where = where

    def backend(self, device: int) -> int:
        """Backend number of a device number."""
        return self._placement.n_gpu if device == HOST else device

    def of_layer(self, il: int) -> int:
        """Backend number of a layer's device."""
        return self.backend(self._placement.layers[il])

    def of_output(self) -> int:
        """Backend number of the output layer."""
        return self.backend(self._placement.output)

    def of(self, name: str, il: int | None = None) -> int | None:
        """Backend number of the weight `name`, None when it is not loaded."""
        if il is not None and name.startswith(_PER_LAYER):
            return self.of_layer(il)
        device = self._where.get(name)
        return None if device is None else self.backend(device)
