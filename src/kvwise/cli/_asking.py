"""A name that can mean several things, asked back where somebody sits at the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kvwise.cli.output import Printer
from kvwise.errors import Ambiguous

_MOST_QUESTIONS = 16


def asking(printer: Printer, arguments: Sequence[str], work: Callable[[list[str]], int]) -> int:
    """`work(arguments)`; what it finds ambiguous is asked and put in its place on the line.

    Raises what `work` raises, Ambiguous where nobody can be asked or nobody chose.
    """
    words = list(arguments)
    for _ in range(_MOST_QUESTIONS):
        try:
            return work(list(words))
        except Ambiguous as error:
            if _put(words, error.asked, "") is None:
                raise
            chosen = printer.choose(error.phrase, error.candidates)
            if chosen is None:
                raise
            words = _put(words, error.asked, chosen) or words
    return work(words)


def _put(words: Sequence[str], asked: str, chosen: str) -> list[str] | None:
    """The words with the name replaced in a value of --gpu, where it stands alone, behind name=
    or beside others (`A + B`); None if it stands nowhere."""
    place = re.compile(rf"(^|=|\+\s){re.escape(asked)}(?=\s*(?:$|,|\s\+))")
    for at, word in enumerate(words):
        if (at > 0 and words[at - 1] == "--gpu") or word.startswith("--gpu="):
            instead, count = place.subn(lambda found: found[1] + chosen, word, count=1)
            if count:
                return [*words[:at], instead, *words[at + 1 :]]
    return None
