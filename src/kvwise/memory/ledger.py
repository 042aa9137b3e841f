"""The ledger: device -> part -> bytes, each with its basis and its reason.

The same type holds what was computed, simulated and measured, so the difference
between two tiers is a subtraction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.context import Context
from kvwise.memory.placement import Placement
from kvwise.text import Phrase

Basis = Literal["computed", "estimated", "simulated", "measured"]


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache of the context: attention KV, recurrent state, or DeepSeek-V4 state.

    `layers` are the layers that own storage; `k_row`/`v_row` elements per cell, one per such
    layer (0 = nothing stored), `r_row`/`s_row` those of one state of every such layer; bytes are
    totals over layers and streams without alignment. A `dsv4_state` holds `kv_bytes` and
    `score_bytes` of `state_size` rows of `n_embd_state` elements for one compression `ratio`.
    `by_device` (device number -> bytes) includes the device's own padding.
    """

    role: str
    kind: Literal["kv", "recurrent", "dsv4_state"]
    cells: int
    streams: int
    layers: tuple[int, ...]
    type_k: str = "f32"
    type_v: str = "f32"
    k_row: tuple[int, ...] = ()
    v_row: tuple[int, ...] = ()
    k_bytes: int = 0
    v_bytes: int = 0
    r_bytes: int = 0
    s_bytes: int = 0
    r_row: int = 0
    s_row: int = 0
    kv_bytes: int = 0
    score_bytes: int = 0
    ratio: int = 1
    state_size: int = 0
    n_embd_state: int = 0
    n_swa: int = 0
    swa_type: str = "none"
    n_rs_seq: int = 0
    by_device: dict[int, int] = field(default_factory=dict)
    reason: Phrase | None = None

    @property
    def nbytes(self) -> int:
        """All it stores, without alignment."""
        attention, state = self.k_bytes + self.v_bytes, self.r_bytes + self.s_bytes
        return attention + state + self.kv_bytes + self.score_bytes


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes in one of the engine's own buffer types (`CPU`, `VGPU_Host`, `CPU_REPACK`, `VGPU0`)."""

    buffer: str
    weights_bytes: int = 0
    context_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0


Companion = Literal["draft", "mtp", "speculation", "mmproj", "lora", "prompt_cache", "checkpoints"]
"""What can stand beside the model and its context; `mtp` is a draft context on the model's own
weights, `speculation` what a draft makes the target itself take more."""


@dataclass(frozen=True, slots=True)
class Extra:
    """What something beside the model and its context takes in one buffer.

    `device` is a device number or HOST; `up_to` means the bytes are a maximum that comes with use
    and may never be reached: shown, but in no total. `at_start_bytes` of a buffer that grows with
    use is what is reserved when the engine starts.
    """

    of: Companion
    name: str
    buffer: str
    device: int
    weights_bytes: int = 0
    context_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0
    up_to: bool = False
    at_start_bytes: int | None = None
    basis: dict[str, Basis] = field(default_factory=dict)
    reasons: dict[str, Phrase] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.context_bytes + self.compute_bytes + self.output_bytes


@dataclass(frozen=True, slots=True)
class Line:
    """All bytes on one device, or on the host (`host` true; its buffer types in `parts`).

    `parts` are the model and its context alone; `extras` what stands beside them.
    `largest_block_bytes` is the largest single allocation behind the buffers, `max_block_bytes` the
    largest that succeeds, if that is known; `unplaced_bytes` those of allocations that find no
    piece of a card whose memory lies in pieces. `reserve_bytes` is kept free because somebody asked
    for it (`memory/reserves.py`): no part of the total, but of what is left. `reclaimable_bytes`
    of the total are pages of a mapped file that nothing is read from after loading.
    """

    buffer: str
    device: str | None
    host: bool
    parts: tuple[Part, ...]
    extras: tuple[Extra, ...] = ()
    overhead_bytes: int = 0
    reserve_bytes: int = 0
    free_bytes: int | None = None
    largest_block_bytes: int = 0
    max_block_bytes: int | None = None
    unplaced_bytes: int = 0
    reclaimable_bytes: int = 0
    basis: dict[str, Basis] = field(default_factory=dict)
    reasons: dict[str, Phrase] = field(default_factory=dict)

    @property
    def weights_bytes(self) -> int:
        return sum(part.weights_bytes for part in self.parts)

    @property
    def context_bytes(self) -> int:
        return sum(part.context_bytes for part in self.parts)

    @property
    def compute_bytes(self) -> int:
        return sum(part.compute_bytes for part in self.parts)

    @property
    def output_bytes(self) -> int:
        return sum(part.output_bytes for part in self.parts)

    @property
    def extra_bytes(self) -> int:
        """Drafts, projectors, adapters: all beside the model that is surely taken."""
        return sum(extra.total_bytes for extra in self.extras if not extra.up_to)

    @property
    def up_to_bytes(self) -> int:
        """What may come with use (prompt cache, checkpoints); in no total."""
        return sum(extra.total_bytes for extra in self.extras if extra.up_to)

    @property
    def total_bytes(self) -> int:
        return (
            self.weights_bytes
            + self.context_bytes
            + self.compute_bytes
            + self.output_bytes
            + self.extra_bytes
            + self.overhead_bytes
        )

    @property
    def unmapped_bytes(self) -> int:
        """What belongs to no file: pages of a mapped one can be read again, these cannot."""
        taken = (extra for extra in self.extras if not extra.up_to)
        kept: list[Part | Extra] = [*self.parts, *taken]
        mapped = sum(each.weights_bytes for each in kept if each.buffer.endswith("_Mapped"))
        return self.total_bytes - mapped

    @property
    def headroom_bytes(self) -> int | None:
        """What is left of the free bytes beside the reserve that was asked for, with what can be
        reclaimed; negative = misses by so much; None = unknown."""
        if self.free_bytes is None:
            return None
        return self.free_bytes - self.total_bytes + self.reclaimable_bytes - self.reserve_bytes

    @property
    def misses_bytes(self) -> int:
        """What is missing: of the free bytes, of the largest single block, or of pieces, whichever
        is most."""
        short = max(-(self.headroom_bytes or 0), self.unplaced_bytes)
        if self.max_block_bytes is not None:
            short = max(short, self.largest_block_bytes - self.max_block_bytes)
        return max(0, short)

    @property
    def headroom_at_worst_bytes(self) -> int | None:
        """The same when all that may come with use has come."""
        left = self.headroom_bytes
        return None if left is None else left - self.up_to_bytes


@dataclass(frozen=True, slots=True)
class Note:
    """Something the reader should know; `code` is stable (zoo/README.md or our own)."""

    code: str
    message: Phrase


@dataclass(frozen=True, slots=True)
class Ledger:
    """Every byte of one launch: a line per device in use, in order, and the host's last.

    `verified` is False when a rule behind some figure was not proved for this architecture,
    device kind or build; `doubts` say which.
    """

    model: Model
    launch: Launch
    context: Context
    placement: Placement
    devices: tuple[Device, ...]
    lines: tuple[Line, ...]
    caches: tuple[Cache, ...]
    notes: tuple[Note, ...] = ()
    doubts: tuple[Phrase, ...] = ()
    compute_mode: str = "reserved"

    @property
    def verified(self) -> bool:
        return not self.doubts

    @property
    def misses_by_bytes(self) -> int:
        """What is missing, added up over devices and host; lines of unknown size never miss."""
        return sum(line.misses_bytes for line in self.lines)

    @property
    def fits(self) -> bool:
        return self.misses_by_bytes == 0

    @property
    def extras(self) -> tuple[Extra, ...]:
        """Everything beside the model and its context, device by device."""
        return tuple(extra for line in self.lines for extra in line.extras)

    @property
    def host(self) -> Line:
        """The host's line."""
        return self.lines[-1]
