"""What is found for a question: by vectors, by words, by the best passage."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from digest.plain import Words as Tokens
from kvwise.digest.engines import floats_to_bytes
from kvwise.digest.lexical import Words, fused, terms
from kvwise.digest.passages import spans
from kvwise.digest.search import Finder, Hit, Question, different
from kvwise.digest.shelf import Document, Row
from kvwise.digest.sources import stamp_of
from kvwise.errors import SourceError


def test_terms_are_what_a_question_is_about() -> None:
    assert terms("Who built the Arks?") == ("built", "ark")
    assert terms("who is who") == ("who", "is")  # nothing else is there
    assert terms("\u8c01\u9020\u4e86\u65b9\u821f") == (
        "\u8c01\u9020", "\u9020\u4e86", "\u4e86\u65b9", "\u65b9\u821f",
    )  # fmt: skip
    assert terms("") == terms("?!") == ()


def test_words_count_whole_words_of_a_stem() -> None:
    words = Words("killing in Ark 7")
    text = "He killed, she kills; skill, park, arks, 7 and 77."
    assert words.count(text) == {"kill": 2, "ark": 1, "7": 1}
    assert Words("\u65b9\u821f").count("\u65b9\u821f\u4e0e\u65b9\u821f") == {"\u65b9\u821f": 2}


def test_rare_words_count_most_and_long_texts_less() -> None:
    words = Words("bread zebra")
    texts = ("zebra", "bread", "bread bread", "bread", "bread", "zebra" + " and so on" * 50, "none")
    for text in texts:
        words.add(text, len(text.split()))
    rare, common, twice, _, _, long, nothing = words.scores()
    assert rare > common > nothing == 0
    assert twice > common
    assert rare > long > 0
    assert words.share("a zebra", words.weights()) > words.share("a bread", words.weights())
    assert Words("?").scores() == []


def test_scores_of_any_range_count_alike() -> None:
    assert fused([0.90, 0.91, 0.92], [0, 30, 0]) == pytest.approx([-1.5, 1.0, 0.5])
    assert fused([1.0, 1.0], [0.0, 0.0]) == [0.0, 0.0]
    assert fused([], []) == []


@given(
    st.text(st.sampled_from("ab. \n\u3002\u65b9"), max_size=400),
    st.integers(min_value=1, max_value=40),
)
def test_passages_cover_a_text(text: str, limit: int) -> None:
    found = spans(text, Tokens(), limit)
    covered = 0
    for start, end in found:
        assert start <= covered < end  # nothing is left out, each goes further
        covered = end
    assert covered == len(text)


def test_passages_are_short() -> None:
    text = "One two three four. " * 50 + "word " * 100
    found = spans(text, Tokens(), 20)
    assert max(Tokens().counts([text[start:end] for start, end in found])) <= 20


_TEXTS = (
    "The old king ruled a large country. He was fond of music and long dinners.",
    "Rain fell on the hills for a week. Then Marlo crossed the bridge at night. All were asleep.",
    "Trade in wool grew. Ships went to the south in spring.",
)


class _Shelf:
    """Chunks of a file; vectors in two dimensions."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "digest.db"
        (folder / "a.txt").write_text("".join(_TEXTS))
        ends, at = [], 0
        for text in _TEXTS:
            ends.append((at, at + len(text)))
            at += len(text)
        self.rows = [Row("a", n, *each, 15, "", None, str(n)) for n, each in enumerate(ends)]
        self.source = str(folder / "a.txt")
        self.stamp = stamp_of(folder / "a.txt")

    def documents(self) -> list[object]:
        return [Document("a", self.source, "plain", self.stamp, "finished", None, "utf-8", 0)]

    def chunks(self) -> list[Row]:
        return self.rows

    def vector(self, key: str) -> bytes:
        return floats_to_bytes([(1.0, 0.0), (0.9, 0.3), (0.95, 0.2)][int(key)])


def _embed(batch: Sequence[Sequence[int]]) -> list[bytes]:
    return [floats_to_bytes((1.0, 0.1)) for _ in batch]


def test_a_name_beats_a_vector_that_is_a_little_nearer(tmp_path: Path) -> None:
    question = Question("Where was Marlo?", [1.0, 0.0], Tokens(), _embed, 16)
    found = Finder(_Shelf(tmp_path), question).passages(2)  # type: ignore[arg-type]
    best = found[0]
    assert best.row.seq == 1
    assert "Marlo" in best.text
    assert len(best.text) < len(_TEXTS[1])
    assert (tmp_path / "a.txt").read_text()[best.start : best.end] == best.text
    assert best.words == 1


def test_a_text_that_has_changed_is_told(tmp_path: Path) -> None:
    """Its offsets point to something else than what was embedded."""
    shelf = _Shelf(tmp_path)
    question = Question("Where was Marlo?", [1.0, 0.0], Tokens(), _embed, 16)
    (tmp_path / "a.txt").write_text("X" + "".join(_TEXTS))
    with pytest.raises(SourceError, match="has changed"):
        Finder(shelf, question).passages(2)  # type: ignore[arg-type]


def test_a_chunk_of_spaces_is_no_hit(tmp_path: Path) -> None:
    shelf = _Shelf(tmp_path)
    (tmp_path / "a.txt").write_text("".join(_TEXTS[:2]) + " " * len(_TEXTS[2]))
    shelf.stamp = stamp_of(tmp_path / "a.txt")
    question = Question("Where was Marlo?", [1.0, 0.0], Tokens(), _embed, 16)
    found = Finder(shelf, question).passages(3)  # type: ignore[arg-type]
    assert sorted(hit.row.seq for hit in found) == [0, 1]


def test_what_says_the_same_is_taken_once() -> None:
    row = Row("a", 0, 0, 1, 1, "", None, "")
    one, same, other = (
        Hit(row, 0, 1, "", score, 0.0, array("f", vector))
        for score, vector in ((0.9, (1.0, 0.0)), (0.8, (1.0, 0.01)), (0.7, (0.0, 1.0)))
    )
    assert different([one, same, other], 3) == [one, other]
    assert different([one, same, other], 1) == [one]
