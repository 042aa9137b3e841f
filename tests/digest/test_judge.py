"""Answers that are none, and where the words of an answer stand."""

from __future__ import annotations

import pytest

from kvwise.digest.refine.judge import fault, supported, without_loop

_TOLD = "Answer the question from the numbered passages below and from nothing else."
_TEXT = " ".join(
    f"In the year {year} the river froze and {year + 3} boats lay still."
    for year in range(1700, 1720)
)


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("The river froze in 1703.", None),
        ("1703", None),
        ("In the year 1703 the river froze and 1706 boats lay still.", None),  # a quotation
        ("", "empty"),
        ("...", "empty"),
        ("When did the river freeze?", "question"),
        ("WHEN did the river freeze", "question"),
        ("I answer the question from the numbered passages, below.", "instruction"),
        (_TEXT[:600], "copy"),
        (f"{_TEXT[:150]} and that is what we know about it: " + "it was cold " * 20, None),
    ],
)  # fmt: skip
def test_what_is_no_answer(answer: str, wrong: str | None) -> None:
    assert fault(answer, "When did the river freeze?", _TOLD, _TEXT) == wrong


def test_an_answer_ends_where_it_begins_again() -> None:
    assert (
        without_loop("It is Bo. It was in May. It is Bo. It was in May.")
        == "It is Bo. It was in May."
    )
    assert without_loop("\u662f\u6ce2\u3002\u662f\u6ce2\u3002\u662f") == "\u662f\u6ce2\u3002"
    for plain in ("One. Two. Three", "", "No end at all", "a.b.c"):
        assert without_loop(plain) == plain


def test_what_supports_an_answer() -> None:
    texts = ["Noah built an ark of gopher wood.", "The walls fell.", "Noah had three sons."]
    assert supported("Noah built the ark.", texts) == [0]
    assert supported("Noah and his sons", texts) == [2, 0]
    assert supported("Abraham was a shepherd.", texts) == []
    assert supported("", texts) == []
