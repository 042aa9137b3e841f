"""Documents to vectors: cut, embed, keep; each chunk is on the disk before it counts as done."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from kvwise.digest.chunker import Chunk, Chunker, Rules, Tokenizer
from kvwise.digest.extract import Marks, Place, headings, kind_of, prepare, shown
from kvwise.digest.forecast import LOOKED_AT, Forecast
from kvwise.digest.reading import Window
from kvwise.digest.shelf import FINISHED, RUNNING, Document, KnownChunks, Shelf, key_of
from kvwise.digest.sources import Source
from kvwise.digest.stations import Stations
from kvwise.errors import Interrupted, KvwiseError, SourceError
from kvwise.text import Phrase

_BATCH_TOKENS, _LARGE_BATCH_TOKENS = 512, 8192
"""Short chunks go several in a request: at 100 tokens a request of its own costs 7-10 %."""
_BATCH_S = 0.3
"""A fast engine gets more: so much of its time, which is what a kill can lose."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How far it is: `done` of `total` source bytes; `tokens` embedded in `seconds` by this
    process, `left_s` to go, None while nothing was embedded."""

    document: str
    done: int
    total: int
    chunks: int
    tokens: int
    seconds: float
    left_s: float | None


Progress = Callable[[Pace], None]


@dataclass(slots=True)
class Summary:
    """What this process did. `embedded` chunks of `tokens` went through an engine in `seconds`;
    `kept` were there before. `skipped` = documents that could not be read, with the reason."""

    chunks: int = 0
    embedded: int = 0
    kept: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skipped: tuple[tuple[str, Phrase], ...] = ()


@dataclass(slots=True)
class _Batch:
    """Chunks in an engine's hands."""

    chunks: list[tuple[Chunk, Place, str]]
    vectors: Future[list[bytes]]


class Digest:
    """One run over documents. `folder` holds the texts of documents that are not plain text."""

    def __init__(
        self, shelf: Shelf, folder: Path, tokenizer: Tokenizer, rules: Rules, stations: Stations,
        *, encoding: str | None = None, progress: Progress | None = None,
        tell_plan: Callable[[Forecast], None] | None = None,
    ) -> None:  # fmt: skip
        self._shelf, self._folder, self._tokenizer, self._rules = shelf, folder, tokenizer, rules
        self._stations, self._encoding = stations, encoding
        self._progress = progress or (lambda _pace: None)
        self._tell_plan = tell_plan
        self._summary = Summary()
        self._pending: deque[_Batch] = deque()
        self._open: list[tuple[Chunk, Place, str]] = []
        self._began = time.monotonic()
        self._total = self._done = 0

    def run(self, documents: Sequence[Source]) -> Summary:
        """All of them. A document that cannot be read is left out and told, unless it is the only
        one. Raises Interrupted on Ctrl-C; EngineError; SourceError."""
        self._total = sum(source.size for source in documents)
        skipped: list[tuple[str, Phrase]] = []
        with ThreadPoolExecutor(self._stations.width) as threads:
            try:
                for source in documents:
                    try:
                        self._document(source, threads)
                    except SourceError as error:
                        if len(documents) == 1:
                            raise
                        skipped.append((source.name, error.phrase))
                    self._done += source.size
            except BaseException as error:
                for batch in self._pending:
                    batch.vectors.cancel()
                self._stations.close()
                if isinstance(error, KeyboardInterrupt):
                    raise self._interrupted() from None
                raise
        self._summary.seconds = time.monotonic() - self._began
        self._summary.skipped = tuple(skipped)
        return self._summary

    def _interrupted(self) -> KvwiseError:
        return Interrupted(
            "stopped: {chunks} chunks are done", chunks=self._summary.chunks,
            hint="the same command goes on from there",
        )  # fmt: skip

    # -- a document ----------------------------------------------------------------------------

    def _document(self, source: Source, threads: ThreadPoolExecutor) -> None:
        stamp = source.stamp()
        old = self._shelf.document(source.name)
        if old and old.state == FINISHED and old.stamp == stamp:
            self._summary.chunks += old.chunks
            self._summary.kept += old.chunks
            return
        text, marks_file = prepare(source.path, self._folder, source.name, self._encoding)
        own = text.path != source.path
        ours = str(text.path.relative_to(self._folder)) if own else None
        self._shelf.begin(
            Document(
                source.name, shown(str(source.path.resolve())), kind_of(source.path), stamp,
                RUNNING, ours, text.encoding, text.start,
            )
        )  # fmt: skip
        size = max(1, text.path.stat().st_size)
        known = KnownChunks(self._shelf, source.name)
        marks, starts, count = Marks(marks_file), headings(marks_file), 0
        with Window(text) as window:
            chunks = iter(Chunker(window, self._tokenizer, self._rules, known, starts))
            for chunk in self._planned(chunks, size):
                place = marks.of(chunk.start, chunk.end)
                self._take(source.name, chunk, place, threads)
                count = chunk.seq + 1
                self._tell(source, chunk.end / size)
        marks.close()
        self._send(source.name, threads)
        while self._pending:
            self._collect(source.name)
        self._shelf.finish(source.name, count)

    def _planned(self, chunks: Iterator[Chunk], size: int) -> Iterator[Chunk]:
        """The chunks of a text of `size` bytes; what is ahead is told, once, before the first one
        is embedded."""
        if self._tell_plan is None:
            return chunks
        first = list(islice(chunks, LOOKED_AT))
        there = sum(document.chunks for document in self._shelf.documents())
        self._tell_plan(Forecast.of(first, size, self._total, there))
        self._tell_plan = None
        return chain(first, chunks)

    def _take(self, name: str, chunk: Chunk, place: Place, threads: ThreadPoolExecutor) -> None:
        self._summary.chunks += 1
        key = chunk.old.vector if chunk.old else key_of(chunk.ids or ())
        if chunk.old or self._shelf.has_vector(key):
            if not self._shelf.kept(name, chunk):
                self._shelf.keep(name, chunk, place, key)
            self._summary.kept += 1
            return
        self._open.append((chunk, place, key))
        if sum(each.tokens for each, _, _ in self._open) + chunk.tokens > self._batch_tokens():
            self._send(name, threads)

    def _batch_tokens(self) -> int:
        rate = self._summary.tokens / max(time.monotonic() - self._began, 1e-3)
        return max(_BATCH_TOKENS, min(_LARGE_BATCH_TOKENS, round(rate * _BATCH_S)))

    def _send(self, name: str, threads: ThreadPoolExecutor) -> None:
        if not self._open:
            return
        while len(self._pending) > self._stations.width:
            self._collect(name)
        ids = [chunk.ids or () for chunk, _, _ in self._open]
        self._pending.append(_Batch(self._open, threads.submit(self._stations.embed, ids)))
        self._open = []

    def _collect(self, name: str) -> None:
        """Wait for the oldest batch and keep it."""
        batch = self._pending.popleft()
        for (chunk, place, key), vector in zip(batch.chunks, batch.vectors.result(), strict=True):
            self._shelf.keep(name, chunk, place, key, vector)
            self._summary.embedded += 1
            self._summary.tokens += chunk.tokens

    def _tell(self, source: Source, share: float) -> None:
        summary = self._summary
        done = self._done + round(source.size * min(1.0, share))
        seconds = time.monotonic() - self._began
        left = seconds * (self._total - done) / done if summary.tokens and done else None
        self._progress(
            Pace(source.name, done, self._total, summary.chunks, summary.tokens, seconds, left)
        )
