"""A card behind an interface shaped like CUDA's: memory, fills in order, events between them.

CUDA's driver interface and HIP differ in names only; the two files give theirs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise

from kvwise.probe.judge import Piece
from kvwise.probe.library import Calls
from kvwise.probe.measure import PIECE
from kvwise.units import MIB

ANY_SIZE = 1 << 62


@dataclass(frozen=True, slots=True)
class Names:
    """What the functions are called, and the codes that mean "no room"."""

    info: str
    allocate: str
    release: str
    fill: str
    fetch: str
    create: str
    record: str
    wait: str
    elapsed: str
    destroy: str
    no_room: Collection[int]


class StreamCard:
    """An opened device; see `measure.Card`. `done` lets go of it."""

    step = 2 * MIB  # the granularity of large requests
    max_block = ANY_SIZE

    def __init__(self, calls: Calls, names: Names, done: Callable[[], None]) -> None:
        self._calls, self._names, self._done = calls, names, done

    def memory(self) -> tuple[int, int]:
        """(free, total) in bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._calls(self._names.info, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int | None:
        """The address of a block, None when there is no room for it."""
        address = ctypes.c_uint64()
        code = self._calls.code(self._names.allocate, ctypes.byref(address), size)
        if code in self._names.no_room:
            return None
        if code:
            raise self._calls.error(self._names.allocate, code)
        if not address.value:
            raise self._calls.error(self._names.allocate, code)  # "done", and nothing given
        return address.value

    def release(self, block: int) -> None:
        """Give a block back."""
        self._calls(self._names.release, block)

    def touch(self, block: int, size: int, value: int) -> list[Piece]:
        """Fill a block, timed by the device's own clock between the pieces."""
        sizes = [min(PIECE, size - start) for start in range(0, size, PIECE)]
        events = [self._event() for _ in range(len(sizes) + 1)]
        self._calls(self._names.record, events[0], None)
        for number, piece in enumerate(sizes):
            self._calls(self._names.fill, block + number * PIECE, value, piece // 4, None)
            self._calls(self._names.record, events[number + 1], None)
        self._calls(self._names.wait, events[-1])
        times = [self._between(*pair) for pair in pairwise(events)]
        for event in events:
            self._calls(self._names.destroy, event)
        return [Piece(piece, seconds) for piece, seconds in zip(sizes, times, strict=True)]

    def peek(self, block: int, offset: int) -> int:
        """The word at an offset, fetched to the host."""
        word = ctypes.c_uint32()
        self._calls(self._names.fetch, ctypes.byref(word), block + offset, 4)
        return word.value

    def close(self) -> None:
        """Let go of the device."""
        self._done()

    def _event(self) -> int | None:
        event = ctypes.c_void_p()
        self._calls(self._names.create, ctypes.byref(event), 0)
        return event.value

    def _between(self, begun: int | None, ended: int | None) -> float:
        milliseconds = ctypes.c_float()
        self._calls(self._names.elapsed, ctypes.byref(milliseconds), begun, ended)
        return milliseconds.value / 1000
