"""Figures of a measurement as people read them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime

from kvwise.results.record import Measurement, spread
from kvwise.text import Phrase, phrase
from kvwise.units import percent


def when(at: float) -> str:
    """Local time to the minute."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def number(value: float, digits: int | None = None) -> str:
    """About four digits of a measured figure: `1,234`, `41.3`, `0.00123`; a count as it is."""
    if digits is None:
        digits = 0 if isinstance(value, int) else digits_of(value)
    return f"{value:,.{digits}f}"


def digits_of(value: float) -> int:
    """Decimals that a figure of this size is worth."""
    size = abs(value)
    if size >= 100 or size == 0:
        return 0
    if size >= 1:
        return 1 if size >= 10 else 2
    return 3 if size >= 0.1 else min(8, 1 - math.floor(math.log10(size)))


_UNITS = {"tokens/s": phrase("tokens/s"), "nats": phrase("nats")}


def unit_said(unit: str) -> Phrase | str:
    """The unit of a sample, in words."""
    return _UNITS.get(unit) or visible(unit)


def with_spread(found: Measurement, *, unit: bool = True) -> Phrase | str:
    """`41.3 ± 0.4 tokens/s`, or without its unit: both with as many decimals, more where the spread
    would be 0. Where every sample was disturbed it says by what: `38.9 ± 2.0 tokens/s (contended)`.
    Empty without a sample."""
    if not found.shown:
        return ""
    said: Phrase | str = _around(found)
    if unit:
        said = phrase("{value} {unit}", value=said, unit=unit_said(found.unit))
    if not found.disturbed:
        return said
    flags = sorted({flag for each in found.samples for flag in each.flags})
    return phrase("{value} ({why})", value=said, why=flags_said(flags))


def _around(found: Measurement) -> str:
    median, around = statistics.median(found.shown), spread(found.shown)
    digits = digits_of(median)
    if around is None:
        return number(median, digits)
    more = digits + (0 < around < 0.5 * 10**-digits)
    return f"{number(median, digits)} ± {number(around, more)}"


_FLAGS = {
    "contended": phrase("contended"),
    "throttled": phrase("throttled"),
    "warmup": phrase("warm-up"),
}


def flags_said(flags: Iterable[str]) -> Phrase:
    """Why a sample does not count, in words."""
    return listed([_FLAGS.get(flag, visible(flag)) for flag in flags])


def listed(items: Sequence[Phrase | str]) -> Phrase:
    """One after the other."""
    said = phrase("{text}", text=items[0] if items else "")
    for item in items[1:]:
        said = phrase("{first}, {then}", first=said, then=item)
    return said


def outcome(found: Measurement) -> Phrase | str:
    """What came out: the median, else the divergence, else why there is nothing."""
    if found.state != "ok":
        kinds = ", ".join(
            str(each.get("title") or each.get("kind") or "") for each in found.findings
        )
        said = phrase("failed") if found.state == "failed" else phrase("skipped")
        why = kinds or visible(str(found.figures.get("error") or ""))
        return phrase("{state}: {why}", state=said, why=why) if why else said
    if found.shown:
        return with_spread(found)
    kl, same = found.figures.get("kl_mean"), found.figures.get("same_top")
    if not isinstance(kl, int | float):
        return phrase("no figure")
    return f"KL {number(kl)}" + (f", {percent(same, '.1f')}" if isinstance(same, float) else "")


def visible(text: str) -> str:
    """A text of printable characters only, others as escapes: they would steer a terminal, break a
    row of CSV, end the process of the drawing library."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
