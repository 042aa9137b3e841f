"""Where a text may be cut for a reader: after a paragraph, a sentence, a word, else anywhere.

A segment carries the white space behind it, so the next one starts with a letter. Sentences end at
the stops of Latin, Cyrillic, Arabic, Indic and East Asian scripts with the quotes and brackets
behind them; a full stop after a capital letter alone or after a common abbreviation ends none.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

ANYWHERE, WORD, SENTENCE, PARAGRAPH, HEADING = 0, 1, 2, 3, 4
"""Ranks of a border, weakest first."""

BORDERS = {"none": WORD, "sentence": SENTENCE, "paragraph": PARAGRAPH}
"""What `--borders` can ask for, and the strongest border it looks for."""

_CLOSING = "\"'\u2019\u201d\u00bb)\\]}\u300d\u300f\u3011\uff09"
_PARAGRAPH = r"(?:\r?\n[ \t]*){2,}\s*|\u2029\s*"
_WIDE_STOP = rf"[\u3002\uff01\uff1f\uff61\u2026]+[{_CLOSING}]*\s*"
_STOP = rf"[.!?\u061f\u06d4\u0964\u0965]+[{_CLOSING}]*\s+"
_END = re.compile(rf"(?P<paragraph>{_PARAGRAPH})|(?P<wide>{_WIDE_STOP})|(?P<stop>{_STOP})")
_WORD = re.compile(
    r"[^\s\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+\s*|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]\s*|\s+"
)
_SHORT = re.compile(
    r"(?:\b[A-Z]|\b(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|cf|e\.g|i\.e|No|Vol|Fig|Eq|pp?|ca))\.$"
)
_BEFORE_STOP = 12  # characters looked at for an abbreviation


@dataclass(frozen=True, slots=True)
class Segment:
    """`length` characters of a text; `rank` of the border behind them."""

    length: int
    rank: int


def segments(text: str, *, whole: bool) -> list[Segment]:
    """Sentences from the start of `text`. Unless it is the `whole` rest, its last one is left out:
    what follows may belong to it."""
    found: list[Segment] = []
    start = 0
    for match in _END.finditer(text):
        if match.end() == len(text) and not whole:
            break
        if match["stop"] and _SHORT.search(
            text[max(0, match.start() - _BEFORE_STOP) : match.start() + 1]
        ):
            continue
        paragraph = match["paragraph"] is not None or _blank_line(match[0])
        found.append(Segment(match.end() - start, PARAGRAPH if paragraph else SENTENCE))
        start = match.end()
    if whole and start < len(text):
        found.append(Segment(len(text) - start, PARAGRAPH))
    return found


def split(found: Sequence[Segment], cuts: Sequence[int]) -> list[Segment]:
    """The same segments, with a border of rank HEADING at each of `cuts`: characters from their
    start, ascending."""
    made: list[Segment] = []
    left = deque(cuts)
    start = 0
    for segment in found:
        end = start + segment.length
        while left and left[0] <= end:
            cut = left.popleft()
            if cut > start:
                made.append(Segment(cut - start, HEADING))
                start = cut
        if end > start:
            made.append(Segment(end - start, segment.rank))
        start = end
    return made


def words(text: str, rank: int = WORD) -> list[Segment]:
    """The words of a segment (each Han, kana or hangul character by itself); the last one keeps the
    `rank` of the segment."""
    lengths = [match.end() - match.start() for match in _WORD.finditer(text)]
    return [
        Segment(length, rank if number == len(lengths) else WORD)
        for number, length in enumerate(lengths, 1)
    ]


def parts(length: int, rank: int, size: int) -> list[Segment]:
    """A segment without borders, in parts of at most `size` characters."""
    cuts = [*range(0, length, max(1, size)), length]
    return [
        Segment(end - start, rank if end == length else ANYWHERE) for start, end in pairwise(cuts)
    ]


def _blank_line(space: str) -> bool:
    return space.count("\n") > 1
