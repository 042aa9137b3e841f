"""The whole measurement: every variant in every round, interleaved, as units that resume."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvwise.device import Device, Host
from kvwise.engine.find import Engine
from kvwise.engine.process import Limits
from kvwise.engine.server import SILENCE_S
from kvwise.engine.settings import Run
from kvwise.errors import KvwiseError
from kvwise.gguf.model import Model
from kvwise.jobs import Job, Pace
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.memory.parts.companions import Companions
from kvwise.options import asked_threads
from kvwise.probe.host import host as this_host
from kvwise.simulate import simulation
from kvwise.speculate import memory
from kvwise.speculate.attempt import Measured, Trial
from kvwise.speculate.codec import decode, encode
from kvwise.speculate.judge import Summary, Verdict, judge, summarise
from kvwise.speculate.kinds import Variant
from kvwise.speculate.prompts import Prompt
from kvwise.speculate.vocabulary import Compatibility
from kvwise.text import Phrase
from kvwise.verify.attempt import free_cores

KIND = "speculate"
ROUNDS = 3
N_PREDICT = 128
_LEAST_CONTEXT = 4096
_BYTES_PER_TOKEN = 2
"""Fewer than texts have (about 4, Chinese 3), so that a context made by it is large enough."""
_FOR_TEMPLATE = 256

Progress = Callable[[Pace], None]
After = Callable[[Sequence[Measured]], object]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be measured. `launch` is the user's, without any speculation; `draft_path` the
    draft's file; `compatibility` None without a draft that is a whole model."""

    model: Model
    draft: Model | None
    draft_path: str
    launch: Launch
    engine: Engine
    devices: tuple[Device, ...]
    host: Host
    variants: tuple[Variant, ...]
    prompts: tuple[Prompt, ...]
    n_predict: int = N_PREDICT
    rounds: int = ROUNDS
    chat: bool = True
    compatibility: Compatibility | None = None
    threads: int = 0

    def launch_of(self, variant: Variant) -> Launch:
        return variant.launch(self.launch, self.draft_path)

    def ledger(self, variant: Variant, features: tuple[str, ...] | None = None) -> Ledger:
        """Computed, of one variant. Raises what `account` raises."""
        launch = self.launch_of(variant)
        return memory.ledger_of(
            self.model, self.draft, launch, devices=self.devices, host=self.host, features=features
        )

    @property
    def largest(self) -> Variant:
        """The variant that takes most: a draft at its greatest depth where there is one."""
        drafts = [each for each in self.variants if each.kind.startswith("draft-")]
        return max(drafts or self.variants, key=lambda each: each.depth or 0)


@dataclass(frozen=True, slots=True)
class Speculation:
    """Everything that came out. `computed` has a ledger per variant key; `simulated` is the
    engine's own no-alloc pass of the largest, else `unsimulated` says why there is none."""

    asked: Asked
    summaries: tuple[Summary, ...]
    verdict: Verdict
    computed: dict[str, Ledger]
    simulated: Ledger | None
    unsimulated: Phrase | None
    threads: int

    @property
    def plain(self) -> Summary:
        return next(each for each in self.summaries if not each.variant.speculates)


def context_for(prompts: Sequence[Prompt], n_predict: int, n_ctx_train: int) -> int:
    """A context in which every prompt and its answer have room, where none was asked for."""
    longest = max(prompt.bytes for prompt in prompts)
    needed = longest // _BYTES_PER_TOKEN + n_predict + _FOR_TEMPLATE
    wanted = max(_LEAST_CONTEXT, -(-needed // 256) * 256)
    return min(wanted, n_ctx_train) if n_ctx_train else wanted


def threads_of(launch: Launch) -> int:
    """Those of -t, else the cores that nobody uses now."""
    return asked_threads(launch, os.cpu_count() or 1) or free_cores()


def speculate(
    asked: Asked,
    job: Job,
    *,
    logs: Path,
    simulate: bool = True,
    progress: Progress | None = None,
    after: After | None = None,
) -> Speculation:
    """Measure what is missing in `job`, and judge. `logs` is a folder for the engine's logs;
    `after` hears all units so far after each one.

    Raises DoesNotFit when both together do not fit, UsageError for what the engine cannot be told
    or a prompt that is too long, Interrupted; a variant that fails is counted, not raised.
    """
    memory.check_fits(asked.ledger(asked.largest), asked.host)
    beside, why = _simulated(asked) if simulate else (None, None)
    threads = job.note("threads", asked.threads or threads_of(asked.launch))
    limits = Limits(silence_s=SILENCE_S, available_bytes=_available)
    trial = Trial(
        asked.model, asked.engine, Run(threads=threads), asked.prompts, asked.n_predict,
        asked.chat, limits,
    )  # fmt: skip
    units = _measure(asked, trial, job, logs=logs, progress=progress, after=after)
    summaries = summarise(asked.variants, units)
    features = next((unit.features for unit in units if unit.features is not None), None)
    computed = {each.key: asked.ledger(each, features) for each in asked.variants}
    return Speculation(asked, summaries, judge(summaries), computed, beside, why, threads)


def order(variants: Sequence[Variant], rounds: int) -> list[str]:
    """Keys of all units: `round variant`. Every other round runs backwards, so that what warms up
    or slows down over a round does so for all alike."""
    keys: list[str] = []
    for number in range(rounds):
        line = variants if number % 2 == 0 else tuple(reversed(variants))
        keys += [f"{number} {variant.key}" for variant in line]
    return keys


def _measure(
    asked: Asked,
    trial: Trial,
    job: Job,
    *,
    logs: Path,
    progress: Progress | None,
    after: After | None,
) -> list[Measured]:
    by_key = {variant.key: variant for variant in asked.variants}
    units = order(asked.variants, asked.rounds)

    def one(key: str) -> dict[str, object]:
        number, name = key.split(" ", 1)
        launch = asked.launch_of(by_key[name])
        log = logs / f"{name.replace('/', '-')}-{int(number) + 1}.log"
        unit = trial.measure(name, int(number), launch, log)
        if after is not None:
            known = [decode(job.results[each]) for each in units if each in job.results]
            after([*known, unit])
        return encode(unit)

    return [decode(each) for each in job.run(units, one, progress)]


def _simulated(asked: Asked) -> tuple[Ledger | None, Phrase | None]:
    """The engine's own pass of the largest variant, or why there is none."""
    launch = asked.launch_of(asked.largest)
    draft = asked.draft if launch.model_draft else None
    try:
        said = simulation(
            asked.model.loadable, launch, asked.devices, engine=asked.engine, host=asked.host,
            companions=Companions(draft=draft), own=True,
        )  # fmt: skip
    except KvwiseError as error:
        return None, error.phrase
    return said.ledger, None


def _available() -> int:
    return this_host().available_bytes
