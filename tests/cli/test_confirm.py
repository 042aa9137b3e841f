"""A plan that an engine confirms, contradicts, or cannot be asked about."""

from __future__ import annotations

from pathlib import Path

import pytest

from models import smollm2
from oracle.tools import MARKS, folder

from .conftest import QWEN, Kvwise

PLAN = ("plan", QWEN, "--gpu", "6GiB", "--ram", "32GiB", "-c", "8192", "--n-outputs-max", "0")


def _engine(folder: Path, script: str) -> str:
    for name in ("llama-server", "llama-fit-params"):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_without_an_engine_nothing_is_confirmed(kvwise: Kvwise) -> None:
    done = kvwise(*PLAN, "--json", env={"PATH": "/nonexistent"})
    assert done.code == 0
    assert done.json["confirmed"] is None


def test_other_figures_are_a_disagreement(kvwise: Kvwise, tmp_path: Path) -> None:
    engine = _engine(tmp_path, "echo 'RPC0 4455 1152 999'; echo 'Host 333 0 24'")
    done = kvwise(*PLAN, "--engine", engine, "--json")
    assert done.code == 0
    confirmed = done.json["confirmed"]
    assert (confirmed["basis"], confirmed["agrees"]) == ("simulated", False)
    (row,) = [row for row in confirmed["choice"]["differs"] if row["part"] == "compute"]
    assert (row["buffer"], row["simulated_bytes"]) == ("VGPU0", 999 << 20)
    assert row["computed_bytes"] == done.json["choice"]["ledger"]["buffers"][0]["compute_bytes"]
    said = kvwise(*PLAN, "--engine", engine).out
    assert "disagrees on the choice" in said


def test_an_engine_that_cannot_be_asked_stops_no_plan(kvwise: Kvwise, tmp_path: Path) -> None:
    engine = _engine(tmp_path, "exit 1")
    done = kvwise(*PLAN, "--engine", engine, "--json")
    assert done.code == 0
    confirmed = done.json["confirmed"]
    assert (confirmed["basis"], confirmed["choice"], confirmed["agrees"]) == (None, None, None)
    assert confirmed["why"]
    assert "not confirmed by" in kvwise(*PLAN, "--engine", engine).out
    skipped = kvwise(*PLAN, "--engine", engine, "--no-simulate", "--json")
    assert skipped.json["confirmed"] is None


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_the_embedded_engine_confirms_a_plan_for_the_processor(kvwise: Kvwise) -> None:
    done = kvwise("plan", QWEN, "--cpu-only", "--ram", "16GiB", "--json")
    confirmed = done.json["confirmed"]
    assert confirmed["engine"]["kind"] == "embedded"
    assert confirmed["agrees"], confirmed
    assert len(confirmed["ladder"]) == len(done.json["ladder"])


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
class TestOracle:
    pytestmark = MARKS

    @pytest.mark.parametrize("gpus", [["6GiB"], ["3GiB", "4GiB"]])
    def test_gpus_that_are_not_here(self, kvwise: Kvwise, gpus: list[str]) -> None:
        words = [word for gpu in gpus for word in ("--gpu", gpu)]
        document = kvwise("plan", QWEN, *words, "--engine", str(folder()), "--json").json
        confirmed = document["confirmed"]
        assert confirmed["basis"] == "simulated"
        assert confirmed["agrees"], confirmed
        assert confirmed["choice"]["fits"]

    def test_a_draft_is_confirmed_with_its_model(self, kvwise: Kvwise) -> None:
        file = str(smollm2())
        draft = ("-md", file, "--spec-type", "draft-simple", "-c", "4096")
        words = ("plan", file, *draft, "--gpu", "1GiB", "--engine", str(folder()), "--json")
        confirmed = kvwise(*words).json["confirmed"]
        assert confirmed["choice"]["differs"] == []
        assert confirmed["agrees"], confirmed
