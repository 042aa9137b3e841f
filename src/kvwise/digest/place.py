"""Where things are in an output folder."""

from __future__ import annotations

from pathlib import Path

from kvwise.digest.extract import empty_pages, marks_file, sections
from kvwise.digest.extract.encodings import errors_of
from kvwise.digest.reading import Text
from kvwise.digest.shelf import Document

TEXTS = "text"
LOG = "engine.log"


def sections_of(folder: Path, document: Document) -> list[tuple[int, str]]:
    """From which byte on each section of a document goes; empty where its marks are gone."""
    try:
        return sections(marks_file(folder / TEXTS, document.name))
    except (OSError, ValueError):
        return []


def pages_without_text(folder: Path, document: Document) -> list[int]:
    """Of a document that has pages: they may be pictures of a text."""
    if document.text is None:
        return []
    try:
        end = (folder / TEXTS / document.text).stat().st_size
        return empty_pages(marks_file(folder / TEXTS, document.name), end)
    except (OSError, ValueError):
        return []


def text_file(folder: Path, document: Document) -> Text:
    """What the offsets of a document's chunks point into."""
    path = Path(document.source) if document.text is None else folder / TEXTS / document.text
    return Text(path, document.encoding, document.start, errors_of(document.encoding))
