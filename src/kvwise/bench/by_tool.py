"""One start of llama-bench for each depth of a setting: the reference that others are compared to.

Each start is one combination, so that a refused one stops no other. A new process is warmed up by
a short prompt of its own (on a GPU by llama-bench's whole warm-up, because kernels are loaded when
they are first used); llama-bench's own would cost as much as a measurement, every time round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvwise.bench.cases import Task
from kvwise.bench.visit import Taken, Visit
from kvwise.engine.bench import SILENCE_S, BenchRun, Row, bench_argv, run_bench
from kvwise.engine.find import Engine
from kvwise.engine.outcome import EngineEnded
from kvwise.engine.process import Limits
from kvwise.engine.watch import Watch
from kvwise.errors import EngineError
from kvwise.launch import Launch

WARM_PROMPT = 32


@dataclass(frozen=True, slots=True)
class ToolVisit:
    """What to do with one start of llama-bench: tests of one depth, each `times`; all of it again
    up to `retries` times when it was disturbed. `light` = its own short warm-up."""

    path: str
    launch: Launch
    bench: Engine
    threads: int
    tests: Sequence[Task]
    times: int
    retries: int
    free_cores: int
    light: bool
    limits: Limits = field(default_factory=lambda: Limits(silence_s=SILENCE_S))

    def argv(self, times: int | None = None) -> list[str]:
        """The exact command."""
        asked = [
            (test.tokens if test.kind != "decode" else 0,
             test.tokens if test.kind == "decode" else 0, test.depth)
            for test in self.tests
        ]  # fmt: skip
        depth = self.tests[0].depth
        light = self.light and not depth
        warm = self._warm() if light else None
        if warm is not None:
            asked.insert(0, (warm, 0, depth))
        return bench_argv(
            self.bench, self.path, self.launch, asked,
            times=times or self.times, threads=self.threads, warmup=not light,
        )  # fmt: skip

    def _warm(self) -> int | None:
        """Tokens to warm up with: fewer than the longest test has, whose context is the one that is
        compared, and as many as no test has. None where there is no such number."""
        prompts = {test.tokens for test in self.tests if test.kind != "decode"}
        longest = max(test.tokens for test in self.tests)
        lengths = range(min(WARM_PROMPT, longest - 1), 0, -1)
        return next((each for each in lengths if each not in prompts), None)

    def go(self, log: Path | None, started: Callable[[int], None] | None = None) -> Visit:
        """Run it, and again while it is disturbed; a failure is part of the result."""
        began = time.monotonic()
        argv = self.argv()
        visit = Visit(argv=tuple(argv))
        found: list[Taken] = []
        for again in range(1 + self.retries):
            visit, samples = self._once(argv, log, started, visit)
            disturbed = any(taken.flags for taken in samples)
            if visit.error or not disturbed or again == self.retries:
                found += samples
                break
            found += [replace(taken, discarded=bool(taken.flags)) for taken in samples]
        return replace(visit, samples=tuple(found), seconds=time.monotonic() - began)

    def _once(
        self,
        argv: Sequence[str],
        log: Path | None,
        started: Callable[[int], None] | None,
        visit: Visit,
    ) -> tuple[Visit, list[Taken]]:
        with Watch() as watch:

            def follow(pid: int) -> None:
                watch.follow(pid)
                if started:
                    started(pid)

            try:
                run = run_bench(argv, log=log, limits=self.limits, started=follow)
            except EngineError as gone:
                ended = gone.outcome if isinstance(gone, EngineEnded) else None
                tail = ended.tail if ended else ()
                return replace(visit, error=gone.phrase, outcome=ended, tail=tail), []
            samples = self._samples(run, watch)
        measured = sum(sum(row.seconds) for row in run.rows)
        done = replace(
            visit,
            loaded=run.loaded,
            build=_build(run.rows),
            outcome=run.outcome,
            error=None if run.outcome.clean else run.outcome.sentence,
            tail=run.tail,
            ready_s=max(0.0, run.seconds - measured),
        )
        return done, samples

    def _samples(self, run: BenchRun, watch: Watch) -> list[Taken]:
        found = []
        for test in self.tests:
            row = _row_of(run.rows, test)
            if row is None:
                continue
            start, end = row.window
            share = watch.between(max(start, end - sum(row.seconds) * 1.5), end)
            found += [
                Taken(
                    test.name, rate, spent, time.time(), share.flags(self.free_cores),
                    round(share.others, 2), share.load,
                )
                for rate, spent in zip(row.rates, row.seconds, strict=False)
            ]  # fmt: skip
        return found


def _row_of(rows: Sequence[Row], test: Task) -> Row | None:
    prompt, count = (test.tokens, 0) if test.kind != "decode" else (0, test.tokens)
    for row in rows:
        if (row.n_prompt, row.n_gen, row.depth) == (prompt, count, test.depth):
            return row
    return None


def _build(rows: Sequence[Row]) -> str:
    """What its rows say; 0 or -1 of a program that was made outside a repository."""
    number = rows[0].raw.get("build_number") if rows else None
    return f"b{number}" if isinstance(number, int) and number > 1 else ""
