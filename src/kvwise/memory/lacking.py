"""What does not fit: the part of a ledger that finds no room after those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kvwise.memory.ledger import Ledger, Line
from kvwise.text import template

Lacking = Literal["weights", "context", "compute", "extras", "block"]

LACKING: dict[Lacking, str] = {
    "weights": template("the weights alone are more"),
    "context": template("the weights fit, the cache beside them does not"),
    "compute": template("weights and cache fit, the compute buffers beside them do not"),
    "extras": template("the model fits, what stands beside it does not"),
    "block": template("the memory is there, but not in one piece"),
}


def lacking(ledger: Ledger) -> Lacking | None:
    """What misses most: None if all fits or no free memory is known."""
    worst = max(ledger.lines, key=lambda line: line.misses_bytes)
    return _first([worst], [worst]) if worst.misses_bytes else None


def lacking_together(ledger: Ledger, *, cards: bool = False) -> Lacking | None:
    """The same if devices and host were one memory: what no placement could mend. With `cards` the
    host's memory is not to be used."""
    rooms = [line for line in ledger.lines if not (cards and line.host)]
    known = all(line.free_bytes is not None for line in rooms)
    return _first(ledger.lines, rooms) if known else None


def _first(lines: Sequence[Line], rooms: Sequence[Line]) -> Lacking:
    left = sum((line.free_bytes or 0) - line.reserve_bytes - line.overhead_bytes for line in rooms)
    parts: tuple[tuple[Lacking, int], ...] = (
        ("weights", sum(line.weights_bytes for line in lines)),
        ("context", sum(line.context_bytes for line in lines)),
        ("compute", sum(line.compute_bytes + line.output_bytes for line in lines)),
        ("extras", sum(line.extra_bytes for line in lines)),
    )
    for name, size in parts:
        left -= size
        if left < 0:
            return name
    return "block"
