"""A short tune on the real engine, interrupted and taken up again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvwise import Launch, open_model
from kvwise.engine.find import embedded
from kvwise.results import load
from kvwise.store import Store
from kvwise.tune.hunt import Hunt, Limits
from kvwise.tune.knobs import Knob, Space
from kvwise.tune.measure import Meter, Request, Taken
from kvwise.tune.run import _most
from models import smollm2

pytest.importorskip("optuna")
pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

WORDS = ["-t", "1", "-tb", "1", "--knobs", "ub,fa", "--prompt-tokens", "96", "-n", "4",
         "--evaluations", "5", "--engine", "embedded", "-c", "512", "--goal", "chat"]  # fmt: skip


def cli(*words: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "kvwise", "tune", str(smollm2()), *words]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


def _units() -> dict[str, str]:
    with Store() as store:
        return {row["key"]: row["result"] for row in store.rows("SELECT key, result FROM unit")}


def stopped(number: int, at: int) -> tuple[int, str, dict[str, str]]:
    """Start, wait for `at` evaluations, send a signal: (exit code, stderr, what was done)."""
    with cli(*WORDS) as process:
        deadline = time.monotonic() + 200
        while len(_units()) < at and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive, "an engine stayed behind"
    return process.returncode, err, _units()


def test_interrupted_killed_and_taken_up_again() -> None:
    code, err, first = stopped(signal.SIGINT, 1)
    assert code == 130
    assert "evaluations" in err and "goes on from there" in err
    _, _, before = stopped(signal.SIGKILL, len(first) + 1)
    assert set(first.items()) < set(before.items())
    with cli(*WORDS, "--json") as again:
        out, err = again.communicate(timeout=280)
    assert again.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    assert found["schema"] == "kvwise/tune/1"
    after = _units()
    assert set(before.items()) <= set(after.items())
    assert found["evaluations"] == len(after)
    start = found["space"]["start"]
    assert found["tried"][0]["point"] == start
    assert found["confirmed"][0]["point"] == start
    advice = found["recommendation"]
    assert advice["change"] is (advice["gain"] is not None)
    assert advice["change"] or advice["point"] == start
    with Store() as store:
        assert load(store, kind="tune")


def test_what_takes_too_long_is_ended_and_is_no_figure(tmp_path: Path) -> None:
    model = open_model(str(smollm2()))
    engine = embedded()
    assert engine is not None
    meter = Meter(model, engine, Request(2000, 64), cores=1)
    launch = Launch.parse(["-m", str(smollm2()), "-c", "4096", "-t", "1", "-tb", "1"])
    before = set(psutil.Process().children(recursive=True))  # other tests have a browser open
    taken = meter.take(launch, tmp_path / "log", most_s=0.05)
    assert (taken.seconds, taken.prompt_per_s) == (None, None)
    assert "much slower than the start" in taken.error
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.parametrize(("took", "most"), [(2.5, 12.0), (None, None)])
def test_only_a_start_that_was_measured_sets_the_limit(
    took: float | None, most: float | None
) -> None:
    space = Space((Knob("ub", (128, 256)),), (("ub", 128),))
    hunt = Hunt(space, Limits(4), lambda *_: Taken(0.0, 1.0))
    hunt.units += [((("ub", 256),), Taken(0.0, 90.0, 80.0)), (space.start, Taken(0.0, 3.0, took))]
    assert _most(hunt) == most
