"""Sizes and counts in and out: bytes are integers, shown in MiB and GiB (1024).

`8G`, `8GiB` and `8GB` all mean GiB, as GPU users mean it; a bare number is bytes.
"""

from __future__ import annotations

import re

from kvwise.errors import UsageError

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_SIZE = re.compile(r"^\s*(\d+(?:[.,]\d+)?)\s*([kmgt]?)(i?b?)\s*$", re.IGNORECASE)
_COUNT = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([km]?)\s*$", re.IGNORECASE)
_FACTOR = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}


def pad(value: int, multiple: int) -> int:
    """Round `value` up to a multiple of `multiple` (GGML_PAD)."""
    return -(-value // multiple) * multiple


def parse_size(text: str) -> int:
    """Bytes from `6144MiB`, `8G`, `0.5 GiB` or `1024`; raises UsageError."""
    match = _SIZE.match(text)
    if not match:
        raise UsageError("{text!r} is not a size", text=text, hint="write 6GiB, 6144MiB or bytes")
    number = match[1].replace(",", ".")
    return round(float(number) * _FACTOR[match[2].lower()])


def parse_count(text: str) -> int:
    """Tokens from `32768`, `32k` or `1M` (1024-based, as `-c` users write it)."""
    match = _COUNT.match(text)
    if not match:
        raise UsageError("{text!r} is not a count", text=text, hint="write 32768 or 32k")
    return round(float(match[1]) * _FACTOR[match[2].lower()])


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
