"""Which of two launches is faster, and whether that can be said at all.

Two ranges that were worked out are off by the same shares, so their middles can be compared.
Where a measurement stands behind one of them this is not so: only ranges that do not touch tell
more than noise.
"""

from __future__ import annotations

from kvwise.plan.speed.estimate import CORRECTED, MEASURED, Speed
from kvwise.plan.speed.roofline import Range

_KNOWN = {CORRECTED, MEASURED}  # a measurement stands behind it


def decode(one: Speed, other: Speed) -> float | None:
    """Answers of `one` for each of `other`; None = not known, or no more than noise."""
    return _ratio(one.decode, other.decode, plain=not {one.basis, other.basis} & _KNOWN)


def prompt(one: Speed, other: Speed) -> float | None:
    """The same for reading prompts."""
    plain = not {one.prompt_basis, other.prompt_basis} & _KNOWN
    return _ratio(one.prompt, other.prompt, plain=plain)


def measured(*speeds: Speed) -> bool:
    """Whether a measurement stands behind how fast each of them answers."""
    return all(each.basis in _KNOWN for each in speeds)


def _ratio(one: Range | None, other: Range | None, *, plain: bool) -> float | None:
    if one is None or other is None:
        return None
    apart = one.low > other.high or one.high < other.low
    return one.middle / other.middle if plain or apart else None
