"""Phrases: templates with fields, worded only at the faces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvwise.text import LANGUAGES, Phrase, phrase, say


def test_fields_are_filled_in() -> None:
    assert say(phrase("needs {n} MiB on {device}", n=5, device="CUDA0")) == "needs 5 MiB on CUDA0"


def test_a_phrase_inside_a_phrase() -> None:
    inner = phrase("{n} layers", n=3)
    assert str(phrase("{what} left", what=inner)) == "3 layers left"


def test_braces_without_fields_are_just_braces() -> None:
    assert say("a {brace}") == "a {brace}"
    assert say("") == ""


@given(st.text())
def test_a_value_is_never_a_template(value: str) -> None:
    assert say(phrase("{value}", value=value)) == value


def test_an_unknown_language_or_sentence_stays_english() -> None:
    sentence = phrase("no translator has seen this {thing}", thing="one")
    for language in (*LANGUAGES, "xx"):
        assert say(sentence, language) == "no translator has seen this one"


def test_phrases_compare_by_value() -> None:
    assert phrase("{a}", a=1) == Phrase("{a}", {"a": 1})


def test_equal_phrases_are_one_in_a_set_or_as_a_key() -> None:
    same = phrase("{a} of {b}", a=1, b=[2]), Phrase("{a} of {b}", {"b": [2], "a": 1})
    assert len({*same, phrase("{a} of {b}", a=2, b=[2])}) == 2
    assert list(dict.fromkeys((*same, phrase("other")))) == [same[0], phrase("other")]
