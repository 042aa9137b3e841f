"""Does written memory lie on the card? Judged by the speed of its pieces, and by Windows' counts.

A piece in system memory is written over the bus: at most some 55 GB/s (PCIe 5 x16), while the
slowest cards still sold write above 80 from their own memory. The thresholds are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from kvwise.units import MIB

_SHARE = 0.35  # of the rate of the fast pieces: slower is suspect
_BUS = 70 * 10**9  # bytes/s that no bus reaches and every card does
_SLOW_CARD = 0.2  # of the theoretical bandwidth: if even the fastest pieces are below, all suspect
_GROWTH = 64 * MIB  # of shared memory during the measurement: Windows moved something


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that were written in one go, and the seconds that took."""

    size: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.size / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`spilled` None = cannot be said. `rate` is that of the memory on the card, bytes/s."""

    spilled: bool | None
    spilled_bytes: int
    rate: int
    note: str = ""
    values: dict[str, int] = field(default_factory=dict)


def judge(pieces: Sequence[Piece], *, bus: int = 0, growths: Sequence[int] = ()) -> Verdict:
    """Which pieces are too slow to lie on the card; `bus` is its theoretical bandwidth, 0 unknown.

    `growths` is what this process gained in shared memory meanwhile, as each witness counts it.
    A contrast on one card, or a rate far below its theory, is enough where nobody counts; else
    two of the speed and the witnesses must agree, and one alone leaves it open.
    """
    if not pieces:
        return Verdict(None, 0, 0)
    rates = sorted((piece.rate for piece in pieces), reverse=True)
    fast = median(rates[: max(1, len(rates) // 4)])
    below = fast * _SHARE
    unknown = False
    if fast < _BUS:  # nothing here is as fast as a card should be
        if bus and fast < bus * _SLOW_CARD:
            below = _BUS
        unknown = not bus
    slow = [piece for piece in pieces if piece.rate < min(below, _BUS)]
    grown = max(growths, default=0)
    spilled_bytes = sum(piece.size for piece in slow or pieces)
    if not slow:
        spilled_bytes = min(spilled_bytes, grown)
    rate = round(fast)
    values = {
        "spilled_bytes": spilled_bytes,
        "slow_rate": round(median([piece.rate for piece in slow])) if slow else 0,
        "fast_rate": rate,
        "shared_bytes": grown,
    }
    against = bool(slow) + sum(growth > _GROWTH for growth in growths)
    if against >= 2 or (slow and not growths):
        return Verdict(True, spilled_bytes, rate, "spilled" if slow else "counted_out", values)
    if against:
        note = "perhaps_spilled" if slow else "perhaps_counted_out"
        return Verdict(None, spilled_bytes, rate, note, values)
    if unknown and not growths:
        return Verdict(None, 0, rate, "slow_card", values)
    return Verdict(False, 0, rate)
