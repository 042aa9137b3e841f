"""Figures of a measurement as people read them."""

from __future__ import annotations

from datetime import datetime

from kvwise.results.record import Measurement
from kvwise.text import Phrase, phrase


def when(at: float) -> str:
    """Local time to the minute."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def number(value: float) -> str:
    """About four digits: `1,234`, `41.3`, `0.00123`."""
    size = abs(value)
    if size >= 1000 or value == int(value):
        return f"{value:,.0f}"
    digits = 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.1 else 5
    return f"{value:,.{digits}f}"


def with_spread(found: Measurement) -> str:
    """`41.3 ± 0.4 tokens/s`."""
    if found.median is None:
        return ""
    spread = "" if found.spread is None else f" ± {number(found.spread)}"
    return f"{number(found.median)}{spread} {found.unit}"


def outcome(found: Measurement) -> Phrase | str:
    """What came out: the median, else the divergence, else why there is nothing."""
    if found.state != "ok":
        kinds = ", ".join(
            str(each.get("title") or each.get("kind") or "") for each in found.findings
        )
        said = phrase("failed") if found.state == "failed" else phrase("skipped")
        return phrase("{state}: {why}", state=said, why=kinds) if kinds else said
    shown = with_spread(found)
    kl, same = found.figures.get("kl_mean"), found.figures.get("same_top")
    if not shown and isinstance(kl, int | float):
        shown = f"KL {number(kl)}" + (f", {same:.1%}" if isinstance(same, float) else "")
    return shown or phrase("no figure")
