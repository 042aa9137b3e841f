"""One vector of a document from those of its chunks."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

GROUP = 16
"""Chunks that make a section where a document has no headings and no pages."""


@dataclass(frozen=True, slots=True)
class Part:
    """A chunk as pooling sees it."""

    vector: array[float]
    tokens: int
    section: str


@dataclass(frozen=True, slots=True)
class Pooled:
    """Vectors of a document, each of the chunks' width and of Euclidean length 1.

    `mean` weighs chunks equally, `token_mean` by their tokens, `first` is the first chunk's (what
    CLS means for a whole document), `max` takes the largest value in each dimension, and
    `hierarchical` is the mean of the sections' token means.
    """

    mean: tuple[float, ...]
    token_mean: tuple[float, ...]
    first: tuple[float, ...]
    max: tuple[float, ...]
    hierarchical: tuple[float, ...]


class _Sum:
    def __init__(self, width: int) -> None:
        self.values = [0.0] * width

    def add(self, vector: Iterable[float], weight: float = 1.0) -> None:
        self.values = [total + weight * value for total, value in zip(self.values, vector)]  # noqa: B905


def pool(parts: Iterable[Part]) -> Pooled | None:
    """All of them in one pass over the chunks, in the memory of a few vectors; None of nothing."""
    first: array[float] | None = None
    group = ""
    for number, part in enumerate(parts):
        if first is None:
            first = part.vector
            width = len(first)
            mean, weighted, highest = _Sum(width), _Sum(width), list(first)
            section, sections = _Sum(width), _Sum(width)
            group = part.section
        named = part.section or str(number // GROUP)
        if named != group and number:
            sections.add(unit(section.values))
            section = _Sum(width)
        group = named
        mean.add(part.vector)
        weighted.add(part.vector, part.tokens)
        section.add(part.vector, part.tokens)
        highest = [max(pair) for pair in zip(highest, part.vector)]  # noqa: B905
    if first is None:
        return None
    sections.add(unit(section.values))
    return Pooled(
        unit(mean.values), unit(weighted.values), unit(first), unit(highest), unit(sections.values)
    )


def unit(values: Iterable[float]) -> tuple[float, ...]:
    """The same direction with length 1; nothing else can be done with a zero vector."""
    kept = tuple(values)
    length = math.sqrt(math.fsum(value * value for value in kept))
    return kept if length == 0 else tuple(value / length for value in kept)


def cosine(one: Iterable[float], other: Iterable[float]) -> float:
    """Of two vectors of the same width."""
    return math.fsum(a * b for a, b in zip(unit(one), unit(other)))  # noqa: B905
