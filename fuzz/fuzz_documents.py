"""Fuzz target for documents: `python fuzz/fuzz_documents.py -runs=200000` (atheris)."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kvwise"]):
    from kvwise.digest.chunker import Chunker, Rules
    from kvwise.digest.extract import Marks, headings, prepare
    from kvwise.digest.reading import Window
    from kvwise.errors import KvwiseError

_FOLDER = Path(tempfile.mkdtemp(prefix="kvwise-fuzz-"))
_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_STARTS = {
    "html": ("<html><head>", "<body><h1>", '<meta charset="', "<pre><table>", "<p>&#", ""),
    "md": ("# a\n", "```\n", "\ufeff# ", ""),
    "txt": ("", "A. B! ", "\u3002"),
    "docx": (f"<w:document {_W}><w:body><w:p>", f"<w:document {_W}><w:body><w:p><w:r><w:t>", ""),
}


class _Bytes:
    """A token per character."""

    def counts(self, texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    def ids(self, text: str) -> list[int]:
        return [ord(char) for char in text]


def one_input(data: bytes) -> None:
    """Any bytes, behind the words that each reader looks for; chunks must cover what is read."""
    provider = atheris.FuzzedDataProvider(data)
    ending = list(_STARTS)[provider.ConsumeIntInRange(0, len(_STARTS) - 1)]
    starts = _STARTS[ending]
    start = starts[provider.ConsumeIntInRange(0, len(starts) - 1)]
    content = start.encode() + provider.ConsumeBytes(sys.maxsize)
    path = _FOLDER / f"a.{ending}"
    if ending == "docx":
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("word/document.xml", content)
    else:
        path.write_bytes(content)
    try:
        text, marks_file = prepare(path, _FOLDER / "text", path.name)
        marks, end = Marks(marks_file), text.start
        with Window(text) as window:
            for chunk in Chunker(window, _Bytes(), Rules(20), headings=headings(marks_file)):
                if not chunk.start == end < chunk.end:
                    raise AssertionError(chunk)
                marks.of(chunk.start, chunk.end)
                end = chunk.end
        if end < text.path.stat().st_size:
            raise AssertionError(end)
        marks.close()
    except KvwiseError as error:
        str(error)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
