"""N real loads and generations of one launch, each beside the ledger."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvwise.device import Device, Host
from kvwise.engine.find import Engine, find
from kvwise.engine.loaded import Loaded
from kvwise.engine.outcome import EngineEnded, Outcome
from kvwise.engine.process import Limits
from kvwise.engine.server import SILENCE_S, Server, command
from kvwise.engine.settings import Run
from kvwise.errors import DoesNotFit, EngineError, KvwiseError, UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import ComputeMode, account
from kvwise.memory.ledger import Ledger
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.probe.host import host as this_host
from kvwise.simulate import simulation
from kvwise.text import Phrase
from kvwise.tiers import Tiers, tiers
from kvwise.units import mib
from kvwise.verify.compare import (
    Row,
    compare,
    engine_devices,
    engine_features,
    measured_ledger,
    with_simulated,
)

PROMPT = "The key-value cache of a language model holds"
Progress = Callable[[int, int], None]
"""Called before each run with its number from 0, and how many there are."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run: what was generated, or why it failed. `seconds` from start to end."""

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

    @property
    def failed(self) -> bool:
        return self.error is not None


@dataclass(frozen=True, slots=True)
class Verification:
    """Everything that came out. `rows` are those of the first run that loaded.

    `simulated` is the engine's own no-alloc pass beside our figures; without it, `unsimulated` says
    why when it was asked for.
    """

    computed: Ledger
    measured: Ledger | None
    rows: tuple[Row, ...]
    attempts: tuple[Attempt, ...]
    engine: Engine
    argv: tuple[str, ...]
    simulated: Tiers | None = None
    unsimulated: Phrase | None = None

    @property
    def differs(self) -> bool:
        """Does any weights, cache or output line of any run differ, or was none measured?"""
        measured = [attempt.rows for attempt in self.attempts if attempt.rows]
        return not measured or any(
            row.decisive and not row.agrees for rows in measured for row in rows
        )

    @property
    def failures(self) -> int:
        """Runs that did not load and generate."""
        return sum(attempt.failed for attempt in self.attempts)

    @property
    def misjudged(self) -> tuple[Row, ...]:
        """Compute buffers that the engine's own pass got wrong, and we did not."""
        return tuple(row for row in self.rows if row.engine_misjudged)

    @property
    def holds(self) -> bool:
        """The answer is yes: every run generated, and no deciding line differs."""
        return not self.differs and not self.failures


def verify(
    model: Model,
    launch: Launch,
    *,
    engine: Engine | None = None,
    devices: Sequence[Device] | None = None,
    host: Host | None = None,
    runs: int = 1,
    prompt: str = PROMPT,
    n_predict: int = 16,
    threads: int = 0,
    logs: Path | None = None,
    compute_mode: ComputeMode = "reserved",
    simulate: bool = False,
    progress: Progress | None = None,
    limits: Limits | None = None,
    companions: Companions = NONE,
) -> Verification:
    """Load `model` from disk with exactly `launch` and generate, `runs` times.

    The rules are those of the engine's build when it is known. `devices` None = those that the
    engine says it uses. `simulate` puts its own no-alloc pass beside both. Raises DoesNotFit when
    the host would run out of memory, UsageError for what the engine cannot be told, Refused when
    llama.cpp would refuse; a run that fails is counted, not raised.
    """
    path = _path_of(model)
    engine = engine or find()
    if engine.build:
        launch = replace(launch, build=engine.build)
    host = host or this_host()
    given = None if devices is None else tuple(devices)
    sums = _Sums(model, launch, given, host, compute_mode, companions)
    expected = sums.ledger(devices or ())
    if not devices:
        _check_host(expected, host)
    limits = limits or Limits(silence_s=SILENCE_S, available_bytes=_available)
    run = Run(threads=threads or free_cores())
    job = _Job(path, launch, engine, run, limits, prompt, n_predict)
    attempts: list[Attempt] = []
    first: tuple[Ledger, tuple[Row, ...]] | None = None
    for number in range(runs):
        if progress:
            progress(number, runs)
        attempt, loaded = job.attempt(number, logs / f"run-{number + 1}.log" if logs else None)
        if loaded is not None and loaded.main is not None and loaded.main.used:
            ledger = sums.beside(loaded)
            attempt = replace(attempt, rows=compare(ledger, loaded))
            first = first or (ledger, attempt.rows)
        attempts.append(attempt)
    computed, rows = first or (expected, ())
    measured = measured_ledger(computed, rows) if first else None
    beside, why = _simulated(path, computed, engine, host) if simulate and first else (None, None)
    if beside is not None:
        rows = with_simulated(rows, beside.simulation)
    argv = tuple(command(path, launch, engine, job.run))
    return Verification(computed, measured, rows, tuple(attempts), engine, argv, beside, why)


def _simulated(
    path: str, computed: Ledger, engine: Engine, host: Host
) -> tuple[Tiers | None, Phrase | None]:
    """The engine's pass on the devices that it used, or why there is none."""
    try:
        said = simulation(
            path, computed.launch, computed.devices, engine=engine, host=host, own=True
        )
        return tiers(said, host), None
    except KvwiseError as error:
        return None, error.phrase


def _check_devices(server: Server) -> None:
    missing = server.missing_devices()
    if missing:
        raise EngineError("the engine runs without {devices}", devices=", ".join(missing))


def _available() -> int:
    return this_host().available_bytes


def free_cores() -> int:
    """Cores that nobody uses now, at least 1 and never all.

    The engine's threads wait for each other by spinning: with as many threads as cores and any
    other work on them, generation was measured 50 times slower.
    """
    cores = os.cpu_count() or 2
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1, min(cores - 1, cores - round(load)))


@dataclass(frozen=True, slots=True)
class _Sums:
    """What the ledger is made from."""

    model: Model
    launch: Launch
    devices: tuple[Device, ...] | None
    host: Host
    compute_mode: ComputeMode
    companions: Companions

    def ledger(self, devices: Sequence[Device]) -> Ledger:
        return account(
            self.model,
            self.launch,
            devices,
            host=self.host,
            compute_mode=self.compute_mode,
            companions=self.companions,
        )

    def beside(self, loaded: Loaded) -> Ledger:
        """For the machine as the engine saw it: its GPUs, and what it was compiled to use."""
        features, seen = engine_features(loaded), self
        if features is not None:
            host = replace(self.host, cpu_features=features)
            launch = replace(self.launch, repack=self.launch.repack and bool(features))
            seen = replace(self, host=host, launch=launch)
        return seen.ledger(engine_devices(loaded) if self.devices is None else self.devices)


@dataclass(frozen=True, slots=True)
class _Job:
    """One launch to be run several times."""

    path: str
    launch: Launch
    engine: Engine
    run: Run
    limits: Limits
    prompt: str
    n_predict: int

    def attempt(self, number: int, log: Path | None) -> tuple[Attempt, Loaded | None]:
        """Load, generate, stop; a failure is part of the result."""
        started = time.monotonic()
        attempt = Attempt(number, 0.0, log=str(log) if log else None)
        server: Server | None = None
        try:
            server = Server.start(
                self.path, self.launch, engine=self.engine, run=self.run, log=log,
                limits=self.limits,
            )  # fmt: skip
            attempt = self._generate(server, attempt)
            _check_devices(server)
            outcome = server.stop()
            error = None if outcome.clean else outcome.sentence
            attempt = replace(attempt, outcome=outcome, error=error)
        except EngineError as error:
            ended = error.outcome if isinstance(error, EngineEnded) else None
            attempt = replace(attempt, error=error.phrase, outcome=ended)
        finally:
            if server is not None:
                server.close()
        peak = attempt.outcome.peak_rss_bytes if attempt.outcome else 0
        attempt = replace(attempt, seconds=time.monotonic() - started, peak_rss_bytes=peak)
        return attempt, server.loaded if server is not None else None

    def _generate(self, server: Server, attempt: Attempt) -> Attempt:
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


def _path_of(model: Model) -> str:
    path = Path(model.path)
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError:
        magic = b""
    if magic != b"GGUF":
        raise UsageError(
            "{path} is no GGUF file on this machine",
            path=model.path, hint="verify loads the real weights",
        )  # fmt: skip
    return str(path)


def _check_host(ledger: Ledger, host: Host) -> None:
    """The engine takes all of the host's memory for free and is killed when it is not
    (it sees no container limit): say so before."""
    line = ledger.host
    needed = line.context_bytes + line.compute_bytes + line.output_bytes
    needed += sum(part.weights_bytes for part in line.parts if not part.buffer.endswith("_Mapped"))
    if host.available_bytes and needed > host.available_bytes:
        raise DoesNotFit(
            "this needs {needed} of the host's memory and {available} are available",
            needed=mib(needed), available=mib(host.available_bytes),
            hint="take a smaller context (-c)",
        )  # fmt: skip
