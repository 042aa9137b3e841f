"""A position in a source: every length is checked against the bytes that exist before it is used.

Reads windows, so that memory stays flat however long the header is.
"""

from __future__ import annotations

import re
import struct
from functools import cache

from kvwise.errors import HeaderError, SourceError
from kvwise.gguf.lies import (
    BadText,
    HeaderTooLarge,
    LengthBeyondFile,
    StringTooLong,
    Truncated,
    plain,
)
from kvwise.gguf.source import Source
from kvwise.text import Phrase, template

WINDOW = 256 * 1024
"""Bytes of one read; small beside a bare Python process."""

MAX_HEADER = 256 * 1024 * 1024
"""Bytes that a header may have. The largest known (vocabularies of 300,000) have about 30 MB."""

MAX_STRING = 64 * 1024 * 1024
"""Bytes of one string. Some files carry a whole tokenizer.json of up to 30 MB in one value."""


_RUN = 256
"""Strings that `skip_strings` passes over at once where all of them are short."""

_USUAL = (*range(5, 9), 3, 4, *range(9, 17), 2, 1, *range(17, 64), 0)
"""Lengths of tokens in bytes, the frequent ones first (Gemma 3's vocabulary)."""


class Cursor:
    """Walks over the header of one source. Raises a HeaderError for each lie about a length."""

    __slots__ = ("_at", "_base", "_buffer", "_end", "_length", "_limit", "order", "source")

    def __init__(self, source: Source, order: str = "<") -> None:
        self.source = source
        self._buffer = b""
        self._base = 0  # offset in the source of the buffer's first byte
        self._at = 0  # position in the buffer
        self._end = source.size
        self._limit = min(source.size, MAX_HEADER)
        self.use_order(order)

    def use_order(self, order: str) -> None:
        """Read numbers as little-endian (`<`) or big-endian (`>`) from here on."""
        self.order = order
        self._length = struct.Struct(order + "Q").unpack_from

    @property
    def tell(self) -> int:
        return self._base + self._at

    @property
    def left(self) -> int:
        """Bytes that exist from here to the end of the source."""
        return self._end - self.tell

    def number(self, code: str, what: Phrase) -> int:
        """One integer of a struct code."""
        return int(struct.unpack(self.order + code, self.take(struct.calcsize(code), what))[0])

    def take(self, count: int, what: Phrase) -> bytes:
        """The next `count` bytes. The caller has bounded `count` by a ceiling of its own."""
        end = self._at + count
        if end > len(self._buffer):
            self._fill(count, what)
            end = count
        data = self._buffer[self._at : end]
        self._at = end
        return data

    def string(
        self, what: Phrase, ceiling: int = MAX_STRING, too_long: type[HeaderError] = StringTooLong
    ) -> bytes:
        """A length and that many bytes; `too_long` is the error for more than `ceiling`."""
        size = self.number("Q", what)
        if size > self.left:
            raise LengthBeyondFile(
                "{what} claims {count} bytes, the file has {left} left",
                what=what, count=size, left=self.left,
                hint="the file is cut short or damaged: download it again",
            )  # fmt: skip
        if size > ceiling:
            raise too_long(
                template("{what} claims {count} bytes, more than the {ceiling} that are allowed"),
                what=what, count=size, ceiling=ceiling,
            )  # fmt: skip
        return self.take(size, what)

    def text(self, what: Phrase) -> str:
        """A string that must be UTF-8; raises BadText."""
        return _decode(self.string(what), what)

    def name(self, what: Phrase, ceiling: int, too_long: type[HeaderError]) -> str:
        """A short text without NUL: llama.cpp would see a shorter name."""
        raw = self.string(what, ceiling, too_long)
        if b"\0" in raw:
            raise BadText("{what} has a NUL byte in it", what=what)
        return _decode(raw, what)

    @property
    def window(self) -> tuple[bytes, int]:
        """Bytes that were read already, and the position in them. They may end anywhere."""
        return self._buffer, self._at

    def stand(self, at: int) -> None:
        """Go on from a position in `window`."""
        self._at = at

    def skip(self, count: int, what: Phrase) -> None:
        """Pass over bytes without reading them."""
        self._reach(self.tell + count, what)
        self._at += count
        if self._at > len(self._buffer):
            self._base, self._at, self._buffer = self.tell, 0, b""

    def skip_strings(self, count: int, what: Phrase) -> None:
        """Walk over `count` strings, reading nothing but their lengths.

        Runs of short ones, which a vocabulary is made of, by one regular expression: a third of
        the time of the loop. That one tests the end of the window by meeting it, as the error of
        `unpack_from`.
        """
        run = _short_strings(self.order) if count > 16 * _RUN else None
        while count:
            if len(self._buffer) - self._at < 8:
                self._fill(8, what)
            length, buffer, at, done = self._length, self._buffer, self._at, 0
            while run and count >= _RUN and (found := run.match(buffer, at)):
                at = found.end()
                count -= _RUN
            some = min(count, _RUN) if run else count
            try:
                for done in range(some):  # noqa: B007
                    at += length(buffer, at)[0] + 8
                done = some
            except (struct.error, OverflowError):
                pass
            count -= done
            self._land(at, what)

    def _land(self, at: int, what: Phrase) -> None:
        """Stand at `at` (from the buffer's start), which a string's claimed length led to."""
        position = self._base + at
        if position > self._end:
            raise LengthBeyondFile(
                "{what}: a string would end at byte {end}, the file ends at {size}",
                what=what, end=position, size=self._end,
                hint="the file is cut short or damaged: download it again",
            )  # fmt: skip
        self._reach(position, what)
        if at <= len(self._buffer):
            self._at = at
        else:
            self._base, self._at, self._buffer = position, 0, b""

    def _reach(self, position: int, what: Phrase) -> None:
        if position <= self._limit:
            return
        if position > self._end:
            raise Truncated(
                "the file ends inside {what}: byte {end} is wanted, {size} exist",
                what=what, end=position, size=self._end, hint="download it again",
            )  # fmt: skip
        raise HeaderTooLarge(
            "the header goes on beyond {ceiling} bytes (at {what})",
            what=what, ceiling=MAX_HEADER,
        )  # fmt: skip

    def _fill(self, count: int, what: Phrase) -> None:
        """Have at least `count` bytes from the present position in the buffer, from its start."""
        start = self.tell
        self._reach(start + count, what)
        kept = self._buffer[self._at :]
        wanted = min(max(count, WINDOW), self._limit - start) - len(kept)
        fresh = self._read(start + len(kept), wanted)
        self._buffer = kept + fresh if kept else fresh
        self._base, self._at = start, 0
        if len(self._buffer) < count:
            raise Truncated(
                "the file ended inside {what} while it was read", what=what,
                hint="try again when nothing writes to it",
            )  # fmt: skip

    def _read(self, offset: int, wanted: int) -> bytes:
        parts: list[bytes] = []
        while wanted > 0:
            part = self.source.read(offset, wanted)
            if len(part) > wanted:
                raise SourceError(
                    "{name} gave more bytes than asked for", name=plain(self.source.name)
                )
            if not part:
                break
            parts.append(part)
            offset += len(part)
            wanted -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


@cache
def _short_strings(order: str) -> re.Pattern[bytes]:
    """Matches `_RUN` strings of `_USUAL` lengths, length and text; about a millisecond to make."""
    each = (
        re.escape(struct.pack(order + "Q", size)) + (b".{%d}" % size if size else b"")
        for size in _USUAL
    )
    return re.compile(b"(?:" + b"|".join(each) + b"){%d}+" % _RUN, re.DOTALL)


def _decode(raw: bytes, what: Phrase) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadText("{what} is not UTF-8 (at byte {at})", what=what, at=error.start) from error
