"""One run of llama-bench: its command line, its rows, when each test began and ended.

Rows come as JSON lines, so that what is done stays when the next combination stops the program;
with `-v` the engine's log comes beside them on stderr, and without it nobody would know why.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvwise.engine.find import SERVER, Engine, binary, find
from kvwise.engine.loaded import Loaded
from kvwise.engine.outcome import EngineEnded, Outcome
from kvwise.engine.process import Child, Limits
from kvwise.engine.settings import check
from kvwise.errors import EngineError, KvwiseError
from kvwise.launch import Launch
from kvwise.options import to_argv, unsayable
from kvwise.options.row import BENCH

_ALOUD = (("n_batch", "-b"), ("n_ubatch", "-ub"), ("flash_attn", "-fa"), ("type_k", "-ctk"),
          ("type_v", "-ctv"))  # fmt: skip
_STEP = re.compile(rb"llama-bench: benchmark \d+/\d+: (starting|warmup|depth|prompt|generation)")
_RETRIES = 3
SILENCE_S = 1800.0
"""A whole test may go by without a word."""


@dataclass(frozen=True, slots=True)
class Row:
    """One test of llama-bench. `rates` in tokens per second and `seconds`, one per repetition;
    `window` is from when it began to be measured until its row came (time.monotonic)."""

    n_prompt: int
    n_gen: int
    depth: int
    rates: tuple[float, ...]
    seconds: tuple[float, ...]
    window: tuple[float, float]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BenchRun:
    """All rows of one run, its log, and how it ended; `seconds` altogether."""

    rows: tuple[Row, ...]
    loaded: Loaded
    outcome: Outcome
    seconds: float
    tail: tuple[str, ...]


def find_for_bench(wanted: str | None = None) -> Engine:
    """The engine whose speed is asked for: `wanted` or KVWISE_ENGINE, else the llama.cpp whose
    llama-bench is on PATH, else what `find` finds. Raises what `find` raises."""
    path = None if wanted or os.environ.get("KVWISE_ENGINE") else shutil.which(BENCH)
    if path is None:
        return find(wanted)
    beside = shutil.which(SERVER, path=str(Path(path).parent)) or shutil.which(SERVER)
    return binary(beside or path)


def program(engine: Engine) -> Engine | None:
    """The llama-bench of an engine: beside it or, for the embedded one, nowhere."""
    if engine.kind != "binary":
        return None
    if Path(engine.path).name.startswith(BENCH):
        return engine
    path = engine.tool(BENCH)
    if path is None:
        return None
    try:
        found = binary(path)
    except KvwiseError:
        return None
    return replace(found, build=found.build or engine.build)


def cannot(launch: Launch) -> tuple[str, ...]:
    """Fields of a server's launch that llama-bench cannot be told."""
    asked = _for_bench(launch)
    heard = {"n_ctx", "n_outputs_max", "fit", "build_from", "extra", "repack"}
    lost = [name for name in unsayable(replace(asked, n_ctx=512, extra=())) if name not in heard]
    if not launch.repack:
        lost.append("repack")
    if launch.n_seq_max != 1:
        lost.append("n_seq_max")
    if launch.model_draft or launch.spec_types:
        lost.append("model_draft")
    return tuple(dict.fromkeys(lost))


def as_bench(launch: Launch, context: int) -> Launch:
    """The launch as llama-bench makes it for a test that needs `context` tokens: all logits of a
    batch at once, one sequence (tools/llama-bench/llama-bench.cpp, to_llama_cparams)."""
    return replace(_for_bench(launch), n_ctx=context)


def _for_bench(launch: Launch) -> Launch:
    return replace(
        launch, tool=BENCH, n_ctx=0, n_seq_max=1, kv_unified=False, n_outputs_max=0, n_rs_seq=0,
        fit=False,
    )  # fmt: skip


def bench_argv(
    bench: Engine,
    model: str,
    launch: Launch,
    tests: Sequence[tuple[int, int, int]],
    *,
    times: int,
    threads: int = 0,
    warmup: bool = True,
) -> list[str]:
    """The command line for tests of one depth: each is (prompt, generate, depth), one of the first
    two 0. Raises UsageError."""
    check(launch)
    words = to_argv(replace(_for_bench(launch), n_ctx=512, model=model))
    for name, flag in _ALOUD:
        if flag not in words:
            words += [flag, str(getattr(launch, name))]
    depths = {depth for _, _, depth in tests}
    assert len(depths) == 1  # noqa: S101  (lists would make it run every combination)
    words += ["-p", _list(prompt for prompt, _, _ in tests)]
    words += ["-n", _list(count for _, count, _ in tests)]
    words += ["-d", str(depths.pop()), "-r", str(times)]
    if threads and not {"-t", "--threads"}.intersection(words):
        words += ["-t", str(threads)]
    if not warmup:
        words.append("--no-warmup")
    return [bench.path, *words, "-o", "jsonl", "--progress", "-v"]


def _list(lengths: Any) -> str:
    return ",".join(str(length) for length in dict.fromkeys(lengths) if length) or "0"


@dataclass(slots=True)
class _Clock:
    """When the test in hand began to be measured, as the lines of --progress tell."""

    began: float = 0.0
    windows: list[tuple[float, float]] = field(default_factory=list)
    _rest: bytes = b""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, descriptor: int, data: bytes) -> None:
        now = time.monotonic()
        with self._lock:
            if descriptor == 1:
                for _ in range(data.count(b"\n")):
                    self.windows.append((self.began or now, now))
                    self.began = 0.0
                return
            *lines, self._rest = (self._rest[-4096:] + data).split(b"\n")
            for line in lines:
                step = _STEP.search(line)
                if step and step[1] in (b"prompt", b"generation") and not self.began:
                    self.began = now


def run_bench(
    argv: Sequence[str],
    *,
    log: Path | None = None,
    limits: Limits | None = None,
    started: Callable[[int], None] | None = None,
) -> BenchRun:
    """Run it to its end. `started` is called with its process id.

    Raises EngineEnded (with the outcome) when it brought no row and did not end well, and
    EngineError when its rows are none; a run that was cut off keeps the rows that came.
    """
    limits = limits or Limits(silence_s=SILENCE_S)
    for left in reversed(range(_RETRIES)):
        began, clock = time.monotonic(), _Clock()
        with Child(argv, log=log, limits=limits, on_output=clock.hear) as child:
            if started:
                started(child.pid)
            outcome = child.wait()
        assert outcome is not None  # noqa: S101  (waited for without a limit)
        rows = _rows(_lines(child), clock.windows)
        done = BenchRun(
            rows, child.loaded, outcome, time.monotonic() - began, tuple(child.tail)
        )  # fmt: skip
        if rows:
            return done
        if outcome.clean:
            raise EngineError("llama-bench gave no figures")
        if outcome.failures or not left:  # else its log was lost: once more
            raise EngineEnded(outcome)
    raise AssertionError  # the last try returned or raised


def _lines(child: Child) -> list[str]:
    found = []
    while not child.answers.empty():
        line = child.answers.get_nowait()
        if line:
            found.append(line)
    return found


def _rows(lines: Sequence[str], windows: Sequence[tuple[float, float]]) -> tuple[Row, ...]:
    rows = []
    for number, line in enumerate(lines):
        with contextlib.suppress(*_NO_ROW):
            now = time.monotonic()
            rows.append(_row(line, windows[number] if number < len(windows) else (now, now)))
    return tuple(rows)


_NO_ROW = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def _row(line: str, window: tuple[float, float]) -> Row:
    """One line as llama-bench writes it; raises one of _NO_ROW for any other."""
    raw = json.loads(line)
    rates = tuple(float(each) for each in raw["samples_ts"])
    seconds = tuple(int(each) / 1e9 for each in raw["samples_ns"])
    if len(rates) != len(seconds) or not all(0 < each < math.inf for each in rates):
        raise ValueError(rates)
    return Row(
        n_prompt=int(raw["n_prompt"]),
        n_gen=int(raw["n_gen"]),
        depth=int(raw.get("n_depth", 0)),
        rates=rates,
        seconds=seconds,
        window=window,
        raw=raw,
    )
