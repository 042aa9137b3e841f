"""Engines that embed: each takes two batches at once, so that none waits for the next request.

A server of our own that dies is started again a few times; one that a user named and that no
longer answers is left out, and what it had in hand goes to another.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol

from kvwise.digest.engines import Remote, embed
from kvwise.engine.server import RequestRefused, Server
from kvwise.errors import EngineError

IN_HAND = 2
"""Batches per engine: one that is computed, one that waits in the server's queue."""
_STARTS = 3


class Station(Protocol):
    """One engine, wherever it runs."""

    name: str

    def embed(self, batch: Sequence[Sequence[int]]) -> list[bytes]:
        """A vector per token list. Raises EngineError, RequestRefused when it refuses the batch."""

    def revive(self) -> bool:
        """Try to get it back after an error; False = it is lost."""

    def close(self) -> None:
        """Give it up."""


class Own:
    """A server that we started and start again. `server` is what answers now."""

    def __init__(self, start: Callable[[], Server], normalize: int = 2) -> None:
        self._start, self._normalize = start, normalize
        self._lock = Lock()
        self._starts = 1
        self.server = start()
        self.name = self.server.url

    def embed(self, batch: Sequence[Sequence[int]]) -> list[bytes]:
        return embed(self.server, batch, self._normalize)

    def revive(self) -> bool:
        with self._lock:
            if self.server.child.alive:  # the other batch's thread was here before
                return True
            if self._starts >= _STARTS:
                return False
            self._starts += 1
            self.server.close()
            self.server = self._start()
            return True

    def close(self) -> None:
        self.server.close()


class Named:
    """A server of the user's."""

    def __init__(self, url: str, normalize: int = 2) -> None:
        self.server, self.name, self._normalize = Remote(url), url, normalize

    def embed(self, batch: Sequence[Sequence[int]]) -> list[bytes]:
        return embed(self.server, batch, self._normalize)

    def revive(self) -> bool:
        try:
            self.server.get("/health")
        except EngineError:
            return False
        return True

    def close(self) -> None:
        self.server.close()


class Stations:
    """All of them behind one call, for as many threads as `width`."""

    def __init__(self, stations: Sequence[Station]) -> None:
        self._all = list(stations)
        self._idle: queue.Queue[Station | None] = queue.Queue()
        self._lost: set[int] = set()
        self._lock = Lock()
        self.lost_names: list[str] = []
        for _ in range(IN_HAND):
            for station in self._all:
                self._idle.put(station)

    @property
    def width(self) -> int:
        return IN_HAND * len(self._all)

    def embed(self, batch: Sequence[Sequence[int]]) -> list[bytes]:
        """By whichever is free. Raises RequestRefused, EngineError when none is left."""
        error: EngineError | None = None
        for _ in range(self.width * (_STARTS + 1)):
            station = self._idle.get()
            if station is None:
                self._idle.put(None)
                break
            if id(station) in self._lost:
                continue
            try:
                vectors = station.embed(batch)
            except RequestRefused:
                self._idle.put(station)
                raise
            except EngineError as failed:
                error = failed
                self._after(station)
            else:
                self._idle.put(station)
                return vectors
        raise error or EngineError("no engine is left that answers")

    def _after(self, station: Station) -> None:
        try:
            alive = station.revive()
        except EngineError:
            alive = False
        with self._lock:
            if alive:
                self._idle.put(station)
            elif id(station) not in self._lost:
                self._lost.add(id(station))
                self.lost_names.append(station.name)
                if len(self._lost) == len(self._all):
                    self._idle.put(None)  # wakes whoever waits

    def close(self) -> None:
        for station in self._all:
            station.close()
