"""DOCX: paragraphs, tables and headings, read as a stream of the packed XML.

A library that builds the whole tree needs many times the file's size; a paragraph is all that has
to be in memory.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import ParseError

from kvwise.digest.extract import Piece
from kvwise.errors import SourceError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_BODY = "word/document.xml"
_STYLES = "word/styles.xml"
_LEVEL = re.compile(r"heading\s*(\d)", re.IGNORECASE)
_MOST = 1 << 31  # unpacked bytes
_SMALL = 1 << 26  # that any ratio is fine for
_RATIO = 200
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
"""What older programs show in place of what is there too."""


def pieces(path: Path, _encoding: str | None) -> Iterator[Piece]:
    """One piece per paragraph. Raises SourceError."""
    try:
        from defusedxml import DefusedXmlException  # noqa: PLC0415
        from defusedxml import ElementTree as ET  # noqa: PLC0415, N817
    except ImportError:
        raise SourceError(
            "{path}: DOCX files need a reader", path=str(path), hint="pip install 'kvwise[digest]'"
        ) from None
    try:
        with zipfile.ZipFile(path) as packed:
            _check_size(packed, path)
            styles = _styles(packed, ET.fromstring)
            with packed.open(_BODY) as file:
                yield from _paragraphs(ET.iterparse(file, ("start", "end")), styles)
    except (zipfile.BadZipFile, KeyError, ET.ParseError, RuntimeError, OSError,
            NotImplementedError, EOFError, DefusedXmlException) as error:  # fmt: skip
        raise SourceError(
            "{path} is no sound DOCX file: {why}", path=str(path), why=str(error)
        ) from error


def _check_size(packed: zipfile.ZipFile, path: Path) -> None:
    about = packed.getinfo(_BODY)
    if about.file_size > _MOST:
        raise SourceError("{path} unpacks to more than 2 GiB", path=str(path))
    if about.file_size > max(_SMALL, _RATIO * about.compress_size):
        raise SourceError(
            "{path} unpacks to {times} times its size: no real text does", path=str(path),
            times=about.file_size // max(1, about.compress_size),
        )  # fmt: skip


def _paragraphs(events: Iterator[tuple[str, Element]], styles: dict[str, int]) -> Iterator[Piece]:
    words: list[str] = []
    level = depth = twice = 0
    for event, element in events:
        tag = element.tag
        twice += (tag == _FALLBACK) * (1 if event == "start" else -1)
        if event == "start":
            depth += tag == f"{_W}p"
            continue
        if tag == f"{_W}t" and not twice:
            words.append(element.text or "")
        elif tag in (f"{_W}tab", f"{_W}br", f"{_W}cr") and depth:
            words.append("\t" if tag == f"{_W}tab" else "\n")
        elif tag == f"{_W}pStyle":
            level = styles.get(element.get(f"{_W}val", ""), 0)
        elif tag == f"{_W}p":
            depth -= 1
            text = "".join(words).strip()
            if text and depth == 0:
                yield Piece(text + "\n\n", (level, text.replace("\n", " ")) if level else None)
            if depth == 0:
                words, level = [], 0
            element.clear()
        elif tag in (f"{_W}tr", f"{_W}tbl"):
            element.clear()


def _styles(packed: zipfile.ZipFile, parse: Callable[[bytes], Element]) -> dict[str, int]:
    """Style id -> heading level, by the name that all languages of Word keep."""
    try:
        if packed.getinfo(_STYLES).file_size > _SMALL:
            return {}
        root = parse(packed.read(_STYLES))
    except (KeyError, ParseError):
        return {}
    found: dict[str, int] = {}
    for style in root.iter(f"{_W}style"):
        name = style.find(f"{_W}name")
        title = "" if name is None else name.get(f"{_W}val", "")
        match = _LEVEL.match(title)
        if match or title.lower() == "title":
            found[style.get(f"{_W}styleId", "")] = int(match[1]) if match else 1
    return found
