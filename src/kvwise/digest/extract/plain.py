"""Plain text: no headings, no pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvwise.digest.extract import Piece
from kvwise.digest.extract.encodings import text_of
from kvwise.digest.reading import Text, readable

_BLOCK = 1 << 16


def marks(_text: Text) -> Iterator[tuple[int, Piece]]:
    """None."""
    return iter(())


def pieces(path: Path, encoding: str | None) -> Iterator[Piece]:
    """Of a file in an encoding whose bytes cannot be pointed at."""
    about = text_of(path, encoding)
    with path.open(encoding=about.encoding, errors="replace", newline="") as file:
        while text := file.read(_BLOCK):
            yield Piece(readable(text))
