"""How much of a device can really be had: take memory, touch it, give it back.

Works on a `Card`, whatever its backend. The largest block is found first (one large buffer per
kind is what llama.cpp asks CUDA for), then everything, then all of it is written twice: the first
pass pays for pages that are made at first touch, the second shows memory that lies elsewhere.
Never more than the ceiling is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from kvwise.probe.judge import Piece, judge
from kvwise.probe.library import DriverError
from kvwise.units import MIB

SMALLEST = 16 * MIB  # below this a block is of no use to a model
MOST_BLOCKS = 64
PIECE = 256 * MIB  # what is written and timed at once
VALUES = (0x5A5A5A5A, 0xA5A5A5A5)  # one per pass, so that an old value cannot pass for a new one

Say = Callable[..., None]
"""Reports fields of the device (`say(free_bytes=1)`), or a phase before a call that may hang."""


class Card(Protocol):
    """An opened device."""

    step: int  # bytes; blocks are asked in multiples of it
    max_block: int  # bytes; more is refused by rule

    def memory(self) -> tuple[int, int]:
        """(free, total) as the driver says. Raises DriverError."""
        ...

    def allocate(self, size: int) -> object | None:
        """A block, or None when there is no room. Raises DriverError for any other refusal."""
        ...

    def release(self, block: Any) -> None:
        """Give a block back. Raises DriverError."""
        ...

    def touch(self, block: Any, size: int, value: int) -> list[Piece]:
        """Write a block piece by piece and wait: bytes and seconds of each."""
        ...

    def peek(self, block: Any, offset: int) -> int:
        """The 32-bit word at a byte offset."""
        ...

    def close(self) -> None:
        """Let go of the device."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """What a measurement may do and is judged by.

    `margin` bytes stay free; `ceiling` bytes at most, None = all but the margin; `judge_spill`
    False where the memory is the host's own; `bus` is the theoretical bandwidth, 0 = unknown;
    `witnesses` read bytes of this process in shared memory, as Windows counts them (None = cannot
    tell now).
    """

    margin: int = 0
    ceiling: int | None = None
    seconds: float = 40.0
    judge_spill: bool = True
    bus: int = 0
    witnesses: Sequence[Callable[[], int | None]] = ()


@dataclass(slots=True)
class _Held:
    """A block that is ours now."""

    block: Any
    size: int


def measure(card: Card, terms: Terms, say: Say) -> None:
    """Find and report the largest block, everything that can be had, and whether it spilled.

    Fields: see `report.DeviceReport`. Raises DriverError; what is held is freed in any case.
    """
    held: list[_Held] = []
    say(phase="memory")
    free, total = card.memory()
    free = min(free, total)
    ceiling = max(0, free - terms.margin)
    if terms.ceiling is not None:
        ceiling = min(ceiling, max(0, terms.ceiling))
    ceiling -= ceiling % card.step
    say(free_bytes=free, total_bytes=total, ceiling_bytes=ceiling, margin_bytes=terms.margin)
    say(phase="count")
    before = [witness() for witness in terms.witnesses]
    try:
        _take(card, terms, ceiling, held, say)
        say(blocks=[each.size for each in held], all_blocks_bytes=sum(each.size for each in held))
        if held:
            _write(card, terms, held, before, say)
    except DriverError:
        with suppress(DriverError):  # after some failures nothing works any more
            _free(card, held, say)
        raise
    _free(card, held, say)
    say(phase="memory")
    missing = free - card.memory()[0]
    if held and missing >= max(SMALLEST, held[-1].size // 2):
        say(note="leak", left_bytes=missing)


def _free(card: Card, held: list[_Held], say: Say) -> None:
    for each in reversed(held):
        say(phase="free")
        card.release(each.block)


def _take(card: Card, terms: Terms, ceiling: int, held: list[_Held], say: Say) -> None:
    """Blocks from the largest down until nothing useful is left."""
    search = _Search(card, say, time.monotonic() + terms.seconds)
    most, left = min(ceiling, card.max_block), ceiling
    while left >= SMALLEST and len(held) < MOST_BLOCKS:
        found = search.largest(min(most, left))
        if found is None:
            break
        if not held:
            say(largest_block_bytes=found.size)
        held.append(found)
        most, left = min(most, found.size), left - found.size
    if not held:
        say(largest_block_bytes=0)
    if search.late:
        say(note="time_limit", seconds=round(terms.seconds))
    if search.contended:
        say(note="contended")


class _Search:
    """Looks for the largest block below a bound."""

    def __init__(self, card: Card, say: Say, deadline: float) -> None:
        self._card, self._say, self._deadline = card, say, deadline
        self.contended = False

    @property
    def late(self) -> bool:
        return time.monotonic() > self._deadline

    def largest(self, most: int) -> _Held | None:
        """The largest block up to `most`, held; None when none of useful size can be had."""
        step = self._card.step
        whole = self._try(most - most % step)
        if whole:
            return whole
        low, high = 0, most // step  # `low` steps could be had, `high` could not
        while high - low > 1 and high * step > SMALLEST and not self.late:
            middle = (low + high) // 2
            found = self._try(middle * step)
            if found:
                self._card.release(found.block)
                low = middle
            else:
                high = middle
        return self._confirmed(low * step)

    def _confirmed(self, size: int) -> _Held | None:
        """A size that was had a moment ago, taken to keep; less if another program was faster."""
        step, had = self._card.step, size
        while size >= SMALLEST and not self.late:
            found = self._try(size)
            if found:
                self.contended |= size < had - had // 50
                return found
            size -= max(step, size // 100 - size // 100 % step)
        self.contended |= had >= SMALLEST and not self.late
        return None

    def _try(self, size: int) -> _Held | None:
        if size <= 0:
            return None
        self._say(phase="allocate", bytes=size)
        block = self._card.allocate(size)
        return None if block is None else _Held(block, size)


def _write(card: Card, terms: Terms, held: list[_Held], before: list[int | None], say: Say) -> None:
    """Write everything twice, read some of it back, and judge the second pass; `before` is what
    the witnesses counted when nothing was taken yet."""
    pieces: list[Piece] = []
    for value in VALUES:
        pieces = []
        for each in held:
            say(phase="touch", bytes=each.size)
            pieces += card.touch(each.block, each.size, value)
    say(phase="check")
    for each in held:
        if {card.peek(each.block, 0), card.peek(each.block, each.size - 4)} != {VALUES[-1]}:
            say(note="read_back")
            break
    say(phase="count")
    after = [witness() for witness in terms.witnesses]
    growths = [
        max(0, now - then)
        for then, now in zip(before, after, strict=True)
        if then is not None and now is not None
    ]
    verdict = judge(pieces, bus=terms.bus, growths=growths)
    say(write_bytes_per_s=verdict.rate)
    if terms.judge_spill:
        say(spilled=verdict.spilled, spilled_bytes=verdict.spilled_bytes)
        if verdict.note:
            say(note=verdict.note, **verdict.values)
