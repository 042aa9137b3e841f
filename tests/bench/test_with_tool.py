"""A sweep through llama-bench, killed at random moments.

No package has a llama-bench, so a program stands in for it that answers as b10605 does, writes down
each start, and refuses one combination. Everything else is real: processes, database, resuming.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvwise.bench.by_tool import ToolVisit
from kvwise.bench.cases import Task
from kvwise.engine.find import binary
from kvwise.launch import Launch
from kvwise.results import load
from kvwise.store import Store
from models import smollm2

PROGRAM = """#!{python}
import json, random, sys, time
words = sys.argv[1:]
if words == ['--help']:
    print('-m, --model FILE')
    sys.exit(0)
if words == ['--version']:
    print('error: invalid parameter for argument: --version', file=sys.stderr)
    sys.exit(1)
value = lambda flag: words[words.index(flag) + 1]
started = [value('-ctk'), value('-ctv'), value('-d'), value('-r')]
with open({starts!r}, 'a') as file:
    file.write(json.dumps(started) + '\\n')
time.sleep({start_s})
if value('-ctv') == 'q5_1':
    print("llama_bench: error: failed to create context with model 'm'", file=sys.stderr)
    sys.exit(1)
times = int(value('-r'))
for flag, kind in (('-p', 'n_prompt'), ('-n', 'n_gen')):
    for count in value(flag).split(','):
        if count == '0':
            continue
        row = {{'build_number': 10605, 'n_prompt': 0, 'n_gen': 0, 'n_depth': int(value('-d')),
               kind: int(count)}}
        print('llama-bench: benchmark 1/2: prompt run 1/1', file=sys.stderr, flush=True)
        spent = [random.uniform(0.02, 0.05) for _ in range(times)]
        time.sleep(sum(spent))
        row['samples_ns'] = [int(1e9 * each) for each in spent]
        row['samples_ts'] = [int(count) / each for each in spent]
        print(json.dumps(row), flush=True)
"""
SETTINGS = ("--vary", "ctk=f16,q8_0;ctv=f16,q8_0,q5_1;d=0,64", "-p", "16", "-n", "4", "-r", "4",
            "--retries", "0", "-t", "1")  # fmt: skip
GOOD, BAD, DEPTHS = 4, 2, 2


def taken(test: dict[str, Any]) -> int:
    """All samples of a test: those that count, and those that something else disturbed."""
    return (
        max(int(test["samples"]), int(test["disturbed"]))
        if test["doubtful"]
        else int(test["samples"] + test["disturbed"])
    )


@pytest.fixture
def bench(tmp_path: Path) -> list[str]:
    """The command of a sweep; `starts` of its folder has each start of the program."""
    path = tmp_path / "llama-bench"
    starts = str(tmp_path / "starts")
    path.write_text(PROGRAM.format(python=sys.executable, starts=starts, start_s=0.05))
    path.chmod(0o755)
    model = str(smollm2())
    return [sys.executable, "-m", "kvwise", "bench", model, "--engine", str(path), *SETTINGS]


def starts(bench: list[str]) -> list[list[str]]:
    path = Path(bench[bench.index("--engine") + 1]).with_name("starts")
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("]")]


def ended(bench: list[str], *more: str) -> Any:
    done = subprocess.run([*bench, "--json", *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def units() -> dict[str, tuple[float, str]]:
    place = Path(os.environ["KVWISE_HOME"]) / "data" / "kvwise.db"
    if not place.exists():
        return {}
    with sqlite3.connect(f"file:{place}?mode=ro", uri=True) as db:
        try:
            rows = db.execute("SELECT job || ' ' || key, at, result FROM unit").fetchall()
        except sqlite3.Error:  # not made yet
            return {}
    return {key: (at, result) for key, at, result in rows}


def check(document: Any) -> None:
    """Every row is whole: all repetitions, or the failure with what was said."""
    states = Counter(row["state"] for row in document["rows"])
    assert states == {"ok": GOOD, "failed": BAD}
    for row in document["rows"]:
        assert row["measured_by"] == "llama-bench"
        if row["state"] == "ok":
            assert [each["test"] for each in row["tests"]] == ["pp16", "tg4", "pp16@d64", "tg4@d64"]
            assert all(taken(each) >= 4 for each in row["tests"])
        else:
            assert row["varied"]["ctv"] == "q5_1"
            assert "failed to create context" in row["message"]


def test_rounds_over_all_settings_and_failures_as_rows(bench: list[str]) -> None:
    check(ended(bench))
    done = starts(bench)
    shallow = [(k, v) for k, v, depth, _ in done if depth == "0"]
    first = shallow[1:7] if shallow[0] == shallow[1] else shallow[:6]
    assert len(set(first)) == GOOD + BAD  # one round before any second start
    repetitions: Counter[tuple[str, ...]] = Counter()
    for k, v, depth, times in done:
        repetitions[k, v, depth] += int(times)
    assert all(count == 4 for (_, v, _), count in repetitions.items() if v != "q5_1")
    failed = [each for each in done if each[1] == "q5_1"]
    assert len({tuple(each[:3]) for each in failed}) == BAD * DEPTHS
    with Store() as store:
        kept = load(store, kind="speed")
    assert {each.engine.build for each in kept if each.state == "ok"} == {"b10605"}
    assert {each.engine.tool for each in kept} == {"llama-bench"}


def kill(bench: list[str], kills: int, seed: int) -> tuple[list[dict[str, Any]], int]:
    """What was finished after each kill, and how often it was killed before it was through."""
    source = random.Random(seed)
    seen: list[dict[str, Any]] = []
    for number in range(kills):
        process = subprocess.Popen(bench, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait, early = source.uniform(0.0, 3.0), source.random() < 0.15
        begun = len(starts(bench))
        while not early and process.poll() is None and len(starts(bench)) == begun:
            time.sleep(0.01)  # until its first start: most of the time goes into importing
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            family = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            _, alive = psutil.wait_procs(family, timeout=20)
            assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
            seen.append(units())
        else:
            assert process.returncode == 0
            return seen, number
    return seen, kills


def soak(bench: list[str], kills: int, seed: int) -> int:
    before = units()
    begun = len(starts(bench))
    seen, done = kill(bench, kills, seed)
    resumed = units().keys() - before.keys()
    check(ended(bench, *(["--resume"] if resumed else [])))
    for earlier, later in pairwise([*seen, units()]):
        assert {key: later.get(key) for key in earlier} == earlier  # nothing lost, nothing twice
    # each unit was started once, and once more for each kill at most: LEFT_OUT ones never
    finished = [json.loads(text) for key, (_, text) in units().items() if key not in before]
    needed = sum(result["state"] != "left_out" for result in finished)
    tries = 3  # of a refusal without a known reason: its log may have been lost
    failed = sum(result["state"] == "failed" for result in finished)
    assert needed <= len(starts(bench)) - begun <= needed + done + failed * (tries - 1) + done * 2
    with Store() as store:
        kept = [each for each in load(store, kind="speed") if each.state == "ok"]
    for each in kept:
        times = [one.at for one in each.samples]
        assert len(times) == len(each.values) + sum(bool(s.flags) for s in each.samples) == 4
    return done


@pytest.mark.slow
def test_kill_9_loses_nothing_and_repeats_nothing(bench: list[str]) -> None:
    assert soak(bench, 4, seed=3) > 0  # a run that nobody killed shows nothing


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kill_9_fifty_times(bench: list[str]) -> None:
    wanted, kills, sweeps = int(os.environ.get("KVWISE_SOAK", "50")), 0, 0
    while kills < wanted:
        sweeps += 1
        kills += soak(bench, wanted - kills, seed=100 + sweeps)
    print(f"{kills} kills in {sweeps} sweeps, {len(units())} starts, none lost, none twice")
    assert len(units()) >= sweeps


@pytest.mark.parametrize(
    ("prompts", "counts", "asked"),
    [((512,), (128,), "32,512"), ((16,), (4,), "15,16"), ((32, 64), (), "31,32,64"),
     ((), (4,), "3"), ((1,), (), "1"), ((1, 2), (), "1,2")],
)  # fmt: skip
def test_the_warm_up_needs_no_larger_context_than_what_is_measured(
    bench: list[str], prompts: tuple[int, ...], counts: tuple[int, ...], asked: str
) -> None:
    """The largest context of a start is the one whose sizes are compared."""
    tests = [
        *(Task("prompt", tokens, 0) for tokens in prompts),
        *(Task("decode", tokens, 0) for tokens in counts),
    ]
    tool = binary(Path(bench[bench.index("--engine") + 1]))
    argv = ToolVisit("m.gguf", Launch(), tool, 1, tests, 1, 0, 0, light=True).argv()
    assert argv[argv.index("-p") + 1] == asked
