"""Bytes of a log, however many -> the lines that say something, in flat memory.

Most lines of a long log say nothing known. A piece of it is first searched as a whole for the
needles of all patterns; only lines that hold one are cut out, unwrapped and read. UTF-16 is turned
into UTF-8 on the way.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from kvwise.diagnose.unwrap import unwrap
from kvwise.engine import events as ev
from kvwise.engine import failures, lines, log

_MOST = 1 << 20  # bytes that wait for the end of a line
_TAIL = 16 * 1024
_WORD = re.compile(r"(?<=[^A-Za-z])[A-Za-z]{3,}(?=[^A-Za-z])")
_LETTERS = bytes(value if chr(value).isalpha() and value < 128 else 32 for value in range(256))
_ERROR = ("rror", "ailed", "xception", "bort", "annot ", "atal", "RROR", "AILED", "raceback")
"""Words of lines that may say why, though no pattern knows them."""


@dataclass(slots=True)
class Said:
    """What a log has come to so far, beside its events."""

    lines: int = 0
    tail: list[tuple[int, str]] = field(default_factory=list)  # the last lines that are not empty
    suspects: list[tuple[int, str]] = field(default_factory=list)  # look like errors, unknown


@dataclass(slots=True)
class Scanner:
    """Feed it bytes; it gives records. Line numbers count from 1 in the log as it is kept."""

    said: Said = field(default_factory=Said)
    _rest: bytes = b""
    _decoder: codecs.IncrementalDecoder | None = None
    _begun: bool = False
    _tail: bytes = b""

    def feed(self, data: bytes) -> list[ev.Record]:
        """Records of the lines that `data` completes."""
        if not self._begun and data:
            self._begin(data)
        if self._decoder:
            data = self._decoder.decode(data).encode("utf-8", "replace")
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        if not end and len(data) <= _MOST:
            self._rest = data
            return []
        if not end:
            end = len(data)
        self._rest = data[end:]
        return self._read(data[:end])

    def close(self) -> list[ev.Record]:
        """Records of a last line without an end."""
        rest, self._rest = self._rest, b""
        records = self._read(rest) if rest else []
        self._finish_tail()
        return records

    def _begin(self, data: bytes) -> None:
        self._begun = True
        encoding = _encoding(data)
        if encoding:
            self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def _read(self, data: bytes) -> list[ev.Record]:
        self._tail = (self._tail + data)[-_TAIL:]
        if b"\r" in data:
            data = _line_ends(data)
        records: list[ev.Record] = []
        number, seen = self.said.lines, 0
        for start, end, suspect in _candidates(data):
            number += data.count(b"\n", seen, start)
            seen = start
            raw = data[start:end].decode("utf-8", "replace")
            found = False
            for text in unwrap(raw):
                line = log.split_line(number + 1, text)
                event = log.read_line(line.text)
                if event is not None:
                    found = True
                    records.append(ev.Record(line.number, line.level, line.text, event))
            if suspect and not found and len(self.said.suspects) < 40:
                self.said.suspects.append((number + 1, raw.strip()[:400]))
        self.said.lines += data.count(b"\n") + (not data.endswith(b"\n"))
        return records

    def _finish_tail(self) -> None:
        texts = self._tail.replace(b"\r", b"\n").decode("utf-8", "replace").split("\n")
        last = self.said.lines
        kept = [
            (last - len(texts) + at + (1 if texts[-1] else 2), text.strip()[:400])
            for at, text in enumerate(texts)
            if text.strip()
        ]
        self.said.tail = kept[-30:]


def scan(chunks: Iterable[bytes], scanner: Scanner | None = None) -> Iterator[ev.Record]:
    """Records of a whole log given as pieces of bytes."""
    scanner = scanner or Scanner()
    for chunk in chunks:
        yield from scanner.feed(chunk)
    yield from scanner.close()


def _line_ends(data: bytes) -> bytes:
    """CRLF and lone CR (progress dots) as LF; a CRLF stays one line."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _encoding(data: bytes) -> str | None:
    """UTF-16 by its mark, or by its zeros (Windows shells write it); None = UTF-8."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if data[:3] == codecs.BOM_UTF8:
        return "utf-8-sig"
    head = data[:512]
    odd, even = head[1::2].count(0), head[::2].count(0)
    if len(head) >= 16 and odd > len(head) // 3 > even:
        return "utf-16-le"
    if len(head) >= 16 and even > len(head) // 3 > odd:
        return "utf-16-be"
    return None


@cache
def _needles() -> tuple[tuple[bytes, bytes, bool], ...]:
    """(needle, a whole word in it or b"", is it only a sign of an error), once each."""
    needles = [row.needle for row in lines.ROWS]
    needles += [row.needle for row in (*failures.ROWS, *failures.REMARKS)]
    found = {}
    for needle in dict.fromkeys((*needles, *_ERROR)):
        words = sorted(_WORD.findall(needle), key=len)
        found[needle] = (
            needle.encode(),
            words[-1].encode() if words else b"",
            needle in _ERROR and needle not in needles,
        )
    return tuple(found.values())


def _candidates(data: bytes) -> list[tuple[int, int, bool]]:
    """(start, end, looks like an error) of the lines that hold a needle, in order."""
    words = set(data.translate(_LETTERS).split())
    starts: dict[int, tuple[int, bool]] = {}
    for needle, word, error in _needles():
        if word and word not in words:
            continue
        at = data.find(needle)
        while at >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            known = starts.get(start)
            if known is None or (error and not known[1]):
                starts[start] = (end, error)
            at = data.find(needle, end)
    return [(start, *starts[start]) for start in sorted(starts)]
