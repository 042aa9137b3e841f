"""Sizes and counts in and out: bytes are integers, shown in MiB and GiB (1024).

`8G`, `8GiB` and `8GB` all mean GiB, as GPU users mean it; a bare number is bytes.
"""

from __future__ import annotations

import re

from kvwise.errors import UsageError

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_FLAGS = re.IGNORECASE | re.ASCII
_SIZE = re.compile(r"\s*(\d{1,15})(?:[.,](\d{1,9}))?\s*([kmgt]?)(i?b?)\s*", _FLAGS)
_COUNT = re.compile(r"\s*(\d{1,15})(?:\.(\d{1,9}))?\s*([km]?)\s*", _FLAGS)
_FACTOR = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}


def pad(value: int, multiple: int) -> int:
    """Round `value` up to a multiple of `multiple` (GGML_PAD)."""
    return -(-value // multiple) * multiple


def parse_size(text: str) -> int:
    """Bytes from `6144MiB`, `8G`, `0.5 GiB` or `1024`; raises UsageError.

    `6,5G` is six and a half; `6,144M` could be meant both ways and is refused.
    """
    match = _SIZE.fullmatch(text)
    if not match:
        raise UsageError("{text!r} is not a size", text=text, hint="write 6GiB, 6144MiB or bytes")
    whole, fraction, unit, _ = match.groups()
    if "," in text and fraction and len(fraction) == 3:
        raise UsageError("{text!r} is not clear", text=text, hint="leave the comma out")
    return _scaled(whole, fraction, unit)


def parse_count(text: str) -> int:
    """Tokens from `32768`, `32k`, `1.5k` or `1M` (1024-based, as `-c` users write it).

    `4.096` is no count of tokens: it may be meant for 4 or for 4,096.
    """
    match = _COUNT.fullmatch(text)
    if not match or (match[2] and not match[3]):
        raise UsageError("{text!r} is not a count", text=text, hint="write 32768 or 32k")
    return _scaled(*match.groups())


def _scaled(whole: str, fraction: str | None, unit: str) -> int:
    """Exact: a float would lose bytes beyond 2^53. Halves are rounded up."""
    fraction = fraction or ""
    scale: int = 10 ** len(fraction)
    return (2 * int(whole + fraction) * _FACTOR[unit.lower()] + scale) // (2 * scale)


def mib(size: int) -> str:
    """`304.75 MiB`: two decimals, as llama.cpp logs print."""
    return f"{size / MIB:,.2f} MiB"


def show(size: int) -> str:
    """The unit a person would pick: GiB with one or two decimals from 10,000 MiB on, else MiB."""
    sign, size = ("-" if size < 0 else ""), abs(size)
    if size >= 10_000 * MIB:
        return f"{sign}{size / GIB:,.2f} GiB"
    if size >= MIB:
        return f"{sign}{size / MIB:,.1f} MiB"
    if size >= KIB:
        return f"{sign}{size / KIB:,.1f} KiB"
    return f"{sign}{size} B"


def percent(share: float, form: str = ".0f") -> str:
    """`89 %` of a share of 0.89; `form` is a float's, such as `+.1f`."""
    return f"{100 * share:{form}} %"


def clock(seconds: float) -> str:
    """`0:45`, `12:05`, `1:02:05`: how long, in any language."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
