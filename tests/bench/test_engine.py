"""`kvwise bench` with the real engine: a whole sweep, stopped in every way and taken up again."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvwise.results import load
from kvwise.store import Store
from models import gemma3, minilm, smollm2

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]
QUICK = ("-p", "16", "-n", "4", "-t", "1", "--retries", "0", "--engine", "embedded")
PATIENCE_S = 600.0
LONGEST_S = float(os.environ.get("KVWISE_SOAK_S", "6"))
THREE = ("--vary", "ctk=f16,q8_0,q4_0", "-r", "1")


def taken(test: dict[str, Any]) -> int:
    """All samples of a test: those that count, and those that something else disturbed."""
    return (
        max(int(test["samples"]), int(test["disturbed"]))
        if test["doubtful"]
        else int(test["samples"] + test["disturbed"])
    )


def command(*more: str) -> list[str]:
    return [sys.executable, "-m", "kvwise", "bench", str(smollm2()), *QUICK, *more]


def ended(*more: str) -> tuple[int, Any]:
    done = subprocess.run(
        command("--json", *more), capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def units() -> dict[str, tuple[float, str]]:
    """Finished starts in the database, whoever is writing it: when, and what came out."""
    place = Path(os.environ["KVWISE_HOME"]) / "data" / "kvwise.db"
    if not place.exists():
        return {}
    with sqlite3.connect(f"file:{place}?mode=ro", uri=True) as db:
        try:
            rows = db.execute(
                "SELECT job.id || ' ' || unit.key, unit.at, unit.result FROM unit"
                " JOIN job ON job.id = unit.job"
                " WHERE job.kind = 'bench'"
            ).fetchall()
        except sqlite3.Error:  # not made yet
            return {}
    return {key: (at, result) for key, at, result in rows}


def engines(parent: int) -> list[psutil.Process]:
    try:
        return psutil.Process(parent).children(recursive=True)
    except psutil.Error:
        return []


def all_gone(family: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(family, timeout=20)
    return not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]


def test_a_sweep_has_a_row_for_everything() -> None:
    code, document = ended("--vary", "ctv=f16,q8_0;fa=on,off;d=0,64", "-r", "2")
    assert code == 0
    rows = {row["key"]: row for row in document["rows"]}
    assert len(rows) == 4
    refused = {key for key, row in rows.items() if row["state"] == "skipped"}
    assert refused == {"0 ctv=q8_0 fa=off"}
    assert {rows[key]["code"] for key in refused} == {"v_quant_needs_flash_attn"}
    for key in rows.keys() - refused:
        row = rows[key]
        assert row["state"] == "ok", row["message"]
        assert row["measured_by"] == "server"
        assert [each["test"] for each in row["tests"]] == ["pp16", "tg4", "pp16@d64", "tg4@d64"]
        assert all(taken(each) >= 2 for each in row["tests"])
        assert all(each["tokens_per_s"]["median"] > 0 for each in row["tests"])
        assert all(row["memory"][part]["difference_bytes"] == 0 for part in ("weights", "cache"))
        assert row["used"]["type_v"] == row["varied"]["ctv"]
        assert [each for each in row["effects"] if each["lost"]] == []
    with Store() as store:
        kept = load(store, kind="speed")
    assert len(kept) == 3 * 4
    assert all(len(each.samples) == 2 and each.figures["work"] for each in kept)


@pytest.mark.parametrize(("depth", "times"), [(64, 2), (600, 1)])
def test_a_sliding_window_is_measured_within_and_beyond_it(depth: int, times: int) -> None:
    """Gemma 3's window is 512: within it a cache goes on from a checkpoint only."""
    done = subprocess.run(
        [sys.executable, "-m", "kvwise", "bench", str(gemma3()), *QUICK, "-d", str(depth),
         "-r", str(times), "--json"],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    (row,) = json.loads(done.stdout)["rows"]
    assert row["state"] == "ok", row["message"]
    assert [each["test"] for each in row["tests"]] == [f"pp16@d{depth}", f"tg4@d{depth}"]


def test_a_failure_is_a_row_with_its_cause(tmp_path: Path) -> None:
    """A tokenizer that no llama.cpp knows: the header is sound, the load fails."""
    damaged = tmp_path / "odd.gguf"
    name, kind = b"tokenizer.ggml.model", (8).to_bytes(4, "little")
    before = name + kind + (4).to_bytes(8, "little")
    data = smollm2().read_bytes()
    assert before + b"gpt2" in data
    damaged.write_bytes(data.replace(before + b"gpt2", before + b"gpt9"))
    done = subprocess.run(
        [*command("--json", "-r", "1"), str(damaged)], capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip
    document = json.loads(done.stdout)
    sound, odd = document["rows"]
    assert done.returncode == 0
    assert sound["state"] == "ok"
    assert odd["state"] == "failed"
    assert "tokenizer" in json.dumps(odd["findings"])
    assert odd["message"] == odd["findings"][0]["cause"]


def test_ctrl_c_leaves_no_child_and_the_same_command_goes_on() -> None:
    process = subprocess.Popen(
        command(*THREE), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # a shell's & ignores the signal
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    deadline = time.monotonic() + PATIENCE_S
    while not units() or not engines(process.pid):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    family = engines(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    assert all_gone(family)
    before = units()
    assert before
    code, document = ended(*THREE)
    assert code == 0
    assert [row["state"] for row in document["rows"]] == ["ok"] * 3
    after = units()
    assert {key: after[key] for key in before} == before  # nothing was done twice


def killed_until(kills: int, *more: str, seed: int) -> list[dict[str, tuple[float, str]]]:
    """What was finished at each kill. The process is killed at random moments."""
    source = random.Random(seed)
    seen: list[dict[str, tuple[float, str]]] = []
    for _ in range(kills):
        process = subprocess.Popen(
            command(*more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + source.uniform(0.05, LONGEST_S)
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
        family = engines(process.pid)
        if process.poll() is not None:
            assert process.returncode == 0
            break  # it was through before the next kill
        process.kill()
        process.wait()
        assert all_gone(family)  # an engine dies with kvwise
        seen.append(units())
    return seen


def check_kills(kills: int, *more: str, seed: int) -> int:
    """Kill a sweep so often, or until it is through, let it finish, and see that every start is
    there once, as it was when it was first seen. Returns how often it was killed."""
    before = units()
    seen = killed_until(kills, *more, seed=seed)
    begun = units().keys() - before.keys()
    code, document = ended(*more, *(["--resume"] if begun else []))
    assert code == 0
    for earlier, later in pairwise([*seen, units()]):
        assert {key: later.get(key) for key in earlier} == earlier  # nothing lost, nothing twice
    for row in document["rows"]:
        assert row["state"] == "ok", row
        assert all(taken(each) >= 3 for each in row["tests"])
    with Store() as store:
        samples = [each.samples for each in load(store, kind="speed")]
    assert all(len({one.at for one in each}) == len(each) <= 3 for each in samples)
    return len(seen)


def test_kill_9_loses_nothing_and_repeats_nothing() -> None:
    assert check_kills(3, "--vary", "ctk=f16,q8_0", "-r", "3", seed=1) > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kill_9_fifty_times() -> None:
    wanted, kills, sweeps = int(os.environ.get("KVWISE_SOAK", "50")), 0, 0
    while kills < wanted:
        sweeps += 1
        tests = ("-p", "8", "-n", str(1 + sweeps))
        kills += check_kills(wanted - kills, "--matrix", "six", "-r", "3", *tests, seed=sweeps)
    assert kills >= wanted
    print(f"{kills} kills in {sweeps} sweeps, {len(units())} starts done, none lost, none twice")


def test_an_embedding_model_is_measured_and_kept_as_such() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvwise", "bench", str(minilm()), "-p", "64", "-t", "1", "-r", "2",
         "--retries", "0", "--engine", "embedded", "--json"],
        capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    (row,) = json.loads(done.stdout)["rows"]
    (test,) = row["tests"]
    assert (row["state"], test["test"], test["metric"]) == ("ok", "embd64", "embedding")
    assert test["tokens_per_s"]["median"] > 0
    assert taken(test) == 2
    assert all(not part["difference_bytes"] for part in row["memory"].values())
    with Store() as store:
        (kept,) = load(store)
    assert (kept.kind, kept.test["n_prompt"], kept.test["n_gen"]) == ("embedding", 64, 0)
