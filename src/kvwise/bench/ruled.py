"""Which settings can be measured here at all, by which program, and what they will take.

What llama.cpp would refuse, what the engine at hand cannot be told and what memory cannot hold is
known before anything is started: such a setting is a row with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kvwise.bench.cases import Case, Task, tests_of
from kvwise.device import Device, Host
from kvwise.engine.bench import as_bench, cannot
from kvwise.engine.find import Engine
from kvwise.engine.server import command
from kvwise.engine.settings import Run
from kvwise.errors import KvwiseError, Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.options import asked_threads
from kvwise.options.kinds import BENCH_CACHE_TYPES
from kvwise.text import Phrase, phrase
from kvwise.units import mib

Way = Literal["llama-bench", "server"]
DOES_NOT_FIT = "does_not_fit"


@dataclass(frozen=True, slots=True)
class Means:
    """What measures: a server's engine, and the llama-bench beside it (None = there is none).

    `companions` opens the files that a setting names beside its model, which may be one of those
    that vary; it raises what `open_model` raises.
    """

    engine: Engine
    bench: Engine | None
    devices: tuple[Device, ...]
    host: Host
    threads: int
    cores: int
    fixed_ctx: bool = False
    companions: Callable[[Launch], Companions] = lambda _: NONE

    def threads_of(self, launch: Launch) -> int:
        """Threads of a setting: -t may be one of those that vary."""
        return asked_threads(launch, self.cores) or self.threads

    def free_cores(self, launch: Launch) -> int:
        """Cores that a setting leaves to others."""
        return max(0, self.cores - self.threads_of(launch))

    @property
    def cpu_only(self) -> bool:
        return not self.devices

    @property
    def run(self) -> Run:
        return Run(threads=self.threads)


@dataclass(frozen=True, slots=True)
class Ruled:
    """A setting: measured by which `way`, with which `tests`, expected to take `ledger`; or
    `skipped`, with the `code` of the reason. `beyond` are tests that this setting cannot hold."""

    case: Case
    way: Way
    tests: tuple[Task, ...] = ()
    ledger: Ledger | None = None
    skipped: Phrase | None = None
    code: str = ""
    beyond: tuple[Task, ...] = ()
    instead: Phrase | None = None  # why not llama-bench

    def tests_at(self, depth: int) -> tuple[Task, ...]:
        return tuple(test for test in self.tests if test.depth == depth)


def rule(case: Case, model: Model, tests: Sequence[Task], means: Means, *, force: bool) -> Ruled:
    """What becomes of a setting; `force` starts it although memory cannot hold it."""
    way, instead = _way(case, means)
    mine = tests_of(case.launch, tests)
    kept, beyond = _held(case, model, mine, way)
    ruled = Ruled(case, way, kept, beyond=beyond, instead=instead)
    if not mine:
        why = phrase("it makes vectors: only -p without -d measures it")
        return replace(ruled, skipped=why, code="embedding")
    if not kept:
        why = phrase("the longest context of this model is {most:,} tokens", most=model.n_ctx_train)
        return replace(ruled, skipped=why, code="beyond_training")
    try:
        if way == "server":
            command(model.loadable, case.launch, means.engine, means.run)
        ledger = expected(ruled, model, means)
    except Refused as error:
        return replace(ruled, skipped=error.phrase, code=error.code)
    except KvwiseError as error:
        return replace(ruled, skipped=error.phrase, code=error.kind)
    ruled = replace(ruled, ledger=ledger)
    lacking = None if force else lacks(ledger, means.host)
    return replace(ruled, skipped=lacking, code=DOES_NOT_FIT) if lacking else ruled


def _way(case: Case, means: Means) -> tuple[Way, Phrase | None]:
    launch = case.launch
    if means.bench is None:
        return "server", None
    lost = cannot(launch)
    if means.fixed_ctx or {"c", "ctx-size"} & {name for name, _ in case.varied}:
        lost = ("n_ctx", *lost)
    if launch.type_k not in BENCH_CACHE_TYPES or launch.type_v not in BENCH_CACHE_TYPES:
        lost = (*lost, "type_k")
    if not lost:
        return "llama-bench", None
    return "server", phrase("llama-bench cannot be told {what}", what=", ".join(lost))


def _held(
    case: Case, model: Model, tests: Sequence[Task], way: Way
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Tests that a slot can hold, and the others: a server caps its slots at what the model was
    trained for; llama-bench does not. What is made into a vector is read as one micro-batch, and
    has no place beyond the training."""
    launch = case.launch
    capped = way == "server" or launch.embeddings
    most = model.n_ctx_train if capped and model.n_ctx_train else 1 << 40
    if launch.embeddings:
        most = min(most, launch.n_ubatch)
    if launch.n_ctx:
        slots = 1 if launch.kv_unified else launch.n_seq_max
        most = min(most, launch.n_ctx // slots)
    fits = tuple(test for test in tests if test.context <= most)
    return fits, tuple(test for test in tests if test not in fits)


def expected(
    ruled: Ruled,
    model: Model,
    means: Means,
    *,
    devices: Sequence[Device] | None = None,
    features: Sequence[str] | None = None,
    depth: int | None = None,
) -> Ledger:
    """The ledger of the longest context of a setting (of its tests at `depth`, if given), for the
    machine as the engine saw it where that is known. Raises Refused, UsageError, and what
    `means.companions` raises."""
    tests = ruled.tests if depth is None else ruled.tests_at(depth)
    launch = ruled.case.launch
    if ruled.way == "llama-bench":
        longest = max(test.tokens + test.depth for test in tests)
        launch = as_bench(launch, longest)
    host = means.host
    if features is not None:
        host = replace(host, cpu_features=tuple(features))
        launch = replace(launch, repack=launch.repack and bool(features))
    used = means.devices if devices is None else devices
    beside = means.companions(launch)
    return account(model, launch, used, host=host, companions=beside)


def lacks(ledger: Ledger, host: Host) -> Phrase | None:
    """Why memory cannot hold it: the engine itself would be killed without a word."""
    needed = ledger.host.unmapped_bytes
    if host.available_bytes and needed > host.available_bytes:
        return phrase(
            "it needs {needed} of the host's memory and {available} are available",
            needed=mib(needed), available=mib(host.available_bytes),
        )  # fmt: skip
    for each in ledger.lines[:-1]:
        if each.misses_bytes:
            return phrase(
                "it needs {missing} more than {device} has free",
                missing=mib(each.misses_bytes), device=each.device or each.buffer,
            )  # fmt: skip
    return None


__all__ = ["DOES_NOT_FIT", "Means", "Ruled", "Way", "expected", "lacks", "rule"]
