"""Models by name: the way from MODEL to what is known about it."""

from __future__ import annotations

from kvwise.arch import describe
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header


def open_model(ref: str) -> Model:
    """The model behind `ref`: a path (any part of a split file), `hf:owner/repo[:file|quant]`,
    `ollama:name[:tag]`, an http(s) URL, or a zoo JSON. Only its header is read.

    Raises SourceError, HeaderError, ModelError.
    """
    return describe(open_header(ref))
