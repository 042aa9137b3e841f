"""Models by name: the way from MODEL to what is known about it."""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.arch import describe
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header


def open_model(ref: str, *, sidecars: Sequence[str] = ()) -> Model:
    """The model behind `ref`: a path (any part of a split file), `hf:owner/repo[:file|quant]`,
    `ollama:name[:tag]`, an http(s) URL, or a zoo JSON. Only its header is read. `sidecars`: words
    of files that go before the model in a repository of the Hub, as with llama.cpp's drafts.

    Raises SourceError, HeaderError, ModelError.
    """
    return describe(open_header(ref, sidecars=sidecars))
