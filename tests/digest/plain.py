"""What the tests of this folder cut with where no engine is needed: words and marks are tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kvwise.digest.chunker import Chunk, Chunker, Known, Rules
from kvwise.digest.reading import Text, Window

_TOKEN = re.compile(r"\w+|[^\w\s]")


class Words:
    """Adds `special` tokens to every chunk, as BERT models do; counts how often it is asked."""

    def __init__(self, special: int = 0) -> None:
        self.special, self.asked = special, 0

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(_TOKEN.findall(text)) for text in texts]

    def ids(self, text: str) -> list[int]:
        self.asked += 1
        return [*range(self.special), *(hash(word) & 0xFFFF for word in _TOKEN.findall(text))]


def cut(
    path: Path, rules: Rules, words: Words | None = None, known: Known | None = None, *,
    encoding: str = "utf-8", headings: Sequence[int] = (),
) -> list[Chunk]:  # fmt: skip
    """All chunks of a file."""
    with Window(Text(path, encoding)) as window:
        return list(Chunker(window, words or Words(rules.special), rules, known, headings))
