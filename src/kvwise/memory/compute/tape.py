"""What a graph asks of the allocator, in order, and what comes of it for one context.

The order does not depend on sizes, so a tape is recorded once (`allocate.py`) and played for any
number of cells. The trail of a run says how every comparison came out on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.memory.compute.affine import NotAffine, parts
from kvwise.memory.compute.freelist import FreeList

FREE, RESIZE = -1, -2


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes of each backend's buffer, and the way to them.

    `trail`: how all comparisons came out and where each peak was met.
    """

    peaks: tuple[int, ...]
    trail: tuple[tuple[int, ...], ...]


class Tape:
    """Steps (what, slot, bytes per block of cells, further bytes).

    `what` is the backend that gives the slot its bytes, `FREE`, or `RESIZE` where another tensor
    takes the slot over and is smaller. `even`: every slot
    always has bytes and no trail leaves a comparison out. `constant`: no size
    depends on the cells. `typed`: something quantized that is no weight has a slot.
    """

    __slots__ = ("alignments", "constant", "even", "slots", "steps", "typed")

    def __init__(self, alignments: tuple[int, ...]) -> None:
        self.alignments = alignments
        self.steps: list[tuple[int, int, int, int]] = []
        self.slots = 0
        self.even = True
        self.constant = True
        self.typed = False

    def alloc(self, backend: int, size: int) -> int:
        """A new slot of `size` bytes, rounded up."""
        slot = self.slots
        self.slots += 1
        self._add(backend, slot, backend, size)
        return slot

    def free(self, slot: int) -> None:
        self.steps.append((FREE, slot, 0, 0))

    def resize(self, slot: int, backend: int, size: int) -> None:
        """The slot on `backend` keeps `size` bytes, rounded up."""
        self.even = False  # what is left over is not compared on the trail
        self._add(RESIZE, slot, backend, size)

    def _add(self, what: int, slot: int, backend: int, size: int) -> None:
        alignment = self.alignments[backend]
        step, size = parts(size)
        if step % alignment:
            raise NotAffine(f"{step} bytes per block are not aligned")
        if step:
            self.constant = False
        size = (size + alignment - 1) // alignment * alignment
        if step < 0 or step + size <= 0:
            self.even = False
        self.steps.append((what, slot, step, size))

    def play(self, blocks: int) -> Run:
        """Run the allocator for a cache of so many blocks of cells."""
        lists = [FreeList(alignment) for alignment in self.alignments]
        home = [0] * self.slots
        offset = [0] * self.slots
        held = [0] * self.slots
        for what, slot, step, size in self.steps:
            if what >= 0:
                size += step * blocks  # noqa: PLW2901
                home[slot] = what
                held[slot] = size
                offset[slot] = lists[what].take(size)
            elif what == FREE:
                lists[home[slot]].give(offset[slot], held[slot])
            else:
                size += step * blocks  # noqa: PLW2901
                over = held[slot] - size
                held[slot] = size
                if over > 0:
                    lists[home[slot]].give(offset[slot] + size, over)
        return Run(
            tuple(each.peak for each in lists),
            tuple((each.highest, *each.trail) for each in lists),
        )
