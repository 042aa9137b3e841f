"""The chunks that answer a question: by their vectors, by its words, then passage by passage.

A vector finds what a chunk is about, words find names and numbers: both rank all chunks, in one
pass over the store, and their scores are added. The best chunks are then looked at in passages of a
few sentences, whose vectors are sharper than that of all of a chunk.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kvwise.digest.chunker import Tokenizer
from kvwise.digest.engines import bytes_to_floats
from kvwise.digest.lexical import Words, fused
from kvwise.digest.passages import PASSAGE_TOKENS, spans
from kvwise.digest.place import text_file
from kvwise.digest.pool import cosine, unit
from kvwise.digest.reading import readable
from kvwise.digest.shelf import Document, Row, Shelf
from kvwise.digest.sources import stamp_of
from kvwise.errors import SourceError
from kvwise.oserrors import reason_of
from kvwise.text import Phrase, phrase, template

_LOOKED_AT, _WIDER = 8, 2
"""Chunks whose passages are looked at: so many, or so many for each one wanted."""
_CHANGED = template("{path} has changed since its chunks were made")
_AGAIN = template("name it in this command, or digest it again: only what changed is made anew")
_SAME = 0.95
"""Cosine from which two passages say the same."""

Embed = Callable[[Sequence[Sequence[int]]], Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage of a chunk: bytes `start` to `end` of the document's text. `score` = its cosine to
    the question, `words` = the share of what the question asks for by name that stands in it."""

    row: Row
    start: int
    end: int
    text: str
    score: float
    words: float
    vector: array[float]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and what makes vectors: of it, and of passages of at most `limit` tokens."""

    text: str
    vector: Sequence[float]
    tokenizer: Tokenizer
    embed: Embed
    limit: int


class Finder:
    """Ranks what is in a folder for one question."""

    def __init__(self, shelf: Shelf, question: Question) -> None:
        self._shelf, self._question = shelf, question
        self._texts = _Texts(shelf)
        self._words = Words(question.text)
        self._weights: dict[str, float] = {}  # of its terms among all chunks

    def chunks(self, number: int) -> list[tuple[Row, float]]:
        """The best chunks by vectors and words with their worth, best first. Raises SourceError."""
        asked, cosines = unit(self._question.vector), array("d")
        for row in self._shelf.chunks():
            cosines.append(cosine(asked, bytes_to_floats(self._shelf.vector(row.vector))))
            self._words.add(self._texts.of(row), row.tokens)
        worth = fused(cosines, self._words.scores())
        order = sorted(range(len(worth)), key=lambda at: -worth[at])[:number]
        wanted = set(order)
        rows = {at: row for at, row in enumerate(self._shelf.chunks()) if at in wanted}
        return [(rows[at], worth[at]) for at in order]

    def passages(self, number: int) -> list[Hit]:
        """The best passage of each of the best chunks, best first. Raises SourceError."""
        chunks = self.chunks(max(_LOOKED_AT, _WIDER * number))
        self._weights = self._words.weights()
        looked = [(self._best(row), worth) for row, worth in chunks]
        kept = [(hit, worth) for hit, worth in looked if hit.text.strip()]  # not of spaces alone
        best = [hit for hit, _ in kept]
        worth = fused(
            [worth for _, worth in kept], [hit.score for hit in best], [hit.words for hit in best]
        )
        order = sorted(range(len(best)), key=lambda at: -worth[at])
        return [best[at] for at in order[:number]]

    def _best(self, row: Row) -> Hit:
        """The passage of a chunk that is nearest and has most of the words."""
        asked, text = self._question, self._texts.of(row)
        places = spans(text, asked.tokenizer, min(PASSAGE_TOKENS, asked.limit // 2))
        ids = [asked.tokenizer.ids(text[start:end]) for start, end in places]
        short = [at for at, each in enumerate(ids) if len(each) <= asked.limit]
        vectors = asked.embed([ids[at] for at in short]) if short else []
        hits = [
            self._hit(row, text, places[at], vector)
            for at, vector in zip(short, vectors, strict=True)
        ]
        hits = hits or [self._hit(row, text, (0, len(text)), self._shelf.vector(row.vector))]
        return max(hits, key=lambda hit: hit.score + hit.words / 2)

    def _hit(self, row: Row, text: str, place: tuple[int, int], data: bytes) -> Hit:
        start, end = place
        vector, part = bytes_to_floats(data), readable(text[start:end])
        return Hit(
            row, *self._texts.bytes_of(row, text, start, end), part,
            cosine(unit(self._question.vector), vector),
            self._words.share(part, self._weights), vector,
        )  # fmt: skip


def different(hits: Sequence[Hit], number: int) -> list[Hit]:
    """The first of them that do not say what one before them says."""
    taken: list[Hit] = []
    for hit in hits:
        if all(cosine(hit.vector, other.vector) < _SAME for other in taken):
            taken.append(hit)
    return list(islice(taken, number))


class _Texts:
    """Texts of chunks, of which the bytes can be counted."""

    def __init__(self, shelf: Shelf) -> None:
        self._folder = shelf.path.parent
        self._documents = {each.name: each for each in shelf.documents()}
        self._same: set[str] = set()  # documents that are what they were

    def of(self, row: Row) -> str:
        """Raises SourceError, also for a document that has changed: its offsets point nowhere."""
        document = self._documents[row.document]
        if document.name not in self._same:
            self._check(document)
        with _told(document):
            return text_file(self._folder, document).raw(row.start, row.end)

    def _check(self, document: Document) -> None:
        check_unchanged(document)
        self._same.add(document.name)

    def bytes_of(self, row: Row, text: str, start: int, end: int) -> tuple[int, int]:
        """Where characters of a chunk's text are in the document."""
        about = text_file(self._folder, self._documents[row.document])
        first = row.start + about.bytes(text[:start])
        return first, first + about.bytes(text[start:end])


def check_unchanged(document: Document) -> None:
    """Raises SourceError where the text that offsets count in is no longer what it was."""
    with _told(document):
        same = document.text is not None or stamp_of(Path(document.source)) == document.stamp
    if not same:
        raise SourceError(_CHANGED, path=document.source, hint=_AGAIN)


def outdated(document: Document) -> Phrase | None:
    """That what is kept of a document is older than its file, for answers that need no more than
    what is kept. None of a file that is not there: nobody changed it."""
    try:
        same = stamp_of(Path(document.source)) == document.stamp
    except OSError:
        return None
    return None if same else phrase("{problem}; {hint}", problem=phrase(_CHANGED,
           path=document.source), hint=phrase(_AGAIN))  # fmt: skip


def text_of(shelf: Shelf, row: Row) -> str:
    """The text of a chunk, from where its offsets point. Raises SourceError when it is gone."""
    document = shelf.document(row.document)
    assert document is not None  # noqa: S101 (a chunk has one)
    return read(shelf, document, row.start, row.end)


def read(shelf: Shelf, document: Document, start: int, end: int) -> str:
    """Bytes `start` to `end` of a document's text. Raises SourceError."""
    with _told(document):
        return text_file(shelf.path.parent, document).read(start, end)


@contextmanager
def _told(document: Document) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(
            "{path} cannot be read: {why}", path=document.source, why=reason_of(error),
            hint="the text of {path} is needed, put it back",
        ) from error  # fmt: skip
