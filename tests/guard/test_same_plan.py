"""`kvwise run` begins with the very choice that `kvwise plan` shows, and goes down its ladder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.test_plan_results import fidelity
from cli.test_plan_results import speed as measured_speed
from guard.fakes import fake, starts
from guard.running import KV_OOM, QWEN, free_port
from kvwise.cli._main import run as kvwise_main
from kvwise.options import read
from kvwise.results import Measurement, save
from kvwise.store import Store
from thinning import thinned

MOE = QWEN.replace("qwen3-8b", "qwen3-30b-a3b")
SMALL = QWEN.replace("qwen3-8b", "qwen3-0.6b")
FIELDS = (
    "n_ctx", "n_batch", "n_ubatch", "n_seq_max", "kv_unified", "type_k", "type_v", "n_gpu_layers",
    "n_cpu_moe", "override_tensor", "tensor_split", "devices", "offload_kqv", "flash_attn", "fit",
)  # fmt: skip
CARD = "name=Card,total=8188MiB,free={free}MiB,kind=cuda"
ONE, LITTLE = ("--gpu", CARD.format(free=7600)), ("--gpu", CARD.format(free=5000))
REQUESTS = [
    (QWEN, *ONE),
    (QWEN, *ONE, "--reserve", "1GiB", "--goal", "max-context"),
    (QWEN, *LITTLE, "--prompt-tokens", "8000", "-n", "500"),
    (QWEN, *ONE, "-c", "8k", "--slots", "4"),
    (QWEN, *ONE, "-np", "2", "-ub", "1024", "--min-quality", "medium"),
    (QWEN, *ONE, *LITTLE, "--turns", "20"),
    (QWEN, *LITTLE, "--never-offload"),
    (QWEN, "--cpu-only", "--ram", "12GiB"),
    (MOE, *ONE),
    (MOE, *ONE, "--engine-build", "b11549", "--goal", "max-speed"),
    (MOE, *ONE, "--n-outputs-max", "512"),
    (SMALL, *ONE),
]


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert kvwise_main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def settings(argv: list[str]) -> dict[str, Any]:
    launch = read(argv if argv[0].startswith("-") else argv[1:]).launch
    return {name: getattr(launch, name) for name in FIELDS}


def both(
    capsys: pytest.CaptureFixture[str], program: Path, *request: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    line = (*request, "--engine", str(program))
    plan = document(capsys, "plan", *line, "--no-simulate")
    return plan, document(capsys, "run", *line, "--dry-run")


@pytest.mark.parametrize(
    ("request_",), thinned([(each,) for each in REQUESTS]),
    ids=lambda words: " ".join(words[1:])[-60:],
)  # fmt: skip
def test_run_begins_with_the_choice_and_goes_down_the_ladder_that_plan_shows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, request_: tuple[str, ...]
) -> None:
    plan, run = both(capsys, fake(tmp_path), *request_)
    assert settings(run["commands"][0]) == settings(plan["commands"]["argv"])
    shown = [settings(rung["argv"]) for rung in plan["ladder"]]
    taken = [settings(step["argv"]) for step in run["ladder"]]
    assert taken[: len(shown)] == shown
    assert shown


def test_the_words_of_each_step_are_the_same_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = (QWEN, *LITTLE, "--prompt-tokens", "8000", "--engine", str(fake(tmp_path)))
    assert kvwise_main(["plan", *line, "--no-simulate", "--explain"]) == 0
    plan = capsys.readouterr().out
    assert kvwise_main(["run", *line, "--dry-run"]) == 0
    run = capsys.readouterr().out
    steps = [each.strip() for each in run.partition("step by step")[2].splitlines() if each.strip()]
    assert len(steps) == 6
    assert all(step in plan for step in steps)


@pytest.mark.parametrize("result", [
    fidelity("q8_0", "q8_0", 0.5), fidelity("q8_0", "q8_0", 0.0001), measured_speed(33.0),
])  # fmt: skip
def test_what_was_measured_counts_for_both(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, result: Measurement
) -> None:
    with Store() as kept:
        save(kept, result)
    request = (SMALL, "--gpu", CARD.format(free=2000), "--goal", "max-context")
    plan, run = both(capsys, fake(tmp_path), *request)
    assert settings(run["commands"][0]) == settings(plan["commands"]["argv"])
    if result.kind == "fidelity":
        lossy = result.figures["kl_mean"] > 0.1
        assert (plan["choice"]["launch"]["type_k"] == "q8_0") is not lossy


def test_a_start_that_fails_takes_the_rungs_of_the_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nobody said how much was refused: rung by rung, none is left out."""
    lines = ["E something: std::bad_alloc"]
    program = fake(tmp_path, {"lines": lines, "exit": 1})
    line = (QWEN, *ONE, "--engine", str(program))
    plan = document(capsys, "plan", *line, "--no-simulate")
    assert kvwise_main(["run", *line, "--port", str(free_port()), "--json"]) == 1
    begun = [settings(each["argv"]) for each in starts(tmp_path)]
    shown = [plan["commands"]["argv"], *(rung["argv"] for rung in plan["ladder"])]
    assert begun == [settings(argv) for argv in shown]


def test_rungs_that_cannot_be_enough_are_passed_over(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A GiB of cache was refused: each step gives back a growing share of that, on the ladder."""
    program = fake(tmp_path, {"lines": KV_OOM, "exit": 1})
    line = (QWEN, *ONE, "--engine", str(program))
    plan = document(capsys, "plan", *line, "--no-simulate")
    kvwise_main(["run", *line, "--port", str(free_port()), "--tries", "4", "--json"])
    events = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    for step, part in zip(steps, (8, 4, 2), strict=True):
        assert step["frees_bytes"] >= (1 << 30) // part
    shown = [settings(rung["argv"]) for rung in plan["ladder"]]
    first, second = (settings(each["argv"]) for each in starts(tmp_path)[1:3])
    assert shown.index(first) < shown.index(second)
