"""Log lines of llama.cpp -> typed events, as they come.

Takes bytes in any pieces, keeps no more than one line, and never fails on what it does not
understand: a line that says nothing known is no event. The patterns are in `lines.py` and
`failures.py`; what the events add up to is `loaded.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvwise.engine import events as ev
from kvwise.engine import failures, lines

MAX_LINE = 64 * 1024
"""Longer lines are cut: a real line is some hundred characters, and the rest is someone's data."""
MATCHED = 4096
"""Characters of a line that are looked at."""

_PREFIX = re.compile(r"(?:\d{1,6}\.\d\d\.\d{3}\.\d{3} )?(?:([IWEDT]) )?")
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Line:
    """A line without time stamp, level and colour; `number` counts from 1."""

    number: int
    level: str | None
    text: str


def split_line(number: int, raw: str) -> Line:
    """Take the prefix of `--log-prefix --log-timestamps` (default since 2026) off a line."""
    text = _COLOUR.sub("", raw) if "\x1b" in raw else raw
    match = _PREFIX.match(text)
    level = match[1] if match else None
    return Line(number, level, text[match.end() :] if match else text)


def read_line(text: str) -> ev.Event | None:
    """What one line says, or None."""
    text = text[:MATCHED]
    for row in lines.ROWS:
        if row.needle in text:
            match = row.pattern.search(text)
            if match:
                return row.make(match)
    return failures.read(text)


class Reader:
    """Feed it bytes; it gives the records of the lines that are complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False
        self.lines = 0

    def feed(self, data: bytes) -> list[ev.Record]:
        """Records of all lines that `data` completes."""
        pieces = (self._rest + data).split(b"\n")
        self._rest = pieces.pop()
        records = [record for piece in pieces if (record := self._line(piece)) is not None]
        if len(self._rest) > MAX_LINE:
            self._rest = self._rest[:MAX_LINE]
        return records

    def close(self) -> list[ev.Record]:
        """The record of a last line without a newline."""
        rest, self._rest = self._rest, b""
        record = self._line(rest) if rest else None
        return [record] if record is not None else []

    def _line(self, piece: bytes) -> ev.Record | None:
        self.lines += 1
        raw = piece[:MAX_LINE].decode("utf-8", "replace").rstrip("\r")
        line = split_line(self.lines, raw)
        event = read_line(line.text)
        return None if event is None else ev.Record(line.number, line.level, line.text, event)


def read(chunks: Iterable[bytes]) -> Iterator[ev.Record]:
    """Records of a whole log, given as pieces of bytes (an open binary file will do)."""
    reader = Reader()
    for chunk in chunks:
        yield from reader.feed(chunk)
    yield from reader.close()
