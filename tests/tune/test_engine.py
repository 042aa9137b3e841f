"""A short tune on the real engine, interrupted and taken up again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from kvwise.results import load
from kvwise.store import Store
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
