"""The one door: from what a user names (a path, URL, Hub or Ollama name, zoo JSON) to a Header."""

from __future__ import annotations

from kvwise.gguf.header import Header
from kvwise.gguf.reader import Arrays
from kvwise.gguf.source import Source, open_file
from kvwise.gguf.split import read_model


def open_source(ref: str) -> Source:
    """The bytes behind a MODEL argument. Raises SourceError, EmptyFile."""
    return open_file(ref)


def open_header(ref: str, *, arrays: Arrays = ()) -> Header:
    """The header of a model: `ref` is MODEL as in the command line.

    `arrays` names the metadata arrays to keep as well as the small ones (`"all"` for every one).
    Raises SourceError when the bytes cannot be had, HeaderError when they are not sound.
    """
    source = open_source(ref)
    try:
        if _is_json(source):
            from kvwise.gguf.zoo import read_zoo  # noqa: PLC0415  (json and gzip, rarely needed)

            return read_zoo(source)
        return read_model(source, arrays=arrays)
    finally:
        source.close()


def _is_json(source: Source) -> bool:
    if not source.name.lower().endswith((".json", ".json.gz")):
        return False
    return source.read(0, 4) != b"GGUF"
