"""From what was asked to a running digest: engine, tokenizer, rules, database, each checked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kvwise.digest.by_words import ByWords, whole_words
from kvwise.digest.chunker import Rules
from kvwise.digest.engines import Answers, EngineTokenizer, bytes_to_floats
from kvwise.digest.fitting import Settings
from kvwise.digest.on_ray import OnRay, Spec
from kvwise.digest.on_ray import stations as on_ray
from kvwise.digest.pool import cosine
from kvwise.digest.search import Question
from kvwise.digest.shelf import Shelf
from kvwise.digest.stations import Named, Own, Stations
from kvwise.engine.find import Engine
from kvwise.engine.process import Limits
from kvwise.engine.server import SILENCE_S, Server
from kvwise.engine.settings import Run
from kvwise.errors import UsageError
from kvwise.gguf.model import Model

_HEADER = 1 << 20
_SAME = 0.999
"""Cosine of one text's vectors from two servers that have the same model."""
_PROBE = "The key-value cache of a language model holds one row per token."


@dataclass(frozen=True, slots=True)
class Asked:
    """How documents are to be cut and embedded. `servers` = URLs to use instead of starting one."""

    overlap: int = 0
    borders: str = "sentence"
    normalize: int = 2
    chunk_prefix: str = ""
    query_prefix: str = ""
    threads: int = 0
    servers: tuple[str, ...] = ()
    ray: str | None = None  # address of a cluster, empty = the one here


class Session:
    """Running engines and what goes with them. Use as a context manager.

    Raises EngineError when the engine does not come up, UsageError when what it says does not go
    together with what was asked.
    """

    def __init__(
        self, model: Model, settings: Settings, asked: Asked, engine: Engine, log: Path
    ) -> None:
        self.model, self.settings, self.asked, self.engine = model, settings, asked, engine

        def start() -> Server:
            return Server.start(
                model.path, settings.launch, engine=engine, run=Run(threads=asked.threads), log=log,
                limits=Limits(silence_s=SILENCE_S),
            )  # fmt: skip

        self._stations: list[Own | Named | OnRay] = []
        try:
            if asked.servers:
                self._stations += [Named(url, asked.normalize) for url in asked.servers]
            elif asked.ray is not None:
                self._stations += on_ray(asked.ray, self._spec())
            else:
                self._stations.append(Own(start, asked.normalize))
            first: Answers = self._stations[0].server
            kind = ByWords if whole_words(model.path) else EngineTokenizer
            self.tokenizer = kind(first, asked.chunk_prefix)
            self._query = kind(first, asked.query_prefix)
            self.rules = Rules(
                settings.chunk_tokens, self.tokenizer.special(), asked.overlap, asked.borders
            )
            self._check_servers()
        except BaseException:
            self.close()
            raise
        self.stations = Stations(self._stations)

    def _spec(self) -> Spec:
        settings, asked = self.settings, self.asked
        engine = None if self.engine.kind == "embedded" else self.engine.path
        return Spec(
            str(Path(self.model.path).resolve()), settings.launch.as_dict(), settings.chunk_tokens,
            engine, asked.threads, asked.normalize,
        )  # fmt: skip

    def _check_servers(self) -> None:
        """That all servers have the same model, and take chunks of this size."""
        if not self.asked.servers:
            return
        ids = self._query.ids(_PROBE)
        first = bytes_to_floats(self._stations[0].embed([ids])[0])
        if len(first) != (self.model.n_embd_out or self.model.n_embd):
            raise UsageError(
                "{url} has another model than {name}: its vectors have {width} values",
                url=self._stations[0].name, name=self.model.called, width=len(first),
            )  # fmt: skip
        for station in self._stations[1:]:
            other = bytes_to_floats(station.embed([ids])[0])
            same = len(other) == len(first) and cosine(first, other) >= _SAME
            if not same:
                raise UsageError(
                    "{one} and {other} give different vectors for the same text",
                    one=self._stations[0].name, other=station.name,
                    hint="start all servers with the same model and the same --pooling",
                )  # fmt: skip

    @property
    def pid(self) -> int | None:
        """The process of an engine of our own."""
        first = self._stations[0]
        return first.server.child.pid if isinstance(first, Own) else None

    def about(self) -> dict[str, Any]:
        """What decides the vectors; the machine and its paths do not."""
        engine = ["servers"] if self.asked.servers else [self.engine.kind, self.engine.build]
        return {
            "embedding model": fingerprint(self.model),
            "engine": engine,
            "pooling": self.settings.pooling,
            "chunk tokens": self.rules.limit,
            "overlap": self.rules.overlap,
            "borders": self.rules.borders,
            "normalize": self.asked.normalize,
            "chunk prefix": self.asked.chunk_prefix,
        }

    def engine_place(self) -> str:
        """Where a llama-server lies that we started; empty for any other engine."""
        ours = self.engine.kind == "binary" and not self.asked.servers
        return str(Path(self.engine.path).resolve()) if ours else ""

    def query(self, text: str) -> Sequence[float]:
        """The vector of a question. Raises UsageError when it is longer than the engine takes."""
        ids = self._query.ids(text)
        if len(ids) > self.settings.chunk_tokens:
            raise UsageError(
                "the question has {tokens} tokens, the engine takes {limit}",
                tokens=len(ids), limit=self.settings.chunk_tokens,
            )  # fmt: skip
        return bytes_to_floats(self.stations.embed([ids])[0])

    def question(self, text: str) -> Question:
        """What `Finder` needs to look for it. Raises UsageError."""
        limit = self.settings.chunk_tokens
        return Question(text, self.query(text), self.tokenizer, self.stations.embed, limit)

    def close(self) -> None:
        for station in self._stations:
            station.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def open_shelf(folder: Path, session: Session, *, fresh: bool = False) -> Shelf:
    """The database of an output folder, made for this session or found to be of the same kind.

    Raises StoreError, UsageError.
    """
    shelf = Shelf(folder)
    try:
        shelf.agree(session.about(), fresh=fresh)
        shelf.used(str(Path(session.model.path).resolve()), session.engine_place())
    except BaseException:
        shelf.close()
        raise
    return shelf


def fingerprint(model: Model) -> list[Any]:
    """Name, size and a hash of the start of a model's file, wherever it lies."""
    path = Path(model.path)
    with path.open("rb") as file:
        head = hashlib.sha256(file.read(_HEADER)).hexdigest()[:16]
    return [model.called, path.stat().st_size, head]
