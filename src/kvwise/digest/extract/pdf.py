"""PDF: the text layer, page by page, through PDFium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kvwise.digest.extract import PAGE_END, Piece
from kvwise.errors import SourceError

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_HYPHEN = re.compile("[\x02\u00ad]\r?\n?|(?<=[a-z])-\r?\n(?=[a-z])")


def pieces(path: Path, _encoding: str | None) -> Iterator[Piece]:
    """One piece per page. Raises SourceError, also for a file without any text (scans)."""
    try:
        import pypdfium2  # noqa: PLC0415
    except ImportError:
        raise SourceError(
            "{path}: PDF files need a reader", path=str(path), hint="pip install 'kvwise[digest]'"
        ) from None
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        raise SourceError("{path}: {why}", path=str(path), why=str(error)) from error
    seen = False
    try:
        for number in range(len(document)):
            text = _page(document, number)
            seen = seen or bool(text.strip())
            yield Piece(text + PAGE_END if text.strip() else PAGE_END, page=number + 1)
    finally:
        document.close()
    if not seen:
        raise SourceError(
            "{path} has no text in it, only pictures", path=str(path),
            hint="recognise its text first, for instance with ocrmypdf",
        )  # fmt: skip


def _page(document: object, number: int) -> str:
    page = document[number]  # type: ignore[index]
    try:
        text_page = page.get_textpage()
        try:
            text = str(text_page.get_text_bounded())
        finally:
            text_page.close()
    finally:
        page.close()
    return _CONTROLS.sub("", _HYPHEN.sub("", text)).replace("\r\n", "\n")
