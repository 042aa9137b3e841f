"""Markdown: its text as it is written, with the headings that start with number signs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kvwise.digest.extract import Piece, plain
from kvwise.digest.reading import Text, readable

_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_LONGEST = 1 << 16  # of a line


def marks(text: Text) -> Iterator[tuple[int, Piece]]:
    """The byte offsets of headings, outside of code."""
    at, fence = text.start, ""
    with text.path.open(encoding=text.encoding, errors=text.errors, newline="") as file:
        if text.start:
            file.read(1)  # the byte order mark
        while line := file.readline(_LONGEST):
            opened = _FENCE.match(line)
            if opened and (not fence or opened[1].startswith(fence)):
                fence = "" if fence else opened[1]
            heading = None if fence else _HEADING.match(line.rstrip("\r\n"))
            if heading and heading[2]:
                yield at, Piece("", (len(heading[1]), readable(heading[2])))
            at += len(line.encode(text.encoding, text.errors))


def pieces(path: Path, encoding: str | None) -> Iterator[Piece]:
    return plain.pieces(path, encoding)
