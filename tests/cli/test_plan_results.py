"""`kvwise plan` takes what was measured on this machine, and says so."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvwise.device import Host
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.opening import open_model
from kvwise.results import (
    EngineSeen,
    Machine,
    Measurement,
    Sample,
    machine_seen,
    model_seen,
    save,
    to_json,
    work_of,
)
from kvwise.store import Store
from zoo_files import ZOO

from .conftest import Kvwise

MODEL = str(ZOO / "models/qwen3-0.6b.json.gz")
DEPTH = 4096
BUILD = "b10605"  # what a model of the zoo is planned for
PLAN = ("plan", MODEL, "--cpu-only", "-c", "4096", "-ctk", "f16", "-ctv", "f16", "--no-simulate")
DAY_S = 86400


@pytest.fixture
def kept() -> Iterator[Store]:
    with Store() as store:
        yield store


def speed(
    value: float, *, metric: str = "decode", build: str = BUILD, days: float = 3.1,
    machine: Machine | None = None,
) -> Measurement:  # fmt: skip
    """As `kvwise bench` keeps it."""
    model, at = open_model(MODEL), time.time() - days * DAY_S
    launch = Launch(n_ctx=4096, n_gpu_layers=0, n_seq_max=1, n_outputs_max=1)
    ledger = account(model, launch, [], host=Host.of("8GiB"))
    return Measurement(
        kind="speed", at=at, machine=machine or machine_seen(),
        engine=EngineSeen("binary", build, "llama-bench"), model=model_seen(model),
        settings={"type_k": "f16", "type_v": "f16", "n_ctx": 4096},
        test={"metric": metric, "n_prompt": 0, "n_gen": 128, "depth": DEPTH},
        samples=(Sample(value, "tokens/s", at),), figures={"work": work_of(ledger, DEPTH)},
    )  # fmt: skip


def fidelity(type_k: str, type_v: str, divergence: float) -> Measurement:
    one = speed(1.0)
    return replace(
        one, kind="fidelity", samples=(), settings={"type_k": type_k, "type_v": type_v},
        test={"metric": "fidelity"}, figures={"kl_mean": divergence, "same_top": 1 - divergence},
    )  # fmt: skip


def document(quick: Kvwise, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(quick(*PLAN, *words, "--json").out)
    return found


def test_a_speed_of_this_machine_and_build_is_what_the_plan_says(
    quick: Kvwise, kept: Store
) -> None:
    assert document(quick)["measured"] is None
    save(kept, speed(33.0))
    found = document(quick)
    assert found["measured"]["said"] == ["speed: measured on this machine 3 days ago with b10605"]
    said = found["choice"]["speed"]
    assert said["basis"] == "measured"
    assert said["decode_range"]["low"] < 33 < said["decode_range"]["high"]
    assert "measured on this machine 3 days ago with b10605" in quick(*PLAN).out


def test_another_build_corrects_and_is_named(quick: Kvwise, kept: Store) -> None:
    save(kept, speed(33.0, build="b9000"))
    found = document(quick)
    (said,) = found["measured"]["said"]
    assert "with b9000" in said
    assert "b10605 is planned for" in said
    assert found["choice"]["speed"]["basis"] == "corrected"
    save(kept, speed(44.0))
    (said,) = document(quick)["measured"]["said"]
    assert said.endswith("with b10605")


def test_an_old_result_is_left_out_and_counted(quick: Kvwise, kept: Store) -> None:
    save(kept, speed(33.0, days=120.2))
    found = document(quick)
    assert found["measured"]["said"] == ["1 result(s) not used: measured 120 days ago"]
    assert found["choice"]["speed"]["basis"] == "roofline"


def test_results_that_were_disturbed_are_counted_with_the_reason(
    quick: Kvwise, kept: Store
) -> None:
    one = speed(33.0)
    flagged = tuple(replace(each, flags=("contended",)) for each in one.samples)
    for depth in (0, 1024, 2048):
        save(kept, replace(one, samples=flagged, test={**one.test, "depth": depth}))
    said = "3 result(s) not used: something else ran meanwhile"
    assert document(quick)["measured"]["said"] == [said]
    assert said in quick(*PLAN).out


def test_another_machine_counts_only_when_its_file_is_named(
    quick: Kvwise, kept: Store, tmp_path: Path
) -> None:
    other = speed(77.0, machine=Machine("desk", "linux x86_64", "AMD Ryzen 7", 8, 32 << 30))
    save(kept, other)
    assert document(quick)["measured"] is None
    place = tmp_path / "desk.jsonl"
    place.write_text(json.dumps(to_json(other)) + "\n", encoding="utf-8")
    found = document(quick, "--results", str(place))
    assert found["measured"]["said"] == ["speed: measured on desk 3 days ago with b10605"]
    assert found["choice"]["speed"]["basis"] == "measured"


def test_advice_uses_what_was_measured_here_and_in_a_file(
    quick: Kvwise, kept: Store, tmp_path: Path
) -> None:
    line = f"llama-server -m {MODEL} -c 4096 -ngl 0"
    words = ("plan", "--from", line, "--keep", "all", "--cpu-only", "--json")
    assert json.loads(quick(*words).out)["measured"] is None
    other = speed(77.0, machine=Machine("desk", "linux x86_64", "AMD Ryzen 7", 8, 32 << 30))
    place = tmp_path / "desk.jsonl"
    place.write_text(json.dumps(to_json(other)) + "\n", encoding="utf-8")
    found = json.loads(quick(*words, "--results", str(place)).out)
    assert "measured on desk 3 days ago" in found["measured"]["said"][0]
    save(kept, speed(33.0))
    found = json.loads(quick(*words).out)
    assert "measured on this machine" in found["measured"]["said"][0]
    assert found["measured"]["said"][0] in quick(*words[:-1]).out


def test_results_are_no_settings_to_advise_on(quick: Kvwise, tmp_path: Path) -> None:
    place = tmp_path / "desk.jsonl"
    place.write_text(json.dumps(to_json(speed(33.0))) + "\n", encoding="utf-8")
    done = quick("plan", MODEL, "--from", str(place))
    assert "holds measurements, not settings" in done.err
    assert f"--results {place}" in done.err


def test_a_gpu_that_is_named_is_not_this_machine(quick: Kvwise, kept: Store) -> None:
    save(kept, speed(33.0))
    words = ("plan", MODEL, "--gpu", "RTX 4060", "--no-simulate", "--json")
    assert json.loads(quick(*words).out)["measured"] is None


def test_a_measured_quality_decides_which_types_are_good_enough(quick: Kvwise, kept: Store) -> None:
    words = ("plan", MODEL, "--gpu", "1GiB", "--goal", "max-context", "--no-simulate", "--json")
    before = json.loads(quick(*words, "--min-quality", "high").out)
    assert before["choice"]["launch"]["type_k"] == "q8_0"
    save(kept, fidelity("q8_0", "q8_0", 0.5))  # this model breaks
    after = json.loads(quick(*words, "--min-quality", "high").out)
    assert after["choice"]["launch"]["type_k"] == "f16"
    assert "quality: measured on this machine 3 days ago with b10605" in after["measured"]["said"]
