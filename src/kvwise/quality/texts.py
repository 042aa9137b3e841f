"""What a model is measured on: the text that comes with kvwise, or one of the user's.

The shipped one was written for kvwise, so that no model has learned it by heart: a story with
prose, talk, numbers, a table and code, one fifth of it Chinese; 5,000 to 7,000 tokens.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from kvwise.engine.server import Server
from kvwise.engine.tokens import read_text
from kvwise.errors import UsageError

SHIPPED = "kvwise"
_FOLDER = "data/quality"


@dataclass(frozen=True)
class Text:
    """A text and where it is from; its `hash` is part of what was measured."""

    name: str
    content: str

    @cached_property
    def hash(self) -> str:
        """The first 16 digits of the SHA-256 of its UTF-8 bytes."""
        return hashlib.sha256(self.content.encode()).hexdigest()[:16]


def data(name: str) -> str:
    """A file that comes with the package."""
    return resources.files("kvwise").joinpath(_FOLDER, name).read_text(encoding="utf-8")


def shipped() -> Text:
    """The text that comes with kvwise."""
    return Text(SHIPPED, data("text.txt"))


def text_of(path: str | Path | None) -> Text:
    """The text of a file, None = the shipped one. Raises SourceError; UsageError for an empty."""
    if path is None:
        return shipped()
    content = read_text(path)
    if not content.strip():
        raise UsageError("{path} is empty", path=str(path))
    return Text(Path(path).name, content)


def chunks_of(server: Server, text: Text, chunk_tokens: int, chunks: int) -> list[list[int]]:
    """The first `chunks` pieces of `chunk_tokens` tokens, cut as llama-perplexity cuts them: each
    begins with the model's begin-of-text token, where it uses one.

    Special tokens in the text are ordinary text. Raises UsageError when there is not one piece.
    """
    added = server.tokenize("", add_special=True)
    begin = added[:1]
    tokens = begin + server.tokenize(text.content, parse_special=False)
    most = min(chunks, len(tokens) // chunk_tokens)
    if most < 1:
        raise UsageError(
            "the text has {tokens:,} tokens, {least:,} are needed",
            tokens=len(tokens), least=chunk_tokens, hint="give a longer one with --text",
        )  # fmt: skip
    pieces = [tokens[at * chunk_tokens : (at + 1) * chunk_tokens] for at in range(most)]
    return [[*begin, *piece[len(begin) :]] for piece in pieces]
