"""The list of free blocks of one compute buffer, as ggml keeps it.

Source: ggml/src/ggml-alloc.c (ggml_dyn_tallocr_alloc, ggml_dyn_tallocr_free_bytes), b10605,
for buffer types without a largest size (one endless chunk).
"""

from __future__ import annotations

ENDLESS = 1 << 62


class FreeList:
    """Free blocks sorted by offset; the last one is endless. `peak` is the buffer's size.

    `trail` says how every comparison of sizes and offsets came out: two lists with equal trails
    have gone the same way (`curve.py`). `highest` is the trail's length where the peak was met.
    """

    __slots__ = ("alignment", "highest", "offsets", "peak", "sizes", "trail")

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.offsets = [0]
        self.sizes = [ENDLESS]
        self.peak = 0
        self.trail: list[int] = []
        self.highest = 0

    def pad(self, size: int) -> int:
        """`size` rounded up to the alignment."""
        alignment = self.alignment
        return (size + alignment - 1) // alignment * alignment

    def alloc(self, size: int) -> int:
        """Take `size` bytes, rounded up; the offset."""
        return self.take(self.pad(size))

    def free(self, offset: int, size: int) -> None:
        """Give `size` bytes at `offset` back, rounded up."""
        self.give(offset, self.pad(size))

    def take(self, size: int) -> int:
        """Take `size` bytes, a multiple of the alignment; the offset.

        The smallest block that is large enough, of equal ones the last; the endless block at
        the end only when no other fits.
        """
        sizes = self.sizes
        best = len(sizes) - 1
        best_size = ENDLESS
        fits = bit = 1
        for place in range(best):
            free = sizes[place]
            bit += bit
            if size <= free:
                fits += bit
                if free <= best_size:
                    best, best_size = place, free
        offset = self.offsets[best]
        left = sizes[best] - size
        if left == 0:
            del self.offsets[best], sizes[best]
            self.trail += (fits, best)
        else:
            self.offsets[best] = offset + size
            sizes[best] = left
            self.trail += (fits, ~best)
        end = offset + size
        if end > self.peak:
            self.peak = end
            self.highest = len(self.trail)
        return offset

    def give(self, offset: int, size: int) -> None:
        """Give `size` bytes at `offset` back and join them with free neighbours.

        The first block, in address order, that touches the freed bytes grows; blocks of no
        bytes stay in the list and count, so the scan is ggml's own and not a bisection.
        """
        end = offset + size
        offsets, sizes = self.offsets, self.sizes
        for place, start in enumerate(offsets):
            if start + sizes[place] == offset:
                sizes[place] += size
                self.trail.append(8 * place + self._join(place))
                return
            if start == end:
                offsets[place] = offset
                sizes[place] += size
                self.trail.append(8 * place + 2 + (self._join(place - 1) if place > 0 else 0))
                return
        # a block of no bytes may lie behind the start of the endless one, and then follows it
        place = next((at for at, start in enumerate(offsets) if start >= offset), len(offsets))
        offsets.insert(place, offset)
        sizes.insert(place, size)
        self.trail.append(8 * place + 4)

    def _join(self, place: int) -> bool:
        """Make one block of `place` and the next if they touch."""
        offsets, sizes = self.offsets, self.sizes
        after = place + 1
        if after < len(offsets) and offsets[place] + sizes[place] == offsets[after]:
            sizes[place] += sizes[after]
            del offsets[after], sizes[after]
            return True
        return False
