"""What a generator is given for a question, by its size and kind; what its answer is taken for."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvwise.digest.refine.ask import Reply, ask
from kvwise.digest.refine.generator import Answer
from kvwise.digest.search import Hit
from kvwise.digest.shelf import RUNNING, Document, Row, Shelf

_TEXTS = ("Bo built the mill in 1702.", "The mill burnt down in 1790.", "Wheat was dear then.")
_QUESTION = "Who built the mill?"


class _Fake:
    """A generator that says one thing; tokens are words, room is for `most` of them."""

    def __init__(self, says: str, params: int, *, chats: bool = True, most: int = 1000) -> None:
        self.model = SimpleNamespace(header=SimpleNamespace(n_params=params))
        self.says, self.chats, self.context, self.most = says, chats, 4096, most
        self.asked = ""

    def tokens(self, text: str) -> int:
        return len(text.split())

    def room(self, _before: str, _answer: int, _after: str = "") -> int:
        return self.most

    def prompt(self, before: str, text: str, after: str = "") -> Sequence[int]:
        self.asked = f"{before}\n\n{text}{after}"
        return []

    def write(self, _prompt: Sequence[int], _most: int) -> Answer:
        return Answer(self.says, 10, 5, cut=False)


def _asked(folder: Path, generator: _Fake, most: int | None = None) -> Reply:
    path = folder / "a.txt"
    path.write_text(" ".join(_TEXTS))
    with Shelf(folder / "out") as shelf:
        shelf.agree({})
        shelf.begin(Document("a", str(path), "plain", "", RUNNING, None, "utf-8", 0))
        hits, at = [], 0
        for number, text in enumerate(_TEXTS):
            row = Row("a", number, at, at + len(text), 9, "", None, "")
            vector = array("f", [float(each == number) for each in range(3)])
            hits.append(Hit(row, at, at + len(text) - 1, text[:-1], 0.5, 0.5, vector))
            at += len(text) + 1
        return ask(shelf, generator, _QUESTION, hits, most=most)  # type: ignore[arg-type]


def test_a_small_model_gets_the_best_passage_between_the_question(tmp_path: Path) -> None:
    fake = _Fake("Bo built it in 1702.", 135_000_000)
    reply = _asked(tmp_path, fake)
    assert fake.asked.startswith(f"Question: {_QUESTION}")
    assert fake.asked.endswith(_QUESTION)
    assert fake.asked.count("mill in 1702") == 1
    assert "burnt" not in fake.asked
    assert [each.supports for each in reply.passages] == [True]
    assert (reply.passages[0].start, reply.passages[0].end) == (0, len(_TEXTS[0]) - 1)
    assert reply.fault is None
    assert len(_asked(tmp_path, fake, most=3).passages) == 3


def test_a_large_model_gets_whole_chunks_with_numbers(tmp_path: Path) -> None:
    fake = _Fake("Bo [1], not [7].", 8_000_000_000)
    reply = _asked(tmp_path, fake)
    assert all(f"[{number}] {text}" in fake.asked for number, text in enumerate(_TEXTS, 1))
    assert [each.cited for each in reply.passages] == [True, False, False]
    assert reply.unknown == (7,)


def test_a_model_without_a_template_gets_a_text_to_go_on_with(tmp_path: Path) -> None:
    fake = _Fake("Bo", 270_000_000, chats=False)
    reply = _asked(tmp_path, fake)
    assert fake.asked.startswith("Text:")
    assert fake.asked.endswith(f"Question: {_QUESTION}")
    assert len(reply.passages) == 1


@pytest.mark.parametrize(
    ("says", "fault"),
    [("", "empty"), (_QUESTION, "question"), ("Bo. Bo. Bo.", None), (f"{_QUESTION} Bo did.", None)],
)
def test_an_answer_that_is_none_is_told(tmp_path: Path, says: str, fault: str | None) -> None:
    assert _asked(tmp_path, _Fake(says, 135_000_000)).fault == fault


def test_what_does_not_fit_is_left_out_and_told(tmp_path: Path) -> None:
    reply = _asked(tmp_path, _Fake("Bo", 8_000_000_000, most=15))
    assert len(reply.passages) + len(reply.left_out) == 3
    assert reply.left_out


def test_nothing_is_invented_where_no_passage_fits(tmp_path: Path) -> None:
    fake = _Fake("An actor.", 8_000_000_000, most=1)
    reply = _asked(tmp_path, fake)
    assert (reply.fault, reply.answer.text, fake.asked) == ("nothing", "", "")
    assert len(reply.left_out) == 3
