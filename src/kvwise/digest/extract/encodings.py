"""Which encoding a text is in: its mark, UTF-8 if all of it is, else what a library makes of it."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

from kvwise.digest.reading import Text
from kvwise.errors import SourceError, UsageError
from kvwise.oserrors import reason_of

_BLOCK = 1 << 20
_SAMPLE = 1 << 19
_BINARY = 1 << 12
_FEW_BAD = 1000  # one byte in this many may be broken in a text that is UTF-8 otherwise
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def text_of(path: Path, encoding: str | None = None) -> Text:
    """A plain text file as it is. Raises SourceError if it is none, UsageError for an `encoding`
    that does not exist."""
    try:
        with path.open("rb") as file:
            head = file.read(_BINARY)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise SourceError(
            "{path} cannot be read: {why}", path=str(path), why=reason_of(error)
        ) from error
    for mark, name in _MARKS:
        if head.startswith(mark) and encoding is None:
            return Text(path, name, len(mark), errors_of(name))
    if encoding is not None:
        name = known(encoding)
        return Text(path, name, 0, errors_of(name))
    if wide := _wide(head):
        return Text(path, wide, 0, errors_of(wide))
    if b"\0" in head:
        raise SourceError("{path} is no text", path=str(path), hint="--encoding names one")
    bad = _bad_utf8(path)
    if bad * _FEW_BAD <= size:
        return Text(path)
    found = _guess(path)
    return Text(path, found, 0, errors_of(found))


def _wide(head: bytes) -> str:
    """UTF-16 without a mark, in a text that is mostly Latin: every second byte is 0."""
    half = len(head) // 2
    odd, even = head[1::2].count(0), head[::2].count(0)
    if half < 4 or max(odd, even) < 0.8 * half or min(odd, even):
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


def known(encoding: str) -> str:
    """The name that it has here. Raises UsageError."""
    try:
        name = codecs.lookup(encoding).name
        b"a".decode(name)
    except (LookupError, UnicodeError, ValueError):
        raise UsageError("--encoding {name}: no such encoding", name=encoding) from None
    return name


def errors_of(encoding: str) -> str:
    return "replace" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"


def _bad_utf8(path: Path) -> int:
    """Bytes that are no UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    bad = 0
    with path.open("rb") as file:
        while data := file.read(_BLOCK):
            text = decoder.decode(data)
            if not text.isascii():
                bad += sum("\udc80" <= each <= "\udcff" for each in text)
    return bad


def _guess(path: Path) -> str:
    try:
        from charset_normalizer import from_bytes  # noqa: PLC0415
    except ImportError:
        raise SourceError(
            "{path} is not UTF-8", path=str(path),
            hint="name it by --encoding, or pip install 'kvwise[digest]' to have it recognised",
        ) from None  # fmt: skip
    with path.open("rb") as file:
        best = from_bytes(file.read(_SAMPLE)).best()
    if best is None:
        raise SourceError(
            "{path} is text in no encoding known", path=str(path), hint="--encoding names one"
        )
    return codecs.lookup(best.encoding).name
