"""The one door: from what a user names (a path, URL, Hub or Ollama name, zoo JSON) to a Header."""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.errors import HeaderError
from kvwise.gguf.header import Header
from kvwise.gguf.lies import clip
from kvwise.gguf.reader import Arrays
from kvwise.gguf.source import Source, open_file
from kvwise.gguf.split import read_model


def open_source(ref: str, sidecars: Sequence[str] = ()) -> Source:
    """The bytes behind MODEL: a path, `hf:owner/repo[:file|quant]`, `ollama:name[:tag]` or a URL.

    `sidecars`: words of files that go before the model of a repository of the Hub.

    Raises SourceError (SourceMissing if there is no such thing), UsageError for a malformed name.
    """
    kind, _, name = ref.partition(":")
    kind = kind.lower()
    # Imported where needed: HTTP costs 0.1 s, and a local file must open at once.
    if kind == "hf":
        from kvwise.gguf.hub import open_hub  # noqa: PLC0415

        return open_hub(name, sidecars)
    if kind == "ollama":
        from kvwise.gguf.ollama import open_ollama  # noqa: PLC0415

        return open_ollama(name)
    if kind in {"http", "https"} and name.startswith("//"):
        from kvwise.gguf.hub import page_to_file  # noqa: PLC0415
        from kvwise.gguf.remote import open_url  # noqa: PLC0415

        url, headers = page_to_file(ref)
        return open_url(url, headers=headers)
    return open_file(ref)


def open_header(ref: str, *, arrays: Arrays = (), sidecars: Sequence[str] = ()) -> Header:
    """The header of a model: `ref` is MODEL as in the command line.

    Any file of a split model stands for all of it. `arrays` names the metadata arrays to keep as
    well as the small ones (`"all"` for every one). Raises SourceError when the bytes cannot be
    had, HeaderError when they are not sound.
    """
    source = open_source(ref, sidecars)
    try:
        if _is_json(source):
            from kvwise.gguf.zoo import read_zoo  # noqa: PLC0415  (json and zlib, rarely needed)

            return read_zoo(source)
        return read_model(source, arrays=arrays)
    except HeaderError as error:
        raise _of_file(error, source.name) from error
    finally:
        source.close()


def _of_file(error: HeaderError, name: str) -> HeaderError:
    """The same with the file's name: a command may read several."""
    if clip(name) in str(error.phrase):
        return error
    return type(error)("{path}: {problem}", path=clip(name), problem=error.phrase, hint=error.hint)


def _is_json(source: Source) -> bool:
    if not source.name.lower().endswith((".json", ".json.gz")):
        return False
    return source.read(0, 4) != b"GGUF"
