"""Log lines of known failures, and lines that are none by themselves (`ev.Remark`).

Only what is said; what it means and what to do is the diagnosis' business. The wordings are in
`wordings/`, one table per theme; the first row that matches a line is what it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from kvwise.engine import events as ev
from kvwise.engine.wordings import (
    Wording,
    devices,
    endings,
    files,
    general,
    memory,
    remarks,
    requests,
    signals,
    speculation,
)


class Row(NamedTuple):
    """One wording: its code, a word that must be in the line, its pattern."""

    code: str
    needle: str
    pattern: re.Pattern[str]


def _rows(*tables: Iterable[Wording]) -> tuple[Row, ...]:
    return tuple(
        Row(code, needle, re.compile(pattern, re.ASCII))
        for table in tables
        for code, needle, pattern in table
    )


ROWS = _rows(
    memory.ROWS,
    files.ROWS,
    requests.ROWS,
    speculation.ROWS,
    endings.ROWS,
    devices.ROWS,
    general.ROWS,
)
REMARKS = _rows(remarks.ROWS)
_HINTS = tuple(
    (code, re.compile(pattern, re.ASCII | re.IGNORECASE)) for code, pattern in signals.ROWS
)
_HINTED = 1000  # characters of a line that are searched for a hint


def read(text: str) -> ev.Failure | ev.Remark | None:
    """The failure that a line reports, else what it remarks, else None."""
    found = _first(ROWS, text)
    if found:
        return ev.Failure(*found)
    found = _first(REMARKS, text)
    return ev.Remark(*found) if found else None


def _first(rows: tuple[Row, ...], text: str) -> tuple[str, dict[str, str]] | None:
    for row in rows:
        if row.needle in text:
            match = row.pattern.search(text)
            if match:
                fields = {key: value for key, value in match.groupdict().items() if value}
                return row.code, fields
    return None


def hint(text: str) -> str | None:
    """The code of the cause that the plain words of a line hint at, when nothing knows the line."""
    text = text[:_HINTED]
    return next((code for code, pattern in _HINTS if pattern.search(text)), None)
