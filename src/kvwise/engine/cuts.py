"""Where a text may be cut so that the token counts of its pieces add up to that of the whole.

Only for SentencePiece vocabularies (`tokenizer.ggml.model` = llama), whose merging in llama.cpp
takes more than linear time in the length of one text, and only where the vocabulary proves it: a
cut lies before a space between two letters. Merging joins two neighbours only if the joined text
is in the vocabulary, so nothing joins across the cut when no token has that letter followed by a
space. Special tokens are looked for in the raw text first and may swallow space beside them: their
first and last letters are no neighbours of a cut either. With `add_space_prefix` each piece would
get a space of its own: then there is no cut. Source: src/llama-vocab.cpp (llm_tokenizer_spm,
tokenizer_st_partition), b10605.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass

from kvwise.gguf.header import Header
from kvwise.gguf.open import open_header

PIECE = 1 << 18
"""Characters of a piece: larger ones are slower, smaller ones not faster (5 MB, 2 cores)."""
_SPACE = "\u2581"
_LETTERS = frozenset(string.ascii_letters)
_NORMAL = 1  # llama_token_type; everything else but byte tokens is looked for in the raw text
_BYTE = 6
_TOKENS, _TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"


@dataclass(frozen=True, slots=True)
class Cuts:
    """Letters that may stand before and after the space of a cut; none = the text stays whole."""

    before: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()

    def pieces(self, text: str, size: int = PIECE) -> Iterator[str]:
        """The text in pieces of about `size` characters, each cut where it is safe."""
        start = 0
        while len(text) - start > size and self.before:
            end = self._last(text, start + 1, start + size)
            if end is None:
                end = self._first(text, start + size)
            if end is None:
                break
            yield text[start:end]
            start = end
        yield text[start:]

    def _safe(self, text: str, at: int) -> bool:
        return text[at - 1] in self.before and text[at + 1] in self.after

    def _last(self, text: str, low: int, high: int) -> int | None:
        at = text.rfind(" ", low, high)
        while at > low:
            if self._safe(text, at):
                return at
            at = text.rfind(" ", low, at)
        return None

    def _first(self, text: str, low: int) -> int | None:
        at = text.find(" ", low, len(text) - 1)
        while at >= 0:
            if self._safe(text, at):
                return at
            at = text.find(" ", at + 1, len(text) - 1)
        return None


def cuts_of(path: str) -> Cuts:
    """The cuts that the vocabulary of a model file allows; raises like `open_header`."""
    header = open_header(path)
    if header.get("tokenizer.ggml.model") != "llama":
        return Cuts()
    if header.get("tokenizer.ggml.add_space_prefix", True) is not False:
        return Cuts()
    return cuts_in(open_header(path, arrays=(_TOKENS, _TYPES)))


def cuts_in(header: Header) -> Cuts:
    """The same from a header whose vocabulary was kept."""
    tokens, kinds = header.get(_TOKENS), header.get(_TYPES)
    if not isinstance(tokens, tuple) or not isinstance(kinds, tuple) or len(kinds) != len(tokens):
        return Cuts()
    joins: set[str] = set()
    first: set[str] = set()
    for token, kind in zip(tokens, kinds, strict=True):
        text = str(token).replace(_SPACE, " ")
        joins.update(text[at - 1] for at in _spaces(text) if at)
        if text and kind not in (_NORMAL, _BYTE):
            first.add(text[0])
            joins.add(text[-1])
    return Cuts(_LETTERS - joins, _LETTERS - first)


def _spaces(text: str) -> Iterator[int]:
    at = text.find(" ")
    while at >= 0:
        yield at
        at = text.find(" ", at + 1)
