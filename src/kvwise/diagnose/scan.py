"""Bytes of a log, however many -> the lines that say something, in flat memory.

Most lines of a long log say nothing known. A piece of it is first searched as a whole for the
needles of all patterns; only lines that hold one are cut out, unwrapped and read. UTF-16 is turned
into UTF-8 on the way.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from kvwise.diagnose.unwrap import unwrap
from kvwise.engine import events as ev
from kvwise.engine import failures, lines, log
from kvwise.engine.wordings import signals

_SUSPECTS = 40
_SAME = 20
"""Lines that differ in their numbers alone, and that hinted at nothing: no more are asked."""
_SHAPES = 4096
_SHAPE = 200  # characters of a line that tell it from others
_NUMBER = re.compile(r"\d+")
_CHATTY = frozenset({b" time =", b"new prompt,", b"all slots are idle", b"print_timing"})
"""What a server says for every request: after so many lines of it nothing new is in them."""
_ENOUGH = 5000
_NEW_LOAD = b"loaded meta data with"
_MOST = 1 << 20  # bytes that wait for the end of a line
_TAIL = 16 * 1024
_LONGEST = 200  # letters of a word: what is longer says nothing, and would be searched for all
_WORD = re.compile(r"(?<=[^A-Za-z])[A-Za-z]{3,}(?=[^A-Za-z])")
_PART = re.compile(r"[A-Za-z]+")
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
    _heard: dict[bytes, int] = field(default_factory=dict)
    _idle: dict[str, int] = field(default_factory=dict)  # shape of a line -> how often in vain

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
        for start, end, suspect, rows in self._candidates(data):
            number += data.count(b"\n", seen, start)
            seen = start
            raw = data[start:end].decode("utf-8", "replace")
            found = self._read_line(number + 1, raw, rows)
            records += found
            known = [each for each in found if not _says_little(each)]
            if suspect and not known and len(self.said.suspects) < _SUSPECTS:
                records += self._suspect(number + 1, raw, found)
        self.said.lines += data.count(b"\n") + (not data.endswith(b"\n"))
        return records

    def _suspect(self, number: int, raw: str, found: list[ev.Record]) -> list[ev.Record]:
        """Note a line that no pattern knows; records of what its plain words hint at."""
        shape = _NUMBER.sub("", raw[:_SHAPE])
        if self._idle.get(shape, 0) >= _SAME:
            return []
        records = []
        for text in unwrap(raw):
            line = log.split_line(number, text)
            code = failures.hint(line.text) if line.level in (None, "E") else None
            if code and (code not in signals.SAYS_NO_MORE or all(map(_repeats, found))):
                records.append(ev.Record(number, line.level, line.text, ev.Remark(code, {})))
        if all(map(_repeats, found)) and (records or any(word in raw for word in _ERROR)):
            self.said.suspects.append((number, raw.strip()[:400]))
        if not records and (shape in self._idle or len(self._idle) < _SHAPES):
            self._idle[shape] = self._idle.get(shape, 0) + 1
        return records

    @staticmethod
    def _read_line(number: int, raw: str, rows: list[int]) -> list[ev.Record]:
        """What one line as it was kept says."""
        records = []
        texts = list(unwrap(raw))
        for text in texts:
            line = log.split_line(number, text)
            same = len(texts) == 1 and text in raw  # nothing was unpacked that could hide a needle
            event = _read_rows(line.text, rows) if same else log.read_line(line.text)
            if event is not None:
                records.append(ev.Record(number, line.level, line.text, event))
        return records

    def _candidates(self, data: bytes) -> Iterator[tuple[int, int, bool, list[int]]]:
        """(start, end, looks like an error, rows to try) of the lines that hold a needle."""
        words = {each for each in data.translate(_LETTERS).split() if len(each) <= _LONGEST}
        vocabulary = b" ".join(words)  # short: a log says the same again and again
        found: dict[int, tuple[int, bool, list[int]]] = {}
        for needle in _needles():
            heard = self._heard.get(needle.data, 0)
            if needle.word not in (words if needle.whole else vocabulary) or heard > _ENOUGH:
                continue
            hits = _mark(data, needle, found)
            if hits and needle.data in _CHATTY:
                self._heard[needle.data] = heard + hits
            elif hits and needle.data == _NEW_LOAD:
                self._heard.clear()
        for start in sorted(found):
            yield start, *found[start]

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


def _mark(data: bytes, needle: _Needle, found: dict[int, tuple[int, bool, list[int]]]) -> int:
    """Note every line that holds the needle; returns how many."""
    hits, at = 0, data.find(needle.data)
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        _, suspect, rows = found.get(start, (end, False, []))
        rows.extend(needle.rows)
        found[start] = (end, suspect or needle.doubtful, rows)
        hits += 1
        at = data.find(needle.data, end)
    return hits


def _says_little(record: ev.Record) -> bool:
    """Does it say only that something failed, not why?"""
    event = record.event
    return _repeats(record) or (
        isinstance(event, ev.Failure)
        and event.code in ("model_load", "crashed", "exited", "server_exit")
    )


def _repeats(record: ev.Record) -> bool:
    """Is it any program's "error: ..." that may be kvwise's own? Nobody has explained it yet."""
    return isinstance(record.event, ev.Remark) and record.event.code == "kvwise_said"


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


class _Row(NamedTuple):
    """A wording and what its match means; all rows stand in the order in which they are tried.

    `of.pattern` is compiled when it is first asked for.
    """

    of: lines.Row | failures.Row
    make: Callable[[re.Match[str]], ev.Event | None]


class _Needle(NamedTuple):
    """Bytes to look for, their longest word (`whole`: letters on neither side of it), the numbers
    of the rows behind it, and whether a line that holds it may be an error that no row knows."""

    data: bytes
    word: bytes
    whole: bool
    rows: tuple[int, ...]
    doubtful: bool


@cache
def _rows() -> tuple[tuple[str, _Row], ...]:
    """(needle, row) of everything that `log.read_line` would try, in its order."""
    told: list[tuple[str, _Row]] = [(row.needle, _Row(row, row.make)) for row in lines.ROWS]
    for known, kind in failures.TABLES:
        told += [(row.needle, _Row(row, _maker(kind, row.code))) for row in known]
    return tuple(told)


def _maker(kind: type[ev.Failure | ev.Remark], code: str) -> Callable[[re.Match[str]], ev.Event]:
    def make(match: re.Match[str]) -> ev.Event:
        return kind(code, {key: value for key, value in match.groupdict().items() if value})

    return make


@cache
def _needles() -> tuple[_Needle, ...]:
    """Every needle once."""
    signs = (*_ERROR, *signals.NEEDLES)
    rows: dict[str, list[int]] = {needle: [] for needle in signs}
    for number, (needle, _) in enumerate(_rows()):
        rows.setdefault(needle, []).append(number)
    found = []
    for needle, numbers in rows.items():
        whole = _WORD.findall(needle)
        word = max(whole or _PART.findall(needle), key=len, default="")
        found.append(
            _Needle(needle.encode(), word.encode(), bool(whole), tuple(numbers), needle in signs)
        )
    return tuple(found)


def _read_rows(text: str, numbers: list[int]) -> ev.Event | None:
    """`log.read_line`, when it is known which needles the line holds."""
    text = text[: log.MATCHED]
    rows = _rows()
    for number in sorted(numbers):
        row = rows[number][1]
        match = row.of.pattern.search(text)
        if match:
            return row.make(match)
    return None
