"""Whether a generated answer is one: small models repeat their prompt, or themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from kvwise.digest.lexical import Words

Fault = Literal["nothing", "empty", "question", "instruction", "copy"]
"""There is no text to answer from; nothing is said; the question, the instruction, or a long
stretch of the text is said again."""

_RUN = 8  # words in a row that no answer has by chance
_QUOTE = 40  # words that a quotation may have
_COPIED = 0.8
_SUPPORT = 0.5
_SENTENCE = re.compile(r"[^.!?\u3002\uff01\uff1f\n]+(?:[.!?\u3002\uff01\uff1f]+|\n+|$)\s*")


def fault(answer: str, question: str, instruction: str, text: str) -> Fault | None:
    """What is wrong with it, None if it can be an answer."""
    said = _words(answer)
    if not said:
        return "empty"
    if said == _words(question):
        return "question"
    if repeats(answer, instruction):
        return "instruction"
    copied = sum(_in_runs(said, _words(text)))
    return "copy" if len(said) > _QUOTE and copied >= _COPIED * len(said) else None


def repeats(answer: str, instruction: str) -> bool:
    """Whether eight words of the instruction stand in the answer in a row."""
    return any(_in_runs(_words(answer), _words(instruction)))


def without_loop(answer: str) -> str:
    """The answer up to where it begins to say the same sentences again."""
    seen: set[str] = set()
    end = 0
    for match in _SENTENCE.finditer(answer):
        said = " ".join(_words(match[0]))
        if said and said in seen:
            return answer[:end].strip()
        seen.add(said)
        end = match.end()
    return answer


def supported(answer: str, texts: Sequence[str]) -> list[int]:
    """Which texts hold at least half of what the answer says, the one with most of it first."""
    words = Words(answer)
    shares = [len(words.count(text)) / max(1, len(words.terms)) for text in texts]
    order = sorted(range(len(texts)), key=lambda at: -shares[at])
    return [at for at in order if shares[at] >= _SUPPORT]


def _in_runs(said: Sequence[str], told: Sequence[str]) -> Iterator[bool]:
    """For each word said, whether it is in a run of words that were told."""
    runs = {tuple(told[at : at + _RUN]) for at in range(len(told) - _RUN + 1)}
    until = 0
    for at in range(len(said)):
        if tuple(said[at : at + _RUN]) in runs:
            until = at + _RUN
        yield at < until


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
