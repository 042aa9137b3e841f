"""The chunks that are nearest to a question, in flat memory: a heap over a stream of vectors."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from kvwise.digest.engines import bytes_to_floats
from kvwise.digest.pool import cosine, unit
from kvwise.digest.shelf import Document, Row, Shelf
from kvwise.errors import SourceError

_WIDER = 5
"""Candidates looked at for each hit wanted when they are to differ from each other."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk and its cosine to the question."""

    row: Row
    score: float
    vector: array[float]


def nearest(
    shelf: Shelf, question: Sequence[float], number: int, name: str | None = None
) -> list[Hit]:
    """The `number` nearest chunks, best first."""
    asked = unit(question)
    heap: list[tuple[float, int, Row, array[float]]] = []
    for order, row in enumerate(shelf.chunks(name)):
        vector = bytes_to_floats(shelf.vector(row.vector))
        entry = (cosine(asked, vector), -order, row, vector)
        if len(heap) < number:
            heapq.heappush(heap, entry)
        elif entry[:2] > heap[0][:2]:
            heapq.heapreplace(heap, entry)
    return [Hit(row, score, vector) for score, _, row, vector in sorted(heap, key=_best_first)]


def _best_first(entry: tuple[float, int, Row, array[float]]) -> tuple[float, int]:
    return -entry[0], -entry[1]


def diverse(
    shelf: Shelf, question: Sequence[float], number: int, diversity: float = 0.3,
    name: str | None = None,
) -> list[Hit]:  # fmt: skip
    """Maximal marginal relevance: each next hit is near the question and unlike those taken.

    `diversity` 0 = the nearest only, 1 = only unlike each other (Carbonell and Goldstein, 1998).
    """
    left = nearest(shelf, question, number * _WIDER, name)
    taken: list[Hit] = []
    likest = [0.0] * len(left)
    while left and len(taken) < number:
        worth = [
            (1 - diversity) * hit.score - diversity * near
            for hit, near in zip(left, likest, strict=True)
        ]
        best = max(range(len(left)), key=worth.__getitem__)
        taken.append(left.pop(best))
        likest.pop(best)
        likest = [
            max(near, cosine(hit.vector, taken[-1].vector))
            for hit, near in zip(left, likest, strict=True)
        ]
    return taken


def text_of(shelf: Shelf, row: Row) -> str:
    """The text of a chunk, from where its offsets point. Raises SourceError when it is gone."""
    document = shelf.document(row.document)
    assert document is not None  # noqa: S101 (a chunk has one)
    return read(shelf, document, row.start, row.end)


def read(shelf: Shelf, document: Document, start: int, end: int) -> str:
    """Bytes `start` to `end` of a document's text. Raises SourceError."""
    from kvwise.digest.place import text_file  # noqa: PLC0415

    try:
        return text_file(shelf.path.parent, document).read(start, end)
    except OSError as error:
        raise SourceError(
            "{path} cannot be read: {why}", path=document.source, why=error.strerror,
            hint="the text of {path} is needed, put it back",
        ) from error  # fmt: skip
