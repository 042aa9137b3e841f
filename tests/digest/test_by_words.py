"""A WordPiece model's tokens by words are those of the engine for the whole text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvwise.digest.by_words import ByWords, whole_words
from kvwise.digest.engines import EngineTokenizer
from kvwise.engine.server import Server
from kvwise.launch import Launch
from models import minilm, smollm2

_PIECES = (
    "river", "Stones", "unbelievably", "e.g.", "it's", "Ünïcödé", "e\u0301te\u0301", "\u0301",
    "第一句。", "然后", "x" * 80, "…", "\u2028", "\u00a0", "\x1c", "\x85", "\x0b", "\u200b",
    "\ufffd", "\x07", "😀", "[CLS]", "[UNK]", "<|end|>", "##ing", "▁", "\u3000", "Ǆ", "ﬁne",
    "한국어", "1,000.50", "--", "\udc80",
)  # fmt: skip
_SPACES = ("", " ", "  ", "\n", "\t", "\r\n", "\n\n")


def _texts(seed: int, number: int) -> Iterator[str]:
    dice = random.Random(seed)
    for _ in range(number):
        yield "".join(
            dice.choice(_PIECES) + dice.choice(_SPACES) for _ in range(dice.randint(0, 30))
        )


class _Counting:
    """A server whose requests are counted."""

    def __init__(self, server: Server) -> None:
        self._server, self.asked = server, 0

    def post(self, path: str, body: dict[str, Any]) -> Any:
        self.asked += 1
        return self._server.post(path, body)


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
@pytest.mark.parametrize("prefix", ["", "passage: ", "query:"])
def test_ids_are_those_of_the_whole_text(tmp_path: Path, prefix: str) -> None:
    launch = Launch.parse(["-ngl", "0", "-c", "64", "-b", "64", "-ub", "64", "--embedding"])
    with Server.start(minilm(), launch, log=tmp_path / "log") as server:
        whole, words = EngineTokenizer(server, prefix), ByWords(server, prefix)
        assert words.special() == whole.special()
        texts = list(_texts(3, 300))
        for text in texts:
            assert words.ids(text) == whole.ids(text), text
        assert words.counts(texts) == whole.counts(texts)
        counting = _Counting(server)
        again = ByWords(counting, prefix)
        before = counting.asked
        for _ in range(20):
            again.ids("the river and the stones " * 50)
        assert counting.asked == before + 1


def test_only_models_that_split_at_words(tmp_path: Path) -> None:
    assert whole_words(str(minilm()))
    assert not whole_words(str(smollm2()))
