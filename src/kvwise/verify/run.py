"""N real loads and generations of one launch, each beside the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvwise.device import Device, Host
from kvwise.engine.find import Engine, find
from kvwise.engine.process import Limits
from kvwise.engine.server import SILENCE_S, command
from kvwise.engine.settings import Run
from kvwise.errors import DoesNotFit, KvwiseError, UsageError
from kvwise.gguf.model import Model
from kvwise.jobs import Job, Pace
from kvwise.launch import Launch
from kvwise.memory.account import ComputeMode, account
from kvwise.memory.ledger import Ledger
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.probe.host import host as this_host
from kvwise.simulate import simulation
from kvwise.text import Phrase
from kvwise.tiers import Tiers, tiers
from kvwise.units import mib
from kvwise.verify.attempt import Attempt, Seen, Trial, free_cores
from kvwise.verify.codec import decode, encode
from kvwise.verify.compare import Row, compare, measured_ledger, with_simulated
from kvwise.verify.filling import room
from kvwise.verify.identity import stamp

PROMPT = "The key-value cache of a language model holds"
Progress = Callable[[Pace], None]
"""Called before each run, and at the end."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Everything that came out. `rows` are those of the first run that loaded.

    `simulated` is the engine's own no-alloc pass beside our figures; without it, `unsimulated` says
    why when it was asked for. `fill` = tokens sent to each slot, None for a short prompt.
    """

    computed: Ledger
    measured: Ledger | None
    rows: tuple[Row, ...]
    attempts: tuple[Attempt, ...]
    engine: Engine
    argv: tuple[str, ...]
    simulated: Tiers | None = None
    unsimulated: Phrase | None = None
    fill: int | None = None
    threads: int = 0

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
    full: bool = False,
    prompt_tokens: int | None = None,
    threads: int = 0,
    logs: Path | None = None,
    compute_mode: ComputeMode = "reserved",
    simulate: bool = False,
    progress: Progress | None = None,
    limits: Limits | None = None,
    companions: Companions = NONE,
    job: Job | None = None,
) -> Verification:
    """Load `model` from disk with exactly `launch` and generate, `runs` times.

    `full` fills every slot to its end, `prompt_tokens` so far. `job` keeps each run, so that what
    was interrupted goes on. The rules are those of the engine's build when it is known. `devices`
    None = those that the engine says it uses. `simulate` puts its own no-alloc pass beside both.
    Raises DoesNotFit when the host would run out of memory, UsageError for what the engine cannot
    be told, Refused when llama.cpp would refuse; a run that fails is counted, not raised.
    """
    path = path_of(model)
    engine = engine or find()
    launch = engine.ruled(launch)
    host = host or this_host()
    given = None if devices is None else tuple(devices)
    sums = _Sums(model, launch, given, host, compute_mode, companions)
    expected = sums.ledger(devices or ())
    if not devices:
        _check_host(expected, host)
    limits = limits or Limits(silence_s=SILENCE_S, available_bytes=_available)
    threads = threads or free_cores()
    run = Run(threads=job.note("threads", threads) if job else threads)
    tokens = _tokens(expected, prompt_tokens, n_predict) if full or prompt_tokens else None
    trial = Trial(path, launch, engine, run, limits, prompt, n_predict, tokens)
    attempts = _Runs(trial, sums, logs, stamp(path)).all(runs, job, progress)
    first = next((attempt for attempt in attempts if attempt.rows), None)
    computed = sums.beside(first.seen) if first and first.seen else expected
    rows = first.rows if first else ()
    measured = measured_ledger(computed, rows) if first else None
    beside, why = None, None
    if simulate and first:
        beside, why = _simulated(path, computed, engine, host, companions)
    if beside is not None:
        rows = with_simulated(rows, beside.simulation)
    argv = tuple(command(path, launch, engine, trial.run))
    return Verification(
        computed, measured, rows, attempts, engine, argv, beside, why, tokens, trial.run.threads
    )


def _tokens(expected: Ledger, asked: int | None, n_predict: int) -> int:
    """Tokens to send to each slot. Raises UsageError when it cannot hold them and the answer."""
    context, launch = expected.context, expected.launch
    most = room(context, expected.model.n_ctx_train)
    most = min(most, context.n_ubatch) if launch.embeddings else most - n_predict
    if asked is not None and asked > most:
        raise UsageError(
            "a slot takes at most {most:,} tokens beside the answer, not {asked:,}",
            most=most,
            asked=asked,
            hint="take a larger context (-c), or fewer --prompt-tokens",
        )
    if most < 1:
        raise UsageError("this context has no room for a prompt", hint="take a larger -c")
    return most if asked is None else asked


def _simulated(
    path: str, computed: Ledger, engine: Engine, host: Host, companions: Companions
) -> tuple[Tiers | None, Phrase | None]:
    """The engine's pass on the devices that it used, or why there is none."""
    try:
        said = simulation(
            path, computed.launch, computed.devices, engine=engine, host=host, own=True,
            companions=companions,
        )  # fmt: skip
        return tiers(said, host), None
    except KvwiseError as error:
        return None, error.phrase


def _available() -> int:
    return this_host().available_bytes


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

    def beside(self, seen: Seen) -> Ledger:
        """For the machine as the engine saw it: its GPUs, and what it was compiled to use."""
        features, mine = seen.features, self
        if features is not None:
            host = replace(self.host, cpu_features=features)
            launch = replace(self.launch, repack=self.launch.repack and bool(features))
            mine = replace(self, host=host, launch=launch)
        return mine.ledger(seen.devices if self.devices is None else self.devices)


@dataclass(frozen=True, slots=True)
class _Runs:
    """All runs of a trial, each compared as soon as it is over."""

    trial: Trial
    sums: _Sums
    logs: Path | None
    stamp: tuple[int, int]  # of the model file at the start

    def all(self, runs: int, job: Job | None, progress: Progress | None) -> tuple[Attempt, ...]:
        if job is not None:
            keys = [str(number) for number in range(runs)]
            return decode(job.run(keys, lambda key: encode(self._one(int(key))), progress))  # type: ignore[no-any-return]
        attempts: list[Attempt] = []
        for number in range(runs):
            if progress:
                progress(Pace(number, runs, 0, None))
            attempts.append(self._one(number))
        return tuple(attempts)

    def _one(self, number: int) -> Attempt:
        if stamp(self.trial.path) != self.stamp:
            raise UsageError(
                "{path} was changed while its runs went on",
                path=self.trial.path,
                hint="--fresh starts again with what is there now",
            )
        log = self.logs / f"run-{number + 1}.log" if self.logs else None
        attempt, loaded = self.trial.attempt(number, log)
        if loaded is None or loaded.main is None or not loaded.main.used or attempt.seen is None:
            return attempt
        return replace(attempt, rows=compare(self.sums.beside(attempt.seen), loaded))


def path_of(model: Model) -> str:
    """The file to load. Raises UsageError when the model is no GGUF file here."""
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
    needed = ledger.host.unmapped_bytes
    if host.available_bytes and needed > host.available_bytes:
        raise DoesNotFit(
            "this needs {needed} of the host's memory and {available} are available",
            needed=mib(needed), available=mib(host.available_bytes),
            hint="take a smaller context (-c)",
        )  # fmt: skip
