"""The peak of a tape as a function of the cells, out of few runs, to the byte.

Between two runs with equal trails every comparison of sizes and offsets comes out as it does at
both ends: each is a comparison of two numbers that change evenly, and such a one cannot turn
round and back again. So offsets change evenly, too, and the step that ends highest at both ends
does so in between: the peak lies on the straight line. Where trails differ the tape is played.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from kvwise.memory.compute.tape import Run, Tape


class Curve:
    """Bytes per backend of one tape; `played` counts the runs."""

    __slots__ = ("_at", "_runs", "played", "tape")

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.played = 0
        self._at: list[int] = []  # where it was played, in order
        self._runs: dict[int, Run] = {}

    def at(self, blocks: int) -> tuple[int, ...]:
        """Bytes per backend for a cache of so many blocks of cells."""
        run = self._runs.get(blocks)
        if run is None and self.tape.constant:
            run = next(iter(self._runs.values()), None)
        if run is not None:
            return run.peaks
        between = self._between(blocks) or self._ahead(blocks)
        return between or self._play(blocks).peaks

    def _between(self, blocks: int) -> tuple[int, ...] | None:
        """On the line between the runs on both sides, if they went the same way."""
        place = bisect_left(self._at, blocks)
        if not self.tape.even or not 0 < place < len(self._at):
            return None
        left, right = self._at[place - 1], self._at[place]
        low, high = self._runs[left], self._runs[right]
        if low.trail is not high.trail:
            return None
        part, whole = blocks - left, right - left
        return tuple(
            start + (end - start) * part // whole
            for start, end in zip(low.peaks, high.peaks, strict=True)
        )

    def _ahead(self, blocks: int) -> tuple[int, ...] | None:
        """Somebody walks outwards: look as far as the next power of two at once."""
        if len(self._at) < 3 or not self.tape.even:
            return None
        if blocks > self._at[-1]:
            self._play(1 << blocks.bit_length())
        elif blocks < self._at[0]:
            self._play(1 << (blocks.bit_length() - 1))
        else:
            return None
        found = self._runs.get(blocks)
        return found.peaks if found else self._between(blocks)

    def _play(self, blocks: int) -> Run:
        run = self.tape.play(blocks)
        self.played += 1
        place = bisect_left(self._at, blocks)
        for beside in self._at[max(0, place - 1) : place + 1]:
            known = self._runs[beside].trail
            if run.trail == known:  # one copy: equal is the same, and memory stays small
                run = Run(run.peaks, known)
        self._runs[blocks] = run
        insort(self._at, blocks)
        return run
