"""A launch that fits, and the figures by which launches are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.memory.placement import place
from kvwise.plan.lend import lends, without_loans

CELLS = 256  # llama.cpp pads a context to whole blocks of this many cells
_UNKNOWN = 1 << 62  # nothing is known to be missing


@dataclass(frozen=True)
class Candidate:
    """A launch that fits, with its ledger."""

    launch: Launch
    ledger: Ledger
    full: bool  # every layer and expert is on the GPUs
    host_read: int  # bytes per token from host memory, weights and cache, at the least context
    limit: int  # tokens per slot beyond which the model was not trained
    quality: str  # class of the cache types
    level: Mapping[str, Any] = field(default_factory=dict)  # how much is offloaded (`offload.py`)
    aside: int = 0  # drafts and projectors that are on the host to make room
    shared: bool = False  # all slots at once draw on one unified cache

    @property
    def slot_tokens(self) -> int:
        """Tokens that one slot can hold: prompt and answer together."""
        context = self.ledger.context
        room = context.n_ctx_seq
        if self.shared:
            room //= context.n_seq_max
        return min(room, self.limit)

    @cached_property
    def gpu_bytes(self) -> int:
        return sum(line.total_bytes for line in self.ledger.lines if not line.host)

    @cached_property
    def all_bytes(self) -> int:
        return sum(line.total_bytes for line in self.ledger.lines)

    @cached_property
    def gpu_seconds(self) -> float:
        """What the GPUs need at least to read weights and cache once; 0 = not known."""
        seconds = 0.0
        for line, device in zip(self.ledger.lines, self.ledger.devices, strict=False):
            if not device.bandwidth_bytes_per_s:
                return 0.0
            seconds += (line.weights_bytes + line.context_bytes) / device.bandwidth_bytes_per_s
        return seconds

    @cached_property
    def forgoes_pipeline(self) -> bool:
        """Whether the GPUs could work on a prompt in a pipeline, but for what one lends another."""
        if not lends(self.launch):
            return False
        model, devices = self.ledger.model, self.ledger.devices[: self.ledger.placement.n_gpu]
        return place(model, without_loans(self.launch), devices).pipeline_parallel

    @property
    def pair(self) -> tuple[str, str]:
        return self.launch.type_k, self.launch.type_v


def lefts(ledger: Ledger, more: Sequence[int] = ()) -> list[int]:
    """Bytes left on each line, its reserve set aside; negative = misses by so much.

    `more`: bytes that each line is to hold beside its own. A line of unknown size never misses.
    """
    left: list[int] = []
    for number, line in enumerate(ledger.lines):
        if line.headroom_bytes is None:
            left.append(_UNKNOWN)
            continue
        reserve = 0 if line.host else ledger.devices[number].reserve_bytes or 0
        beside = more[number] if number < len(more) else 0
        room = line.headroom_bytes - reserve - beside
        if line.max_block_bytes is not None and line.largest_block_bytes > line.max_block_bytes:
            room = min(room, line.max_block_bytes - line.largest_block_bytes)
        if line.unplaced_bytes:
            room = min(room, -line.unplaced_bytes)
        left.append(room)
    return left


def slack_of(ledger: Ledger, more: Sequence[int] = (), *, gpus: bool = False) -> int:
    """Bytes left on the tightest line, reserve set aside; negative = misses by so much.

    `gpus` leaves the host out, which fills when the GPUs do not.
    """
    left = lefts(ledger, more)
    return min(left[:-1] if gpus and len(left) > 1 else left)


def missing(ledger: Ledger) -> int:
    """Bytes by which the tightest device misses, its reserve included; 0 = it fits."""
    return max(0, -slack_of(ledger))
