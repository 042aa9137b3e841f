"""What a run comes to, said before anything is embedded: from its first chunks, and from what the
same engine did here earlier."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from kvwise.digest.chunker import Chunk
from kvwise.digest.session import Session
from kvwise.here import devices
from kvwise.results import (
    Measurement,
    Sample,
    engine_seen,
    load,
    machine_seen,
    memory_of,
    model_seen,
    save,
    settings_seen,
)
from kvwise.store import Store

UNIT = "tokens/s"
LOOKED_AT = 16
"""Chunks of a text by which the rest is judged."""
LEAST = 8
"""Chunks that must have been embedded for their speed to be kept."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """`size` bytes of documents come to about `chunks`, of which `there` are kept, and to about
    `tokens` for the others; all estimated."""

    size: int
    chunks: int
    there: int
    tokens: int

    @classmethod
    def of(cls, first: Iterable[Chunk], text_size: int, size: int, there: int) -> Forecast:
        """From the first chunks of a text of `text_size` bytes; `size` of all documents."""
        end = number = tokens = 0
        for chunk in first:
            end, number, tokens = chunk.end, number + 1, tokens + chunk.tokens
        if not number:
            return cls(size, 0, there, 0)
        share = min(1.0, end / max(1, text_size))
        whole = share >= 1.0 and text_size >= size
        chunks = number if whole else max(number, round(number * size / max(1, end)))
        left = max(0, chunks - there)
        return cls(size, chunks, there, round(left * tokens / number))

    def seconds(self, rate: float | None) -> float | None:
        """At so many tokens per second; None where that is unknown."""
        return self.tokens / rate if rate else None


def measurement(
    session: Session, done: Sample | None = None, chunks: int | None = None
) -> Measurement:
    """The record of a run on this machine's engine: `done` = its speed over so many `chunks`, None
    for the question alone (its identity finds earlier answers)."""
    now, settings = time.time(), session.settings
    samples = () if done is None else (done,)
    return Measurement(
        kind="embedding",
        at=now,
        machine=machine_seen(devices(session.engine)),
        engine=engine_seen(session.engine),
        model=model_seen(session.model),
        settings=settings_seen(settings.launch),
        test={
            "metric": "embedding",
            "n_prompt": settings.chunk_tokens,
            "threads": session.asked.threads,
        },
        samples=samples,
        figures={"memory": memory_of(settings.ledger), "chunks": chunks},
    )


def earlier_rate(asked: Measurement) -> float | None:
    """Tokens per second of the last time that the same was measured; None if it never was."""
    with Store() as store:
        found = load(store, kind="embedding", identity=asked.identity)
    return found[-1].median if found else None


def keep(done: Measurement) -> None:
    """In kvwise.db, for the next forecast and for reports. Raises StoreError."""
    with Store() as store:
        save(store, done)
