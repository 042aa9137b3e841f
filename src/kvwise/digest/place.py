"""Where things are in an output folder."""

from __future__ import annotations

from pathlib import Path

from kvwise.digest.extract.encodings import errors_of
from kvwise.digest.reading import Text
from kvwise.digest.shelf import Document

TEXTS = "text"
LOG = "engine.log"


def text_file(folder: Path, document: Document) -> Text:
    """What the offsets of a document's chunks point into."""
    path = Path(document.source) if document.text is None else folder / TEXTS / document.text
    return Text(path, document.encoding, document.start, errors_of(document.encoding))
