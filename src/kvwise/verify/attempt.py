"""One real load and generation: started, heard, filled, measured, stopped."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from kvwise.device import Device
from kvwise.engine.find import Engine
from kvwise.engine.loaded import Loaded
from kvwise.engine.outcome import EngineEnded, Outcome
from kvwise.engine.process import Limits
from kvwise.engine.server import Server
from kvwise.engine.settings import Run
from kvwise.errors import EngineError
from kvwise.launch import Launch
from kvwise.text import Phrase
from kvwise.units import MIB
from kvwise.verify.compare import Row, engine_devices, engine_features
from kvwise.verify.filling import fill

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class CardUse:
    """Bytes free on a card before the load, and while everything was loaded and used, as the
    engine itself printed them (whole MiB); None = it did not say."""

    name: str
    free_before: int
    free_full: int | None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of the engine's process: resident when it was ready and when its context was full,
    and of the latter what belongs to no file (None = the system does not tell); `available` is
    what the machine had before the start."""

    ready: int
    full: int
    own: int | None
    available: int
    cards: tuple[CardUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """The machine as the engine saw it: its GPUs, and processor features (None = not said)."""

    devices: tuple[Device, ...]
    features: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run: what was generated, or why it failed. `seconds` from start to end, `load_s` until
    it was ready; `busy_cores` = cores that others kept busy before the start."""

    number: int
    seconds: float
    text: str = ""
    tokens: int = 0
    prompt_tokens: int = 0
    prompt_per_s: float | None = None
    decode_per_s: float | None = None
    peak_rss_bytes: int = 0
    error: Phrase | None = None
    outcome: Outcome | None = None
    rows: tuple[Row, ...] = ()
    log: str | None = None
    load_s: float | None = None
    memory: MemoryUse | None = None
    busy_cores: float = 0.0
    seen: Seen | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None


@dataclass(frozen=True, slots=True)
class Trial:
    """One launch to be tried: with a `prompt`, or with `fill` tokens in each slot."""

    path: str
    launch: Launch
    engine: Engine
    run: Run
    limits: Limits
    prompt: str
    n_predict: int
    fill: int | None = None

    def attempt(self, number: int, log: Path | None) -> tuple[Attempt, Loaded | None]:
        """Load, generate, stop; a failure is part of the result."""
        attempt = Attempt(number, 0.0, log=str(log) if log else None, busy_cores=busy_cores())
        started = time.monotonic()
        server: Server | None = None
        try:
            available = int(psutil.virtual_memory().available)
            server = Server.start(
                self.path, self.launch, engine=self.engine, run=self.run, log=log,
                limits=self.limits,
            )  # fmt: skip
            attempt = replace(attempt, load_s=time.monotonic() - started)
            ready = _resident(server.child.pid)[0]
            attempt = self._generate(server, attempt)
            _check_devices(server)
            full, own = _resident(server.child.pid)
            outcome = server.stop()
            memory = MemoryUse(ready, full, own, available, cards_of(server.loaded))
            error = None if outcome.clean else outcome.sentence
            attempt = replace(attempt, outcome=outcome, error=error, memory=memory)
        except EngineError as error:
            ended = error.outcome if isinstance(error, EngineEnded) else None
            attempt = replace(attempt, error=error.phrase, outcome=ended)
        finally:
            if server is not None:
                server.close()
        peak = attempt.outcome.peak_rss_bytes if attempt.outcome else 0
        attempt = replace(attempt, seconds=time.monotonic() - started, peak_rss_bytes=peak)
        loaded = server.loaded if server is not None else None
        if loaded is not None:
            seen = Seen(engine_devices(loaded), engine_features(loaded))
            attempt = replace(attempt, seen=seen)
        return attempt, loaded

    def _generate(self, server: Server, attempt: Attempt) -> Attempt:
        if self.fill is not None:
            got = fill(server, self.launch, self.fill, self.n_predict)
            return replace(
                attempt,
                text=got.text,
                tokens=got.tokens,
                prompt_tokens=got.prompt_tokens,
                prompt_per_s=got.prompt_per_s,
                decode_per_s=got.decode_per_s,
            )
        if self.launch.embeddings:
            vectors = server.embed([self.prompt])
            return replace(attempt, text=f"{len(vectors[0])} dimensions")
        answer = server.complete(self.prompt, self.n_predict)
        return replace(
            attempt,
            text=answer.text,
            tokens=answer.tokens,
            prompt_tokens=answer.prompt_tokens,
            prompt_per_s=answer.prompt_per_s,
            decode_per_s=answer.decode_per_s,
        )


def free_cores() -> int:
    """Cores that nobody uses now, at least 1 and never all.

    The engine's threads wait for each other by spinning: with as many threads as cores and any
    other work on them, generation was measured 50 times slower.
    """
    cores = os.cpu_count() or 2
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1, min(cores - 1, cores - round(load)))


def busy_cores() -> float:
    """How many cores are busy while this process waits."""
    return psutil.cpu_percent(interval=_LOOK_S) / 100 * (os.cpu_count() or 1)


def cards_of(loaded: Loaded) -> tuple[CardUse, ...]:
    """What the engine printed of each card's free memory: at its start, and before its end."""
    last = {row.name.partition(" ")[0]: row.free for row in loaded.breakdown}
    found = []
    for used in loaded.devices:
        free = last.get(used.name)
        found.append(
            CardUse(used.name, used.free.units * MIB, None if free is None else free.units * MIB)
        )
    return tuple(found)


def _resident(pid: int) -> tuple[int, int | None]:
    """Resident bytes of a process, and those that belong to no file (where the system tells)."""
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return 0, None
    shared = getattr(memory, "shared", None)
    return int(memory.rss), None if shared is None else int(memory.rss - shared)


def _check_devices(server: Server) -> None:
    missing = server.missing_devices()
    if missing:
        raise EngineError("the engine runs without {devices}", devices=", ".join(missing))
