"""Chunks in passages of a few sentences: small enough to hold one answer, and little else.

The vector of a long chunk is the mean of all that it is about, and a small generator loses itself
in it. So the best chunks are looked at again, passage by passage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from kvwise.digest.borders import Segment, parts, segments, words
from kvwise.digest.chunker import Tokenizer

PASSAGE_TOKENS = 128
"""What sentence embedding models are trained with, and some three to five sentences."""


def spans(text: str, tokenizer: Tokenizer, limit: int) -> list[tuple[int, int]]:
    """Characters from and to of the passages of a text: as many sentences as have at most `limit`
    tokens together, each passage beginning in the middle of the one before. A longer sentence is a
    passage by itself if its words cannot be parted either."""
    found = _small(text, tokenizer, limit)
    counts = tokenizer.counts([text[start:end] for start, end in found])
    made: list[tuple[int, int]] = []
    first = 0
    while first < len(found):
        sums = list(accumulate(counts[first:]))
        number = max(1, sum(total <= limit for total in sums))
        place = found[first][0], found[first + number - 1][1]
        if not made or place[1] > made[-1][1]:
            made.append(place)
        if first + number >= len(found):
            break
        half = sum(total <= sums[number - 1] / 2 for total in sums[:number])
        first += max(1, half)
    return made


def _small(text: str, tokenizer: Tokenizer, limit: int) -> list[tuple[int, int]]:
    """Sentences, in pieces where one alone is more than a passage."""
    found = segments(text, whole=True)
    places = list(_places(found))
    counts = tokenizer.counts([text[start:end] for start, end in places])
    made: list[tuple[int, int]] = []
    for (start, end), tokens in zip(places, counts, strict=True):
        made += [(start, end)] if tokens <= limit else _pieces(text, start, end, tokens, limit)
    return made


def _pieces(text: str, start: int, end: int, tokens: int, limit: int) -> Iterator[tuple[int, int]]:
    """A long sentence between words, in parts of about the same length."""
    size = max(1, (end - start) * limit // (2 * tokens))
    small: Sequence[Segment] = words(text[start:end])
    at = begins = start
    for word in small:
        for part in parts(word.length, word.rank, size) if word.length > 2 * size else [word]:
            if at + part.length - begins > size and at > begins:
                yield begins, at
                begins = at
            at += part.length
    yield begins, end


def _places(found: Sequence[Segment]) -> Iterator[tuple[int, int]]:
    ends = accumulate(each.length for each in found)
    for segment, end in zip(found, ends, strict=True):
        yield end - segment.length, end
