"""Tokens of a WordPiece model, by the words of a text: each word is asked for once.

Such a model's tokenizer splits at white space before all else, and what a word becomes depends on
nothing beside it (src/llama-vocab.cpp, llm_tokenizer_wpm_session, b10605). So the ids of a text are
those of its words, and a long text costs the engine, which has embeddings to compute meanwhile,
little more than its vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kvwise.digest.engines import Answers, EngineTokenizer
from kvwise.digest.reading import readable
from kvwise.gguf.open import open_header

_WORD = re.compile(r"[^ \t\n\r]+")
"""Fewer characters than the engine takes for white space: those that are so everywhere."""
_LONGEST = 64  # characters of a word that is kept
_MOST = 1 << 15  # words kept, so that memory is flat
_TYPES = "tokenizer.ggml.token_type"
_USER_DEFINED = 4  # of these types: the engine looks for such tokens before it splits


def whole_words(path: str) -> bool:
    """Whether the tokenizer of the model at `path` is of this kind, from its header alone. Raises
    SourceError, HeaderError."""
    found = open_header(path, arrays=(_TYPES,)).metadata
    types = found.get(_TYPES)
    plain = types is None or (isinstance(types, tuple) and _USER_DEFINED not in types)
    return found.get("tokenizer.ggml.model") == "bert" and plain


class ByWords:
    """A `Tokenizer` that asks an engine for words. Raises EngineError."""

    def __init__(self, server: Answers, prefix: str = "") -> None:
        self._engine, self._prefix = EngineTokenizer(server), prefix
        self._known: dict[str, tuple[int, ...]] = {}
        self._before, self._after = self._added()

    def _added(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What the model adds before and after a text."""
        (alone,) = self._engine.many(["a"])
        whole = tuple(self._engine.ids("a"))
        size = len(alone)
        for at in range(len(whole) - size, -1, -1):
            if whole[at : at + size] == alone:
                return whole[:at], whole[at + size :]
        return (), ()

    def counts(self, texts: Sequence[str]) -> list[int]:
        words = [_WORD.findall(readable(text)) for text in texts]
        ids = self._ids(word for each in words for word in each)
        return [sum(len(ids[word]) for word in each) for each in words]

    def ids(self, text: str) -> list[int]:
        words = _WORD.findall(readable(self._prefix + text))
        ids = self._ids(words)
        return [*self._before, *(token for word in words for token in ids[word]), *self._after]

    def special(self) -> int:
        return len(self.ids(""))

    def _ids(self, words: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """The words with their ids; those not known are asked for together."""
        wanted = dict.fromkeys(words)
        new = [word for word in wanted if word not in self._known]
        asked = dict(zip(new, self._engine.many(new), strict=True)) if new else {}
        found = {word: asked.get(word) or self._known.get(word, ()) for word in wanted}
        if len(self._known) > _MOST:
            self._known.clear()
        self._known |= {word: ids for word, ids in asked.items() if len(word) <= _LONGEST}
        return found
