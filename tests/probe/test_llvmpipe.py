"""Vulkan for real, on Mesa's software GPU; its memory is ours, so the address space is limited."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvwise.cli._main import run

MIB = 1 << 20
_ASK = """
import json, resource, sys
limit = int(sys.argv[1])
if limit:
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from kvwise.probe.document import document
from kvwise.probe.survey import Wish, survey
report = survey(Wish(only=("vulkan",), quick=sys.argv[2] == "quick", full=True))
print(json.dumps(document(report)))
"""


def _survey(limit: int = 0, how: str = "full", **env: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _ASK, str(limit), how],
        env={**os.environ, "LP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def software() -> Callable[..., dict[str, Any]]:
    """The survey of a machine where llvmpipe is the only device that llama.cpp may use."""
    found = _survey(how="quick", GGML_VK_VISIBLE_DEVICES="0")
    if not found["devices"] or not found["devices"][0]["software"]:
        pytest.skip("no software Vulkan driver (Debian: mesa-vulkan-drivers, libvulkan1)")

    def survey(limit: int = 0, how: str = "full", **env: str) -> dict[str, Any]:
        whole = _survey(limit, how, GGML_VK_VISIBLE_DEVICES="0", **env)
        assert whole["failures"] == []
        row: dict[str, Any] = whole["devices"][0]
        return row

    return survey


Survey = Callable[..., dict[str, Any]]


def test_what_the_driver_says(software: Survey) -> None:
    row = software(how="quick")
    assert row["name"].startswith("llvmpipe")
    assert (row["device"], row["outcome"]) == ("Vulkan0", "asked")
    assert row["heaps"] == [{"size_bytes": row["total_bytes"], "on_device": True,
                             "budget_bytes": None}]  # fmt: skip
    assert row["max_buffer_bytes"] >= row["max_allocation_bytes"] // 2 > 0
    assert row["chunk_bytes"] == min(1 << 30, row["max_allocation_bytes"])


def test_memory_is_really_taken_written_and_given_back(software: Survey) -> None:
    """More address space, more memory: what was found is what could be had."""
    sizes = []
    for limit in (1000 * MIB, 1300 * MIB):
        row = software(limit)
        assert row["outcome"] == "measured"
        assert 16 * MIB <= row["largest_block_bytes"] <= row["all_blocks_bytes"] < limit
        assert row["all_blocks_bytes"] <= row["ceiling_bytes"]
        assert sum(row["blocks"]) == row["all_blocks_bytes"]
        assert row["write_bytes_per_s"] > 10**8
        assert row["spilled"] is None  # it is the host's memory in any case
        codes = {note["code"] for note in row["notes"]}
        assert not codes & {"read_back", "leak", "driver", "broken"}
        sizes.append(row["all_blocks_bytes"])
    assert sizes[1] - sizes[0] >= 100 * MIB


def test_it_is_left_alone_where_nothing_limits_it(software: Survey) -> None:
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        pytest.skip("the address space of these tests is limited")
    row = software()
    assert row["outcome"] == "asked"
    assert {note["code"] for note in row["notes"]} == {"software"}


def test_llama_cpps_sizes_in_the_environment(software: Survey) -> None:
    row = software(
        how="quick",
        GGML_VK_SUBALLOCATION_BLOCK_SIZE="67108864",
        GGML_VK_FORCE_MAX_BUFFER_SIZE=str(300 * MIB),
    )
    assert row["chunk_bytes"] == 64 * MIB
    assert row["max_buffer_bytes"] == 300 * MIB
    row = software(1300 * MIB, GGML_VK_FORCE_MAX_BUFFER_SIZE=str(300 * MIB))
    assert row["largest_block_bytes"] == 300 * MIB
    assert row["plan"]["max_block_bytes"] == 300 * MIB


def test_a_plan_keeps_to_what_was_measured_here(
    software: Survey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From memory that was really taken to the command line: no buffer that had no place."""
    model = str(Path(__file__).parents[1] / "zoo/models/qwen3-0.6b.json.gz")

    def plan(whole: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "probe.json").write_text(json.dumps(whole))
        words = ["plan", model, "--goal", "max-context", "--json", "--no-simulate", "--ram", "8GiB",
                 "--never-offload", "--device-file", str(tmp_path / "probe.json")]  # fmt: skip
        capsys.readouterr()
        code = run(words)
        return {"code": code, **json.loads(capsys.readouterr().out)}

    asked = _survey(how="quick", GGML_VK_VISIBLE_DEVICES="0")
    measured = _survey(1700 * MIB, GGML_VK_VISIBLE_DEVICES="0")
    promised, had = (whole["devices"][0]["plan"]["free_bytes"] for whole in (asked, measured))
    assert had < promised
    large, small = plan(asked), plan(measured)
    gpu = large["choice"]["ledger"]["buffers"][0]
    assert gpu["device"].startswith("llvmpipe")
    if small["code"] == 0:
        row, fewer = measured["devices"][0]["plan"], small["choice"]["ledger"]["buffers"][0]
        assert fewer["total_bytes"] <= had - row["reserve_bytes"] < gpu["total_bytes"]
        assert small["choice"]["launch"]["n_ctx"] < large["choice"]["launch"]["n_ctx"]
        assert row["max_block_bytes"] >= fewer["largest_block_bytes"]
    else:
        assert small["code"] == 3


def test_a_processor_is_no_gpu_unless_named(software: Survey) -> None:
    assert _survey(how="quick")["devices"] == [] or not any(
        row["software"] for row in _survey(how="quick")["devices"]
    )


def test_a_place_that_does_not_exist(software: Survey) -> None:
    whole = _survey(how="quick", GGML_VK_VISIBLE_DEVICES="7")
    assert whole["devices"] == []
    assert whole["failures"][0]["values"]["call"] == "GGML_VK_VISIBLE_DEVICES"


def test_no_driver_is_no_failure(software: Survey) -> None:
    whole = _survey(how="quick", VK_LOADER_DRIVERS_DISABLE="*", VK_DRIVER_FILES="/nothing.json",
                    VK_ICD_FILENAMES="/nothing.json")  # fmt: skip
    assert (whole["devices"], whole["failures"]) == ([], [])
