"""What one setting takes for the request in question, measured by a server (bench's own visit).

A request is so many tokens read and so many generated; what counts is the time of both, so a goal
weighs prompt against decode by its lengths and by nothing else.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kvwise.bench.by_server import ServerVisit, Tokens, checkpoints
from kvwise.bench.cases import Task
from kvwise.diagnose.failed_run import why_failed
from kvwise.engine.find import Engine
from kvwise.engine.outcome import Ending
from kvwise.engine.settings import Run
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.options import asked_threads, change
from kvwise.text import phrase
from kvwise.units import clock, pad

REQUESTS = {
    "chat": (256, 256), "document": (4096, 256), "code": (2048, 512), "multi-turn": (512, 256),
    "max-context": (4096, 256), "max-speed": (256, 256), "min-memory": (256, 256),
}  # fmt: skip
"""Tokens read and generated that stand for a purpose."""

MOST_READ, _MOST_MADE = 2048, 64
"""Longer tests tell the rates no better."""
_DEEP = 1024
"""From this prompt on tokens are generated behind it: the cache is read for each."""
_ROOM = 64
_CELLS = 256
_SEED = 7


@dataclass(frozen=True, slots=True)
class Request:
    """Tokens of the prompt and of the answer."""

    prompt: int
    answer: int

    @property
    def tests(self) -> tuple[Task, Task]:
        """What is measured of it."""
        depth = min(self.prompt, MOST_READ) if self.prompt >= _DEEP else 0
        read, made = min(self.prompt, MOST_READ), min(self.answer, _MOST_MADE)
        return Task("prompt", max(read, 1)), Task("decode", max(made, 2), depth)

    def seconds(self, prompt_per_s: float, decode_per_s: float) -> float:
        """What the whole request takes at these rates."""
        return self.prompt / prompt_per_s + self.answer / decode_per_s


@dataclass(frozen=True, slots=True)
class Taken:
    """One evaluation: `seconds` of the request (None = it failed, `error` says why), the rates it
    is made of, what disturbed it; `spent` seconds went into it, loading included."""

    at: float
    spent: float
    seconds: float | None = None
    prompt_per_s: float | None = None
    decode_per_s: float | None = None
    flags: tuple[str, ...] = ()
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Taken:
        return cls(**{**values, "flags": tuple(values["flags"])})


@dataclass(frozen=True, slots=True)
class Meter:
    """Measures settings of one model with one engine."""

    model: Model
    engine: Engine
    request: Request
    cores: int

    def take(self, launch: Launch, log: Path | None = None, most_s: float | None = None) -> Taken:
        """Start, read, generate, stop: once. A failure is a result, and so is measuring that
        takes more than `most_s` seconds, which is ended."""
        at, began = time.time(), time.monotonic()
        tests = self.request.tests
        needed = pad(max(task.context for task in tests) + _ROOM, _CELLS)
        small = change(launch, n_ctx=min(launch.n_ctx or needed, needed), n_seq_max=1)
        visit = ServerVisit(
            path=self.model.loadable, launch=small, engine=self.engine,
            run=Run(checkpoints=checkpoints(self.model, small, tests)),
            tokens=Tokens.of(self.model, _SEED), tests=tests, times=1, retries=1,
            free_cores=max(0, self.cores - _threads(launch, self.cores)), most_s=most_s,
        ).go(log)  # fmt: skip
        spent = time.monotonic() - began
        if visit.error is not None and visit.outcome and visit.outcome.ending is Ending.STOPPED:
            slow = phrase("it is much slower than the start: ended after {time}", time=clock(spent))
            return Taken(at, spent, error=str(slow))
        if visit.error is not None:
            found = why_failed(log, visit.outcome, model=self.model, launch=launch)
            return Taken(at, spent, error=str(found[0].cause if found else visit.error))
        kept = [sample for sample in visit.samples if not sample.discarded]
        rates = {
            task.kind: statistics.median(each.value for each in kept if each.test == task.name)
            for task in tests
        }
        prompt, decode = rates["prompt"], rates["decode"]
        flags = tuple(sorted({flag for sample in kept for flag in sample.flags}))
        return Taken(at, spent, self.request.seconds(prompt, decode), prompt, decode, flags)


def _threads(launch: Launch, cores: int) -> int:
    return asked_threads(launch, cores) or cores
