"""What a request may try: levels, GPUs, micro-batches, contexts; what the user fixed is kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvwise.device import Device, Host
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.placement import buffer_name, override_names
from kvwise.plan.candidate import CELLS
from kvwise.plan.goal import Goal
from kvwise.plan.offload import Level, is_full, levels

UBATCHES = (512, 256, 128)
_LARGE_UBATCHES = (2048, 1024)
_LONGEST = 1 << 27  # an engine asked for more dies before it says why (engine-facts.md 0.8)
_SPLIT = frozenset({"tensor_split", "split_mode", "main_gpu"})
PROJECTOR_AWAY = "--no-mmproj-offload"


@dataclass
class Request:
    """A model, a machine, a goal, and the Launch fields that the user fixed in `base`."""

    model: Model
    devices: Sequence[Device]
    host: Host | None
    goal: Goal
    base: Launch
    fixed: Collection[str]

    @cached_property
    def slots(self) -> int:
        if "n_seq_max" in self.fixed and self.goal.slots is None:
            return self.base.n_seq_max
        return self.goal.slots or 1

    @cached_property
    def unit(self) -> int:
        """Smallest step of n_ctx that changes every slot by a whole block."""
        return CELLS * self.slots

    @cached_property
    def trained(self) -> int:
        return self.model.n_ctx_train or _LONGEST

    @cached_property
    def least(self) -> int:
        """Tokens that a slot must hold: what a purpose would like gives way to a fixed context."""
        least, goal = self.goal.least(self.trained), self.goal
        counted = (goal.prompt_tokens, goal.predict_tokens, goal.conversation)
        if "n_ctx" in self.fixed and all(tokens is None for tokens in counted):
            return min(least, (self.base.n_ctx or self.trained) // self.slots)
        return least

    @cached_property
    def most(self) -> int:
        """Tokens that a slot may hold: what the model was trained for, or what is enough."""
        least = min(self.least, self.trained)
        grows = self.goal.terms.grow
        return max(least, self.trained if grows else min(self.goal.enough, self.trained))

    @cached_property
    def levels(self) -> Sequence[Level]:
        """How much may be offloaded, nothing first."""
        found = levels(self.model, len(self.devices), self.fixed)
        if self.goal.never_offload and self.devices:
            full = [level for level in found if is_full(level, self.model)]
            return full or found[:1]
        return found

    @cached_property
    def seats(self) -> Sequence[dict[str, Any]]:
        """Which GPUs may be used: all of them, and fewer of the largest where there are several."""
        free: list[dict[str, Any]] = [{}]
        if len(self.devices) < 2 or not self.splits_freely or "devices" in self.fixed:
            return free
        by_size = sorted(self.devices, key=lambda gpu: -gpu.free_bytes)
        for count in range(len(by_size) - 1, 0, -1):
            kept = by_size[:count]
            free.append({"devices": tuple(buffer_name(d) for d in self.devices if d in kept)})
        fastest = max(self.devices, key=lambda gpu: gpu.bandwidth_bytes_per_s or 0)
        if fastest.bandwidth_bytes_per_s and fastest is not by_size[0]:
            free.append({"devices": (buffer_name(fastest),)})
        return [seat for seat in free if self._named_by_overrides(seat)]

    def _named_by_overrides(self, seat: dict[str, Any]) -> bool:
        """Whether a seat has every GPU that the user's `-ot` names."""
        kept, named = seat.get("devices"), {buffer for _, buffer in self.base.override_tensor}
        names = zip(map(buffer_name, self.devices), override_names(self.devices), strict=True)
        return kept is None or not any(name not in kept and {name, there} & named
                                       for name, there in names)  # fmt: skip

    @cached_property
    def asides(self) -> Sequence[dict[str, Any]]:
        """What stands beside the model may leave the GPUs: nothing, a draft, a projector."""
        free: list[dict[str, Any]] = [{}]
        launch = self.base
        if not self.devices:
            return free
        if launch.model_draft and "draft_gpu_layers" not in self.fixed:
            free.append({"draft_gpu_layers": 0})
        flags = {"--mmproj-offload", PROJECTOR_AWAY, "-mmdev", "--mmproj-device"}
        if launch.mmproj and not flags & set(launch.extra):
            free.append({"extra": (*launch.extra, PROJECTOR_AWAY)})
        return free

    @cached_property
    def splits_freely(self) -> bool:
        """Whether the shares of several GPUs are ours to choose."""
        known = all(device.free_bytes for device in self.devices)
        layered = self.base.split_mode == "layer"
        return len(self.devices) > 1 and layered and known and not _SPLIT & set(self.fixed)

    @property
    def has_cache(self) -> bool:
        return not (self.model.is_recurrent and not self.model.is_hybrid)

    @property
    def embeds(self) -> bool:
        """An encoder: it reads a text whole, in one micro-batch, and generates nothing."""
        return not self.model.causal_attn and not self.model.is_diffusion

    def ubatches(self) -> tuple[int, ...]:
        """Micro-batches to try, best first."""
        if "n_ubatch" in self.fixed:
            return (self.base.n_ubatch,)
        if self.embeds:
            return (min(self.trained, max(self.goal.enough, self.least)),)
        if self.goal.purpose == "max-speed" and self.devices:
            return (*_LARGE_UBATCHES, *UBATCHES[:1])
        if self.goal.purpose == "min-memory":
            return UBATCHES[::-1]
        return UBATCHES
