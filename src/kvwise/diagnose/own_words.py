"""A pasted sentence -> the template of kvwise that it was made of, in any language."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from kvwise.text import LANGUAGES, wordings

_FIELD = re.compile(r"\{\w{1,40}(?:![rsa])?(?::[^{}]{1,20})?\}", re.ASCII)
_WORD = re.compile(r"[A-Za-z-]{2,}|[\u4e00-\u9fff]")
_LEAST = {"en": 3, "zh": 4}
"""Words, or characters, that a wording must have beside its fields: anybody says fewer."""


def template_of(said: str) -> str | None:
    """The English template of a sentence; None if kvwise has no such sentence."""
    for piece, words, english in _sentences():
        if piece in said and _pattern(words).match(said):
            return english
    return None


def within(said: str, english: Iterable[str]) -> list[str]:
    """Those of some templates without fields that a sentence holds, in any language."""
    known = [wordings(language) for language in LANGUAGES]
    return [each for each in english if any(words.get(each, each) in said for words in known)]


@cache
def _sentences() -> tuple[tuple[str, str, str], ...]:
    """(longest piece without a field, wording, English template), the longest piece first."""
    found = []
    for language in LANGUAGES:
        for english, words in wordings(language).items():
            pieces = _FIELD.split(words)
            if sum(len(_WORD.findall(piece)) for piece in pieces) >= _LEAST[language]:
                found.append((max(pieces, key=len), words, english))
    return tuple(sorted(found, key=lambda each: -len(each[0])))


@cache
def _pattern(words: str) -> re.Pattern[str]:
    pieces = [re.escape(piece) for piece in _FIELD.split(words)]
    return re.compile(".{1,200}?".join(pieces))
