"""What `kvwise bench` adds to llama-bench: figures against its own, and the time of a sweep.

    python benchmarks/bench_overhead.py MODEL --engine FOLDER [--embedded] [--pairs 10]

Pairs are interleaved: llama-bench on its own (with its warm-up), a start of `kvwise bench` through
llama-bench, one through the server of the same build, and with --embedded one of the embedded
engine. The ratio of each pair to its llama-bench is taken, so that what drifts cancels out; medians
of the ratios are printed with their range. Then one sweep of two settings by each, and the ratio of
their wall times. A pair beside which other programs used more than a fifth of a core is taken again
(--loaded takes it as it is). Write the result down only from a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvwise import Launch, open_model
from kvwise.bench.by_server import ServerVisit, Tokens
from kvwise.bench.by_tool import ToolVisit
from kvwise.bench.cases import Task
from kvwise.bench.visit import Visit
from kvwise.engine.bench import program
from kvwise.engine.find import Engine, find
from kvwise.engine.settings import Run
from kvwise.engine.watch import Watch

WITHIN = {"prompt": 0.02, "decode": 0.06}
WALL = 1.15
TRIES = 5


@dataclass(frozen=True)
class Setup:
    """What is measured."""

    model: str
    engine: Engine
    bench: Engine
    threads: int
    prompt: int
    decode: int
    cache: str
    repetitions: int
    loaded: bool

    @property
    def tests(self) -> tuple[Task, Task]:
        return Task("prompt", self.prompt), Task("decode", self.decode)

    @property
    def launch(self) -> Launch:
        return Launch(n_ctx=1024, type_k=self.cache, type_v=self.cache, fit=False, n_outputs_max=1)


def own(setup: Setup) -> dict[str, float]:
    """Tokens per second by llama-bench itself, one repetition after its whole warm-up."""
    done = subprocess.run(
        [
            setup.bench.path, "-m", setup.model, "-p", str(setup.prompt), "-n", str(setup.decode),
            "-r", "1", "-t", str(setup.threads), "-ctk", setup.cache, "-ctv", setup.cache,
            "-o", "jsonl",
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {("prompt" if row["n_prompt"] else "decode"): row["avg_ts"] for row in rows}


def by_tool(setup: Setup) -> dict[str, float]:
    visit = ToolVisit(
        setup.model, setup.launch, setup.bench, setup.threads, setup.tests, 1, 0, 99, light=True
    ).go(None)
    return rates(visit)


def by_server(setup: Setup, engine: Engine) -> dict[str, float]:
    model = open_model(setup.model)
    visit = ServerVisit(
        setup.model, setup.launch, engine, Run(threads=setup.threads), Tokens.of(model, 1),
        setup.tests, 1, 0, 99,
    ).go(None)  # fmt: skip
    return rates(visit)


def rates(visit: Visit) -> dict[str, float]:
    if visit.error:
        raise SystemExit(str(visit.error))
    return {("prompt" if s.test.startswith("pp") else "decode"): s.value for s in visit.samples}


def quiet(setup: Setup, work: Callable[[], dict[str, float]]) -> dict[str, float]:
    """One measurement that nothing disturbed; after TRIES the last one."""
    found: dict[str, float] = {}
    for _ in range(TRIES):
        before = os.times()
        with Watch() as watch:
            began = time.monotonic()
            found = work()
            ended = time.monotonic()
            after = os.times()
            share = watch.between(began, ended)
        mine = (after.children_user + after.children_system) - (
            before.children_user + before.children_system
        )
        others = share.others - mine / (ended - began)
        if setup.loaded or others < 0.2:
            return found
        print(f"  others used {others:.1f} cores: again", file=sys.stderr)
    return found


def pairs(setup: Setup, embedded: Engine | None, count: int) -> None:
    ways: dict[str, Callable[[], dict[str, float]]] = {
        "kvwise, llama-bench": lambda: by_tool(setup),
    }
    if setup.engine.path != setup.bench.path:
        ways["kvwise, llama-server"] = lambda: by_server(setup, setup.engine)
    if embedded is not None:
        ways[f"kvwise, embedded {embedded.build}"] = lambda: by_server(setup, embedded)
    ratios: dict[tuple[str, str], list[float]] = {}
    base: dict[str, list[float]] = {"prompt": [], "decode": []}
    for number in range(count):
        reference = quiet(setup, lambda: own(setup))
        for metric, value in reference.items():
            base[metric].append(value)
        for name, work in ways.items():
            for metric, value in quiet(setup, work).items():
                ratios.setdefault((name, metric), []).append(value / reference[metric])
        print(f"  pair {number + 1} of {count}", file=sys.stderr)
    print(f"\nllama-bench itself, {setup.cache}: "
          f"pp{setup.prompt} {statistics.median(base['prompt']):.1f}, "
          f"tg{setup.decode} {statistics.median(base['decode']):.1f} tokens/s\n")  # fmt: skip
    print("| by | metric | median ratio | range | within |")
    print("|---|---|---|---|---|")
    for (name, metric), values in ratios.items():
        middle = statistics.median(values)
        good = "yes" if middle > 1 - WITHIN[metric] else "no"
        print(f"| {name} | {metric} | {middle:.3f} | {min(values):.3f}-{max(values):.3f} | "
              f"{good} ({WITHIN[metric]:.0%}) |")  # fmt: skip


def sweep(setup: Setup) -> None:
    """Two settings, both tests, all repetitions: llama-bench's one process against ours."""
    types = "f16,q8_0"
    theirs = [
        setup.bench.path, "-m", setup.model, "-p", str(setup.prompt), "-n", str(setup.decode),
        "-r", str(setup.repetitions), "-t", str(setup.threads), "-ctk", types, "-o", "jsonl",
    ]  # fmt: skip
    ours = [
        sys.executable, "-m", "kvwise", "bench", setup.model, "--engine", setup.engine.path,
        "-p", str(setup.prompt), "-n", str(setup.decode), "-r", str(setup.repetitions),
        "-t", str(setup.threads), "--vary", f"ctk={types}", "--retries", "0", "--json",
    ]  # fmt: skip
    one, other = timed(theirs), timed(ours)
    print(f"\nsweep of 2 settings, {setup.repetitions} repetitions: llama-bench {one:.1f} s, "
          f"kvwise bench {other:.1f} s, ratio {other / one:.3f} (at most {WALL})")  # fmt: skip


def timed(argv: Sequence[str]) -> float:
    with tempfile.TemporaryDirectory() as home:
        began = time.monotonic()
        subprocess.run(
            argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "KVWISE_HOME": home},
        )  # fmt: skip
        return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--engine", required=True)
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--decode", type=int, default=128)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("--cache", default="f16")
    parser.add_argument("--loaded", action="store_true")
    asked = parser.parse_args()
    engine = find(asked.engine)
    bench = program(engine)
    if bench is None:
        raise SystemExit("there is no llama-bench beside it")
    setup = Setup(
        str(Path(asked.model).resolve()), engine, bench, asked.threads, asked.prompt, asked.decode,
        asked.cache, asked.repetitions, asked.loaded,
    )  # fmt: skip
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {load:.1f} before")
    pairs(setup, find("embedded") if asked.embedded else None, asked.pairs)
    sweep(setup)


if __name__ == "__main__":
    main()
