"""Speculation on the real engine: proved on, proved off, killed and taken up again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvwise.engine.find import Engine, find
from kvwise.engine.process import Limits
from kvwise.engine.settings import Run
from kvwise.launch import Launch
from kvwise.opening import open_model
from kvwise.options import change
from kvwise.results import load
from kvwise.speculate.attempt import Trial, asked_but_off
from kvwise.speculate.judge import summarise
from kvwise.speculate.kinds import Variant
from kvwise.speculate.prompts import Prompt
from kvwise.store import Store
from models import gemma3, short_smollm2, smollm2

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

TEXT = "The cat sat on the mat and looked at the door. " * 12
"""What repeats itself is what n-grams guess."""
PROMPTS = (Prompt("count", TEXT),)
SHORT = ["-c", "512", "-t", "1", "--raw", "-n", "24"]


def engine() -> Engine:
    return find("embedded")


def trial(model: Path, **more: Any) -> Trial:
    values = {"prompts": PROMPTS, "n_predict": 16, "chat": False} | more
    return Trial(open_model(str(model)), engine(), Run(threads=1), limits=Limits(), **values)


def small(variant: Variant, draft: Path | str = "") -> Launch:
    base = change(Launch(), n_ctx=512, n_seq_max=1, fit=False)
    return engine().ruled(variant.launch(base, str(draft)))


def cli(*words: str, **more: Any) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "kvwise", "speculate", str(smollm2()), *words]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ, **more
    )


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    (tmp_path / "prompts.txt").write_text(TEXT, "utf-8")
    return str(tmp_path / "prompts.txt")


def test_a_model_as_its_own_draft(prompts: str) -> None:
    """Everything at once: proof, same text, memory of both to the printed digit, the advice."""
    with cli(
        "--draft", str(smollm2()), "--depths", "3", "--kinds", "draft-simple,ngram-cache",
        "--prompts", prompts, "--rounds", "1", "--json", *SHORT,
    ) as process:  # fmt: skip
        out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["schema"] == "kvwise/speculate/1"
    assert found["compatibility"]["compatible"] is True
    assert found["warnings"]  # no smaller than the model
    plain, deep, ngram = found["variants"]
    assert plain["state"] == "plain" and not plain["proof"]["slots"]
    assert deep["state"] == "on" and deep["proof"]["log"] == "draft-simple"
    assert deep["drafted"] > 0 and deep["acceptance_rate"] > 0.8  # it knows its own mind
    assert deep["target_passes_per_1000_tokens"] < 600
    assert ngram["state"] == "on" and ngram["accepted"] > 0
    assert all(each["same_text"] for each in found["variants"])
    rows = deep["memory"]["buffers"]
    assert {row["whose"] for row in rows} == {"model", "draft"}
    assert all(abs(row["computed"] - row["measured"]) < 6000 for row in rows)
    assert found["memory"]["simulated"]["draft_bytes"] > 90 << 20
    assert found["recommendation"]["speculate"] is False  # one round has no spread
    with Store() as store:
        kept = load(store, kind="speculation")
    assert sorted(each.test["variant"] for each in kept) == [
        "draft-simple/3", "ngram-cache", "plain",
    ]  # fmt: skip


def test_a_smaller_draft_of_the_same_vocabulary(prompts: str) -> None:
    """A third of the layers: it guesses worse and costs less, and nothing has to be warned of."""
    with cli(
        "--draft", str(short_smollm2()), "--depths", "2", "--kinds", "draft-simple",
        "--prompts", prompts, "--rounds", "1", "--json", *SHORT,
    ) as process:  # fmt: skip
        out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["compatibility"]["compatible"] is True
    assert found["warnings"] == []
    _, deep = found["variants"]
    assert deep["state"] == "on" and deep["drafted"] > 0
    assert 0 <= deep["acceptance_rate"] < 1
    assert deep["same_text"]
    rows = [row for row in deep["memory"]["buffers"] if row["whose"] == "draft"]
    assert rows and all(abs(row["computed"] - row["measured"]) < 6000 for row in rows)


def test_a_draft_of_another_vocabulary_is_loaded_and_never_used(tmp_path: Path) -> None:
    """The engine serves all the same; that it does not speculate has to be found out."""
    variant = Variant("draft-simple", 2)
    made = trial(smollm2(), n_predict=4)
    unit = made.measure(variant.key, 0, small(variant, gemma3()), tmp_path / "log")
    assert unit.error is None and unit.answers[0].tokens == 4
    assert not unit.proof.on
    why = asked_but_off(unit)
    assert why is not None
    assert "vocab" in str(why)
    plain = replace(unit, key="plain")
    assert summarise([Variant("plain"), variant], [plain, unit])[1].state == "off"


def test_what_the_engine_refuses_is_a_row_with_its_cause(tmp_path: Path) -> None:
    variant = Variant("draft-mtp", 2)
    unit = trial(smollm2()).measure(variant.key, 0, small(variant), tmp_path / "log")
    assert unit.error is not None and not unit.answers
    assert summarise([Variant("plain"), variant], [unit])[1].state == "failed"


@pytest.mark.slow
def test_killed_and_taken_up_again(prompts: str) -> None:
    """kill -9 leaves no engine behind, and what was finished is not done again."""
    words = ["--kinds", "ngram-simple,ngram-cache", "--prompts", prompts, "--rounds", "1",
             "--no-simulate", *SHORT]  # fmt: skip
    with cli(*words) as process:
        before = _until_a_unit_is_done(process)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    with cli(*words, "--json") as again:
        out, err = again.communicate(timeout=280)
    assert again.returncode == 0, err
    assert "are done already" in err
    after = _units()
    assert set(before.items()) <= set(after.items())
    assert len(after) == 3
    states = [each["state"] for each in json.loads(out)["variants"]]
    assert states[0] == "plain"
    assert set(states[1:]) <= {"on", "idle"}


def _units() -> dict[str, str]:
    with Store() as store:
        return {row["key"]: row["result"] for row in store.rows("SELECT key, result FROM unit")}


def _until_a_unit_is_done(process: subprocess.Popen[str]) -> dict[str, str]:
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None:
        found = _units()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(process.communicate())


def test_a_prompt_that_is_too_long_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("word " * 700, "utf-8")
    with cli("--prompts", str(tmp_path / "long.txt"), "--kinds", "ngram-simple", *SHORT) as process:
        _, err = process.communicate(timeout=200)
    assert process.returncode == 2
    assert "does not fit" in err and "-c 512" in err
