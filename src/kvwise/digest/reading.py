"""A text file as a window that moves over it: flat memory whatever its size, exact byte offsets."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

_BLOCK = 1 << 16

DIRECT = {
    "utf-8", "ascii", "latin-1", "iso8859-1", "iso8859-15", "cp1250", "cp1251", "cp1252", "gb18030",
    "gbk", "gb2312", "big5", "shift_jis", "cp932", "euc_kr", "euc_jp", "koi8-r", "utf-16-le",
    "utf-16-be", "utf-32-le", "utf-32-be",
}  # fmt: skip
"""Encodings without a state, in which the bytes of a text are those of its parts one after another:
offsets count bytes of the file itself."""


@dataclass(frozen=True, slots=True)
class Text:
    """Where the text of a document is: `path` in an `encoding` of `DIRECT`, from byte `start`,
    behind a byte order mark. `errors` = surrogateescape keeps bytes that are no characters."""

    path: Path
    encoding: str = "utf-8"
    start: int = 0
    errors: str = "surrogateescape"

    def read(self, start: int, end: int) -> str:
        """The characters of the bytes `start` to `end`, for a reader. Raises OSError."""
        return readable(self.raw(start, end))

    def raw(self, start: int, end: int) -> str:
        """The same, from which the bytes can be had again."""
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(end - start).decode(self.encoding, self.errors)

    def bytes(self, text: str) -> int:
        """How many bytes a `raw` text has in the file."""
        return len(text.encode(self.encoding, self.errors))


def readable(text: str) -> str:
    """The text for an engine: bytes that were none become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if _odd(text) else text


def _odd(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


class Window:
    """What is ahead in a text. `offset` is the byte at which it starts."""

    def __init__(self, text: Text) -> None:
        self._about = text
        self._file: BinaryIO = text.path.open("rb")
        self._file.seek(text.start)
        self._decoder = codecs.getincrementaldecoder(text.encoding)(text.errors)
        self._text = ""
        self._ended = False
        self.offset = text.start

    def fill(self, chars: int) -> int:
        """Read until `chars` are there, or all there are; returns how many of them are there."""
        blocks: list[str] = []
        there = len(self._text)
        while there < chars and not self._ended:
            data = self._file.read(_BLOCK)
            self._ended = not data
            blocks.append(self._decoder.decode(data, final=not data))
            there += len(blocks[-1])
        if blocks:
            self._text += "".join(blocks)
        return min(chars, there)

    def text(self, end: int, start: int = 0) -> str:
        """Characters `start` to `end` of the window."""
        return self._text[start:end]

    def at_end(self, chars: int) -> bool:
        """Whether nothing follows the first `chars`."""
        return not self._text[chars:] and (self._ended or self.fill(chars + 1) <= chars)

    def size(self, chars: int, start: int = 0) -> int:
        """Bytes of the characters `start` to `chars` in the file."""
        text = self._text[start:chars]
        if text.isascii() and self._about.encoding in ("utf-8", "ascii"):
            return len(text)
        return len(text.encode(self._about.encoding, self._about.errors))

    def chars(self, offsets: Sequence[int], start: int, end: int) -> list[int]:
        """Characters from `start` to each of some byte offsets (ascending) before the character
        `end`."""
        data = self._text[start:end].encode(self._about.encoding, self._about.errors)
        at = self.offset + self.size(start)
        counts, number, last = [], 0, 0
        for offset in offsets:
            part = data[last : offset - at]
            number += len(part.decode(self._about.encoding, self._about.errors))
            counts.append(number)
            last = offset - at
        return counts

    def advance(self, chars: int) -> None:
        """Leave the first `chars` behind."""
        self.offset += self.size(chars)
        self._text = self._text[chars:]

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
