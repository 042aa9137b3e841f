"""A text in chunks that are exact in the model's own tokens.

The text is read as a stream and looked at in segments (sentences, words where they are too long)
whose tokens are counted many at a time. A chunk takes as many segments as fit, ends at the
strongest border asked for if there is one in its later part, and is then tokenised as a whole, with
what the model adds: that number is what counts, whatever its parts added up to. A chunk whose text
is known from before is taken as it was, without asking the tokenizer (see `Known`).

A heading is the strongest border: a chunk that is not too empty ends before one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Protocol

from kvwise.digest.borders import (
    BORDERS,
    HEADING,
    SENTENCE,
    WORD,
    Segment,
    parts,
    segments,
    split,
    words,
)
from kvwise.digest.reading import Window
from kvwise.errors import UsageError

_LOOKED_AT = 1 << 15  # characters segmented and counted at a time
_LEAST = {"paragraph": 0.5, "sentence": 0.35}
"""How full a chunk must be for its last such border to be preferred to a later weaker one."""
_LEAST_BEFORE_HEADING = 0.35  # of the limit
_TRIES = 12


class Tokenizer(Protocol):
    """The model's own."""

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text by itself, without what the model adds."""

    def ids(self, text: str) -> list[int]:
        """Token ids of a chunk as the engine gets it, with what the model adds."""


@dataclass(frozen=True, slots=True)
class Rules:
    """`limit` tokens at most, of which the model adds `special`; `overlap` tokens of a chunk are
    repeated at the start of the next. Raises UsageError."""

    limit: int
    special: int = 0
    overlap: int = 0
    borders: str = "sentence"

    def __post_init__(self) -> None:
        if self.limit - self.special < 1:
            raise UsageError(
                "chunks of {limit} tokens leave no room: the model adds {special} of its own",
                limit=self.limit, special=self.special,
            )  # fmt: skip
        if not 0 <= self.overlap < max(1, (self.limit - self.special) / 2):
            raise UsageError(
                "an overlap of {overlap} tokens: it must be less than half of a chunk ({limit})",
                overlap=self.overlap, limit=self.limit,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Old:
    """A chunk of an earlier run: `chars` long, the next one started after `advance` of them, and
    its first `shared` characters were the end of the one before."""

    chars: int
    advance: int
    shared: int
    tokens: int
    digest: str  # of its text
    vector: str  # key of its vector


class Known(Protocol):
    """Chunks of an earlier run over the same document with the same rules."""

    def at(self, window: Window, position: int) -> Old | None:
        """The one whose whole text stands at a position of the window."""

    def any(self) -> bool:
        """Whether there are any."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk: `start` and `end` are byte offsets in the text, `chars` its length, `ids` None
    when it was known (`old`)."""

    seq: int
    start: int
    end: int
    text: str
    tokens: int
    advance: int
    shared: int
    ids: tuple[int, ...] | None = None
    old: Old | None = None


class Chunker:
    """Iterate over it once. `headings` = byte offsets at which they start, ascending."""

    def __init__(
        self, window: Window, tokenizer: Tokenizer, rules: Rules, known: Known | None = None,
        headings: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._window, self._tokenizer, self._rules = window, tokenizer, rules
        self._known = known if known is not None and known.any() else None
        self._headings = headings if BORDERS[rules.borders] > WORD else ()
        self._segments: list[Segment] = []
        self._tokens: list[int] = []  # of each segment
        self._counted = 0  # characters that the segments cover
        self._shared = 0

    def __iter__(self) -> Iterator[Chunk]:
        seq = 0
        while self._window.fill(1):
            chunk = self._from_before(seq) or self._new(seq)
            yield chunk
            self._leave(chunk.advance)
            self._shared = len(chunk.text) - chunk.advance
            if self._at_end(chunk):
                return
            seq += 1

    def _at_end(self, chunk: Chunk) -> bool:
        """Only the overlap is left: that was the last one."""
        rest = len(chunk.text) - chunk.advance
        return self._window.fill(rest + 1) <= rest

    # -- a chunk that is known -----------------------------------------------------------------

    def _from_before(self, seq: int) -> Chunk | None:
        old = self._known.at(self._window, 0) if self._known else None
        if old is None or old.shared != self._shared:
            return None
        grown = self._window.fill(old.chars + 1) > old.chars
        if old.advance == old.chars and grown and self._rules.overlap:
            return None  # it was the last one, and the text has grown since
        return self._chunk(seq, old.chars, old.advance, old)

    def _chunk(self, seq: int, chars: int, advance: int, made_of: Old | tuple[int, ...]) -> Chunk:
        window = self._window
        old = made_of if isinstance(made_of, Old) else None
        ids = None if isinstance(made_of, Old) else made_of
        tokens = made_of.tokens if isinstance(made_of, Old) else len(made_of)
        return Chunk(
            seq, window.offset, window.offset + window.size(chars), window.text(chars), tokens,
            advance, self._shared, ids, old,
        )  # fmt: skip

    # -- a new one -----------------------------------------------------------------------------

    def _new(self, seq: int) -> Chunk:
        body = self._rules.limit - self._rules.special
        while sum(self._tokens) <= body and self._count_more():
            pass
        number = self._border(max(self._fitting(body), self._beyond()))
        number = self._resynchronised(number)
        number, ids = self._exact(number)
        chars = sum(each.length for each in self._segments[:number])
        if chars <= self._shared:  # the overlap alone fills it: go on without
            self._leave(self._shared)
            self._shared = 0
            return self._new(seq)
        advance = self._advance(number, chars)
        return self._chunk(seq, chars, advance, tuple(ids))

    def _count_more(self) -> bool:
        """Segments and their tokens of the next stretch of text; False at its end."""
        size = _LOOKED_AT
        while True:
            there = self._window.fill(self._counted + size)
            text = self._window.text(there, self._counted)
            if not text:
                return False
            found = segments(text, whole=self._window.at_end(there))
            if found:
                break
            if there < self._counted + size or size > 8 * _LOOKED_AT:  # one endless sentence
                found = words(text)
                break
            size *= 2
        if self._rules.borders == "none":
            found = self._split(found, self._counted)
        self._add(self._with_headings(found))
        return True

    def _with_headings(self, found: list[Segment]) -> list[Segment]:
        """The segments that come next, with borders before headings."""
        if not self._headings:
            return found
        window, start = self._window, self._counted
        end = start + sum(each.length for each in found)
        first = window.offset + window.size(start)
        last = first + window.size(end, start)
        inside = self._headings[
            bisect_right(self._headings, first) : bisect_right(self._headings, last)
        ]
        return split(found, window.chars(inside, start, end)) if inside else found

    def _add(self, found: list[Segment]) -> None:
        counts = self._tokenizer.counts(self._texts(found, self._counted))
        body = self._rules.limit - self._rules.special
        at = self._counted
        for segment, tokens in zip(found, counts, strict=True):
            smaller = self._smaller(segment, at, tokens, body)
            if smaller:
                self._segments += smaller
                self._tokens += self._tokenizer.counts(self._texts(smaller, at))
            else:
                self._segments.append(segment)
                self._tokens.append(tokens)
            at += segment.length
        self._counted = at

    def _smaller(self, segment: Segment, at: int, tokens: int, body: int) -> list[Segment]:
        """The words of a segment that fills a large part of a chunk; parts of an endless one."""
        if tokens <= max(1, body // 4):
            return []
        small = words(self._window.text(at + segment.length, at), segment.rank)
        size = max(1, body // 4)
        return [
            part
            for each in small
            for part in (parts(each.length, each.rank, size) if each.length > 4 * size else [each])
        ]

    def _split(self, found: list[Segment], at: int) -> list[Segment]:
        small: list[Segment] = []
        for segment in found:
            small += words(self._window.text(at + segment.length, at), segment.rank)
            at += segment.length
        return small

    def _texts(self, found: Sequence[Segment], at: int) -> list[str]:
        ends = list(accumulate((each.length for each in found), initial=at))
        return [self._window.text(end, start) for start, end in pairwise(ends)]

    def _fitting(self, body: int) -> int:
        total = 0
        for number, tokens in enumerate(self._tokens):
            total += tokens
            if total > body:
                return max(1, number)
        return len(self._tokens)

    def _beyond(self) -> int:
        """The least number of segments that has something new after the overlap."""
        ends = accumulate(each.length for each in self._segments)
        return next((at for at, end in enumerate(ends, 1) if end > self._shared), 1)

    def _border(self, most: int) -> int:
        """The number of segments up to the border preferred."""
        wanted = BORDERS[self._rules.borders]
        if wanted == WORD:
            return most
        filled = list(accumulate(self._tokens[:most]))
        enough = _LEAST_BEFORE_HEADING * (self._rules.limit - self._rules.special)
        fewest = self._beyond()
        for number in range(fewest, most + 1):
            if self._segments[number - 1].rank == HEADING and filled[number - 1] >= enough:
                return number
        if most == len(self._segments):
            return most
        for rank, name in ((wanted, self._rules.borders), (SENTENCE, "sentence")):
            least = _LEAST[name] * filled[-1]
            for number in range(most, fewest - 1, -1):
                if filled[number - 1] < least:
                    break
                if self._segments[number - 1].rank >= rank:
                    return number
        return most

    def _exact(self, number: int) -> tuple[int, list[int]]:
        """As many segments as the model's own tokens allow: fewer, or more where the sum of the
        parts had counted too much."""
        limit = self._rules.limit
        grows = BORDERS[self._rules.borders] == WORD
        best: tuple[int, list[int]] | None = None
        for _ in range(_TRIES):
            chars = sum(each.length for each in self._segments[:number])
            ids = self._tokenizer.ids(self._window.text(chars))
            if len(ids) > limit:
                if best is not None:
                    break
                if number == 1:
                    self._halve()
                else:
                    number = max(1, min(number - 1, number * limit // len(ids)))
                continue
            best = number, ids
            step = (limit - len(ids)) * number // max(1, len(ids))
            if not grows or not self._has(number + max(1, step)) or self._full(number, len(ids)):
                break
            number += max(1, step)
        if best is None:
            raise UsageError("{limit} tokens hold no piece of this text", limit=limit)
        return best

    def _full(self, number: int, tokens: int) -> bool:
        """Whether the parts were counted right and the next one is too much."""
        counted = sum(self._tokens[:number]) + self._rules.special == tokens
        return counted and tokens + self._tokens[number] > self._rules.limit

    def _has(self, number: int) -> bool:
        while len(self._segments) < number and self._count_more():
            pass
        return len(self._segments) >= number

    def _halve(self) -> None:
        """The first segment alone is more than a chunk."""
        first = self._segments[0]
        if first.length == 1:
            return
        small = parts(first.length, first.rank, (first.length + 1) // 2)
        self._segments[:1] = small
        self._tokens[:1] = self._tokenizer.counts(self._texts(small, 0))

    def _resynchronised(self, number: int) -> int:
        """Where a text was changed before and known chunks follow: end so that the next one is
        found again."""
        if self._known is None:
            return number
        ends = list(accumulate(each.length for each in self._segments))
        for at in range(number - 1, self._beyond() - 2, -1):
            old = self._known.at(self._window, ends[at])
            if old is None:
                continue
            end = ends[at] + old.shared
            if end in ends and ends.index(end) < len(ends):
                return ends.index(end) + 1
        return number

    def _advance(self, number: int, chars: int) -> int:
        """Characters to the start of the next chunk."""
        if self._rules.overlap == 0 or self._window.fill(chars + 1) <= chars:
            return chars
        back = self._overlapping(number)
        if back == 0 and self._segments[number - 1].rank >= SENTENCE:
            number = self._as_words(number - 1)
            back = self._overlapping(number)
        return chars - back

    def _overlapping(self, number: int) -> int:
        """Characters of the last segments that make at most `overlap` tokens."""
        tokens = back = 0
        for at in range(number - 1, 0, -1):
            tokens += self._tokens[at]
            if tokens > self._rules.overlap:
                break
            back += self._segments[at].length
        return back

    def _as_words(self, at: int) -> int:
        """A segment replaced by its words; returns the number of segments up to its end."""
        start = sum(each.length for each in self._segments[:at])
        segment = self._segments[at]
        small = words(self._window.text(start + segment.length, start), segment.rank)
        self._segments[at : at + 1] = small
        self._tokens[at : at + 1] = self._tokenizer.counts(self._texts(small, start))
        return at + len(small)

    def _leave(self, chars: int) -> None:
        self._window.advance(chars)
        left, number = chars, 0
        while number < len(self._segments) and left >= self._segments[number].length:
            left -= self._segments[number].length
            number += 1
        del self._segments[:number], self._tokens[:number]
        self._counted -= chars
        if left or self._counted < 0:  # inside a segment, or past all of them
            self._segments, self._tokens, self._counted = [], [], 0
