"""From a document to a text whose bytes can be pointed at.

Plain text and Markdown are read in place: offsets count the bytes of the file itself. Of any other
format the text is written to a UTF-8 file once, and offsets count there. Headings and pages go to
a list beside it, so that each chunk can say where it comes from. A format is one file here with a
row in `FORMATS`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kvwise.digest.reading import DIRECT, Text
from kvwise.errors import SourceError
from kvwise.oserrors import reason_of
from kvwise.text import template


@dataclass(frozen=True, slots=True)
class Piece:
    """The next stretch of text. `heading` = (level from 1, title) when it is one, `page` from 1
    when a page begins with it."""

    text: str
    heading: tuple[int, str] | None = None
    page: int | None = None


Reader = Callable[[Path, str | None], Iterator[Piece]]
"""Of a file and its encoding, if the user named one; raises SourceError."""

FORMATS = {
    ".txt": "plain", ".text": "plain", ".log": "plain", ".rst": "plain", ".org": "plain",
    ".tex": "plain", ".csv": "plain", ".srt": "plain",
    ".md": "markdown", ".markdown": "markdown", ".mkd": "markdown",
    ".html": "html", ".htm": "html", ".xhtml": "html",
    ".pdf": "pdf",
    ".docx": "docx",
}  # fmt: skip
"""File name endings that a folder is searched for."""

_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)
_STEM = 80

_OTHERS = {
    "zip": template("{path} is a packed file of a kind that is not read"),
    "rtf": template("{path} is RTF, which is not read"),
}
PAGE_END = "\n\n"
"""Behind the text of a page; a page without any has nothing else."""

IN_PLACE = ("plain", "markdown")


def kind_of(path: Path) -> str:
    """The format by the first bytes, then by the name; `plain` for anything else."""
    with _opened(path) as file:
        head = file.read(1024)
    if head.startswith(b"%PDF-"):
        return "pdf"
    named = FORMATS.get(path.suffix.lower())
    if head.startswith(b"PK\x03\x04"):
        return "docx" if named == "docx" else "zip"
    if head.startswith(b"{\\rtf"):
        return "rtf"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:15].lower()
    if named is None and start.startswith((b"<!doctype html", b"<html")):
        return "html"
    return named or "plain"


def prepare(path: Path, folder: Path, name: str, encoding: str | None = None) -> tuple[Text, Path]:
    """The text of a document and the file of its headings and pages, both ready to be read.

    Files of our own go to `folder`. Raises SourceError.
    """
    kind = kind_of(path)
    if kind in _OTHERS:
        raise SourceError(_OTHERS[kind], path=str(path), hint="save it as .docx, .html or .txt")
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_stem(name)
    marks = marks_file(folder, name)
    module = importlib.import_module(f"kvwise.digest.extract.{kind}")
    if kind in IN_PLACE and shown(str(path)) == str(path):
        from kvwise.digest.extract.encodings import text_of  # noqa: PLC0415

        text = text_of(path, encoding)
        if text.encoding in DIRECT:
            _write_marks(marks, module.marks(text))
            return text, marks
    target = folder / f"{stem}.txt"
    if not _spool(module.pieces(path, encoding), target, marks) and path.stat().st_size:
        raise SourceError(
            "{path} has no text in it",
            path=str(path),
            hint="is it only pictures, or made by a script?",
        )
    return Text(target), marks


def shown(name: str) -> str:
    """A file name as text: bytes of it that are none become U+FFFD."""
    return os.fsencode(name).decode("utf-8", "replace")


def marks_file(folder: Path, name: str) -> Path:
    """Where the headings and pages of a document are."""
    return folder / f"{file_stem(name)}.marks.jsonl"


def file_stem(name: str) -> str:
    """What our own files for a document are called: safe and short whatever its name, and its own
    (two names have different hashes)."""
    safe = _UNSAFE.sub("_", name).strip("._")[-_STEM:]
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{safe}-{digest}" if safe else digest


def _spool(pieces: Iterator[Piece], target: Path, marks: Path) -> bool:
    """Whether there is a text in it."""
    part, at, seen = target.with_suffix(".part"), 0, False
    found: list[tuple[int, Piece]] = []
    with part.open("wb") as file:
        for piece in pieces:
            data = piece.text.encode("utf-8", "replace")
            if piece.heading or piece.page is not None:
                found.append((at, Piece("", piece.heading, piece.page)))
            file.write(data)
            at += len(data)
            seen = seen or bool(piece.text.strip())
        file.flush()
        os.fsync(file.fileno())
    _write_marks(marks, iter(found))
    part.replace(target)
    return seen


def empty_pages(marks: Path, end: int) -> list[int]:
    """Pages without text of a document whose text has `end` bytes. Raises OSError, ValueError."""
    with marks.open(encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    pages = [(at, page) for at, _, page in found if page is not None]
    ends = [*(at for at, _ in pages), end][1:]
    return [
        page for (at, page), until in zip(pages, ends, strict=True) if until - at <= len(PAGE_END)
    ]


def _write_marks(path: Path, found: Iterator[tuple[int, Piece]]) -> None:
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        for at, piece in found:
            file.write(json.dumps([at, piece.heading, piece.page], ensure_ascii=False) + "\n")
    part.replace(path)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stretch of text is: the headings above most of it, the page on which it begins."""

    section: str = ""
    page: int | None = None


class Marks:
    """The headings and pages of a text, read as the chunks pass by, in ascending order."""

    def __init__(self, path: Path) -> None:
        self._file = path.open(encoding="utf-8")
        self._next = self._read()
        self._titles: list[tuple[int, str]] = []
        self._places = deque([(0, Place())])  # each from a byte on

    def of(self, start: int, end: int) -> Place:
        """Of the bytes `start` to `end`."""
        while self._next is not None and self._next[0] < max(end, start + 1):
            self._take(*self._next)
            self._next = self._read()
        while len(self._places) > 1 and self._places[1][0] <= start:
            self._places.popleft()
        ends = [*(at for at, _ in self._places), end][1:]
        covered: dict[str, int] = {}
        for (at, place), until in zip(self._places, ends, strict=True):
            size = min(until, end) - max(at, start)
            covered[place.section] = covered.get(place.section, 0) + size
        section = max(covered, key=covered.__getitem__)
        return Place(section, self._places[0][1].page)

    def _take(self, at: int, heading: tuple[int, str] | None, page: int | None) -> None:
        if heading is not None:
            self._titles = _under(self._titles, heading)
        section = " > ".join(title for _, title in self._titles)
        self._places.append((at, Place(section, page or self._places[-1][1].page)))

    def _read(self) -> tuple[int, tuple[int, str] | None, int | None] | None:
        line = self._file.readline()
        if not line:
            return None
        at, heading, page = json.loads(line)
        return int(at), None if heading is None else (int(heading[0]), str(heading[1])), page

    def close(self) -> None:
        self._file.close()


def headings(path: Path) -> Sequence[int]:
    """The byte offsets of all headings in a file of marks, 8 bytes each."""
    with path.open(encoding="utf-8") as file:
        return array("q", (mark[0] for mark in map(json.loads, file) if mark[1] is not None))


def sections(path: Path) -> list[tuple[int, str]]:
    """From which byte on each section goes, with the headings above it, in a file of marks."""
    found: list[tuple[int, str]] = []
    titles: list[tuple[int, str]] = []
    with path.open(encoding="utf-8") as file:
        for at, heading, _page in map(json.loads, file):
            if heading is not None:
                titles = _under(titles, (int(heading[0]), str(heading[1])))
                found.append((int(at), " > ".join(title for _, title in titles)))
    return found


def _under(titles: Sequence[tuple[int, str]], heading: tuple[int, str]) -> list[tuple[int, str]]:
    """The headings above a text behind `heading`, itself the last."""
    return [*(each for each in titles if each[0] < heading[0]), heading]


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise SourceError(
            "{path} cannot be read: {why}", path=str(path), why=reason_of(error)
        ) from error
