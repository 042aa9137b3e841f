"""Markdown: its text as it is written, with the headings of both kinds (# and underlined)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kvwise.digest.extract import Piece, plain
from kvwise.digest.reading import Text, readable

_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)")
_UNDER = re.compile(r"^ {0,3}(=|-)\1*[ \t]*$")
_PLAIN = re.compile(r"^ {0,3}(?![-*+>|<#=\s]|\d+[.)]\s)")
"""A line that can be a title with a line under it: no list, quote, table, tag or rule."""
_LONGEST = 1 << 16  # of a line


def marks(text: Text) -> Iterator[tuple[int, Piece]]:
    """The byte offsets of headings, outside of code."""
    at, lines = text.start, _Lines()
    with text.path.open(encoding=text.encoding, errors=text.errors, newline="") as file:
        if text.start:
            file.read(1)  # the byte order mark
        while line := file.readline(_LONGEST):
            found = lines.heading(line.rstrip("\r\n"), at)
            if found is not None:
                start, level, title = found
                yield start, Piece("", (level, readable(title)))
            at += len(line.encode(text.encoding, text.errors))


class _Lines:
    """Line after line: which of them are headings. What stands between fences, in a comment, or
    between the dashes at the start of a file (its metadata) has none."""

    def __init__(self) -> None:
        self._fence = ""
        self._first = True
        self._metadata = self._comment = False
        self._alone: tuple[int, str] | None = None  # a line behind a blank one, and where it is
        self._blank = True

    def heading(self, line: str, at: int) -> tuple[int, int, str] | None:
        """Where it starts, its level, its title; one that is underlined starts a line before."""
        first, self._first = self._first, False
        if self._metadata or (first and line.rstrip() == "---"):
            self._metadata = first or line.rstrip() not in ("---", "...", "")
            return None
        opened = _FENCE.match(line)
        if (
            opened
            and not self._comment
            and (not self._fence or (opened[1].startswith(self._fence) and not opened[2].strip()))
        ):
            self._fence = "" if self._fence else opened[1]
        elif not self._fence:
            return self._outside(line, at)
        self._alone, self._blank = None, False
        return None

    def _outside(self, line: str, at: int) -> tuple[int, int, str] | None:
        begins = line.rfind("<!--")
        inside, self._comment = (
            self._comment,
            ("-->" not in line[max(begins, 0) :] and (self._comment or begins >= 0)),
        )
        alone, blank = self._alone, self._blank
        self._alone, self._blank = None, not line.strip()
        if inside or self._blank:
            return None
        found = _HEADING.match(line)
        if found:
            return (at, len(found[1]), found[2]) if found[2] else None
        under = _UNDER.match(line)
        if under and alone is not None:
            return alone[0], 1 if under[1] == "=" else 2, alone[1]
        if blank and _PLAIN.match(line):
            self._alone = at, line.strip()
        return None


def pieces(path: Path, encoding: str | None) -> Iterator[Piece]:
    return plain.pieces(path, encoding)
