"""Log lines of known failures, and lines that are none by themselves (`ev.Remark`).

Only what is said; what it means and what to do is the diagnosis' business. The wordings are in
`wordings/`, one table per theme; the first row that matches a line is what it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from kvwise.engine import events as ev
from kvwise.engine.wordings import (
    Wording,
    devices,
    endings,
    files,
    general,
    memory,
    noted,
    own,
    remarks,
    requests,
    signals,
    speculation,
    wrappers,
)


class Row(NamedTuple):
    """One wording: its code, a word that must be in the line, its pattern."""

    code: str
    needle: str
    source: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when the first line needs it: most logs need few of the hundreds."""
        return _compiled(self.source)


@cache
def _compiled(source: str) -> re.Pattern[str]:
    return re.compile(source, re.ASCII)


def _rows(*tables: Iterable[Wording]) -> tuple[Row, ...]:
    return tuple(Row(*wording) for table in tables for wording in table)


ROWS = _rows(
    memory.ROWS,
    files.ROWS,
    requests.ROWS,
    speculation.ROWS,
    endings.ROWS,
    devices.ROWS,
    wrappers.ROWS,
    general.ROWS,
)
REMARKS = _rows(remarks.ROWS)
OWN = _rows(own.ROWS)
NOTED = _rows(noted.ROWS)
TABLES: tuple[tuple[tuple[Row, ...], type[ev.Failure | ev.Remark]], ...] = (
    (OWN, ev.Remark), (NOTED, ev.Remark), (ROWS, ev.Failure), (REMARKS, ev.Remark),
)  # fmt: skip
"""In the order in which they are asked."""
_PLACE = re.compile(r"(?:[A-Za-z]:)?[\w./\\+@~-]*\.(?:cpp|cc|cuh?|mm?|c|h|hpp):\d{1,6}: ")
"""Where in its source a program says that it stopped: names of files are no words of the cause."""
_HINTED = 1000  # characters of a line that are searched for a hint


def read(text: str) -> ev.Failure | ev.Remark | None:
    """What kvwise wrote itself, else the failure that a line reports, else what it remarks."""
    for rows, kind in TABLES:
        found = _first(rows, text)
        if found:
            return kind(*found)
    return None


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
    text = _PLACE.sub("", text[:_HINTED])
    if _plain(signals.ADVICE).search(text):
        return None
    for code, cues, but in _hints():
        if all(cue.search(text) for cue in cues) and not (but and but.search(text)):
            return code
    return None


@cache
def _hints() -> tuple[tuple[str, tuple[re.Pattern[str], ...], re.Pattern[str] | None], ...]:
    """Compiled when the first line needs them: most logs have none."""
    return tuple(
        (each.code, tuple(map(_plain, each.cues)), _plain(each.but) if each.but else None)
        for each in signals.SIGNALS
    )


def _plain(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII | re.IGNORECASE)
