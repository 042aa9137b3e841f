"""The words of a question in chunks of text: BM25, counted in one pass over the texts.

A vector knows what a text is about, not which names stand in it: a chunk of 512 tokens about a
battle is near every battle. So a name or a number that was asked for counts beside it. Nothing is
indexed: only the question's own terms are looked for, and their counts are all that is kept.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_RUN = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+")
_ENDINGS = ("ings", "ing", "ies", "eth", "ed", "es", "s", "e", "y")
_LEAST = 3  # characters that stay
_K1, _B = 1.2, 0.75
"""Robertson and Zaragoza (2009): how soon a repeated word counts no more, how much length does."""

_FUNCTION = frozenset(
    """
    a about after all am an and any are as at be because been before being but by can could did do
    does for from had has have he her here him his how i if in into is it its me my no not of on or
    our out over shall she should so some such than that the their them then there these they this
    those to too under up upon us was we were what when where which while who whom whose why will
    with would you your
    的 了 是 在 和 有 谁 什么 怎么 为什么 哪里 哪个 吗 呢
    """.split()  # noqa: SIM905 (a line per word would be a page)
)
"""Words that say what kind of question it is, not what it is about."""


def terms(text: str) -> tuple[str, ...]:
    """What to look for: stems of the words that mean something, pairs of characters where no space
    divides words. All words where nothing else is left."""
    runs = _RUN.findall(text.lower())
    found = [term for run in runs for term in _terms(run, every=False)]
    return tuple(dict.fromkeys(found or (term for run in runs for term in _terms(run, every=True))))


def _terms(run: str, *, every: bool) -> list[str]:
    if _is_cjk(run):
        pairs = [run[at : at + 2] for at in range(len(run) - 1)] or [run]
        return [pair for pair in pairs if every or pair not in _FUNCTION]
    return [] if run in _FUNCTION and not every else [_stem(run)]


def _is_cjk(run: str) -> bool:
    return re.match(rf"[{_CJK}]", run) is not None


def _stem(word: str) -> str:
    """Without a common English ending; what it does to other languages it does to both sides."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST:
            return word.removesuffix(ending)
    return word


@dataclass(slots=True)
class Words:
    """The terms of a question, counted in texts that are told one after another by `add`."""

    question: str
    terms: tuple[str, ...] = ()
    _counts: list[dict[str, int]] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.terms = terms(self.question)

    def add(self, text: str, size: int) -> None:
        """The next text, `size` tokens long."""
        self._counts.append(self.count(text))
        self._sizes.append(size)

    def count(self, text: str) -> dict[str, int]:
        """How often each term stands in a text, 0 left out."""
        low = text.lower()
        found = {term: _times(term, low) for term in self.terms}
        return {term: times for term, times in found.items() if times}

    def scores(self) -> list[float]:
        """BM25 of each text, 0 for one without any of the terms."""
        number = len(self._counts)
        mean = sum(self._sizes) / max(1, number)
        weights = self.weights()
        return [
            _score(counts, size / max(1.0, mean), weights)
            for counts, size in zip(self._counts, self._sizes, strict=True)
        ]

    def weights(self) -> dict[str, float]:
        """What each term is worth: the rarer among the texts the more."""
        number, among = len(self._counts), Counter(term for each in self._counts for term in each)
        return {
            term: math.log(1 + (number - among[term] + 0.5) / (among[term] + 0.5))
            for term in self.terms
        }

    def share(self, text: str, weights: dict[str, float]) -> float:
        """How much of what the question asks for stands in a text, 0 to 1."""
        there = self.count(text)
        total = math.fsum(weights.values())
        return math.fsum(weights[term] for term in there) / total if total else 0.0


def _times(term: str, low: str) -> int:
    """How often a text has a word of this stem, or a pair of characters."""
    if _is_cjk(term):
        return low.count(term)
    times, at = 0, low.find(term)
    while at >= 0:
        if at == 0 or not low[at - 1].isalnum():
            run = _RUN.match(low, at)
            times += run is not None and _stem(run[0]) == term
        at = low.find(term, at + 1)
    return times


def _score(counts: dict[str, int], length: float, weights: dict[str, float]) -> float:
    return math.fsum(
        weights[term] * count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * length))
        for term, count in counts.items()
    )


def fused(*lists: Sequence[float]) -> list[float]:
    """One worth out of several scores of the same things: each score from its mean (0) to its best
    (1), added up. So neither the range of a model's cosines nor that of BM25 counts."""
    return [math.fsum(each) for each in zip(*map(_from_mean, lists), strict=True)]


def _from_mean(scores: Sequence[float]) -> list[float]:
    mean = math.fsum(scores) / max(1, len(scores))
    span = max(scores, default=0.0) - mean
    return [(score - mean) / span if span > 0 else 0.0 for score in scores]
