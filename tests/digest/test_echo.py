"""An answer that repeats what its model was told to do."""

from __future__ import annotations

from kvwise.digest.refine.ask import repeats

_TOLD = "Answer the question from the numbered passages below and from nothing else."


def test_eight_words_in_a_row_are_an_echo() -> None:
    assert repeats("I answer the question from the numbered passages, below.", _TOLD)
    assert not repeats("The passages below answer the question: at six. [1]", _TOLD)
    assert not repeats("", _TOLD)
