"""What `kvwise bench` knows before it starts anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from models import minilm, smollm2

QWEN = Path(__file__).resolve().parent.parent / "zoo/models/qwen3-8b.json.gz"


def planned(*more: str) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "kvwise", "bench", str(smollm2()), "--engine", "embedded",
         "--dry-run", "--json", *more],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


def test_the_matrix_has_all_legal_pairs_and_says_why_not_the_others() -> None:
    code, document = planned("--matrix", "kv", "-fa", "off")
    assert code == 0
    rows = document["rows"]
    assert len(rows) == 81
    refused = [row for row in rows if row["code"]]
    assert len(refused) == 9 * 6  # V quantized, without flash attention
    assert {row["code"] for row in refused} == {"v_quant_needs_flash_attn"}
    assert all(row["starts"] >= 1 for row in rows if not row["code"])
    assert all(row["predicted"] is None for row in refused)
    per_value = {"f32": (4, 1), "f16": (2, 1), "bf16": (2, 1), "q8_0": (34, 32), "q4_0": (18, 32)}
    for row in rows:
        types = row["settings"]["type_k"], row["settings"]["type_v"]
        assert types == (row["varied"]["ctk"], row["varied"]["ctv"])
        if not row["code"] and set(types) <= set(per_value):
            (cache,) = row["predicted"]["caches"]
            values = 30 * 3 * 64 * cache["cells"]
            sizes = [values * up // down for up, down in map(per_value.__getitem__, types)]
            assert [cache["k_bytes"], cache["v_bytes"]] == sizes


def test_what_memory_cannot_hold_is_not_started_unless_forced() -> None:
    _, document = planned("-c", "99000000")
    (row,) = document["rows"]
    assert (row["code"], row["starts"]) == ("does_not_fit", 0)
    assert document["commands"] == []
    _, document = planned("-c", "99000000", "--force")
    (row,) = document["rows"]
    assert row["code"] is None
    assert len(document["commands"]) == 1


def test_tests_beyond_the_models_training_are_left_out() -> None:
    _, document = planned("-d", "0,8000", "-p", "512", "-n", "64")
    (row,) = document["rows"]
    assert row["tests"] == ["pp512", "tg64", "tg64@d8000"]
    _, document = planned("-d", "9000")
    (row,) = document["rows"]
    assert row["code"] == "beyond_training"


def test_what_the_embedded_engine_cannot_be_told_is_a_row() -> None:
    _, document = planned("--vary", "dev=CUDA0")
    (row,) = document["rows"]
    assert row["code"] == "UsageError"
    assert "devices" in row["message"]


def test_a_text_that_is_not_there_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    code, document = planned("--quality", "--text", str(tmp_path / "none.txt"))
    assert code == 1
    assert "none.txt" in document["error"]["message"]


def test_a_report_that_could_not_be_written_is_said_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    code, document = planned("--report", str(tmp_path / "file" / "a.md"))
    assert code == 1
    assert "is no folder" in document["error"]["message"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--vary", "ctk=f16,f17"), "cache type"),
        (("--matrix", "six", "--vary", "ctv=f16"), "exclude"),
        (("--resume", "--fresh"), "exclude"),
        (("--text", "a.txt"), "--quality"),
        (("-p", "0", "-n", "0"), "nothing to run"),
        (("-r", "100000"), "from 1 to 1000"),
        (("--tool", "llama-bench", "-t", "1,2"), "not a whole number"),
    ],
)
def test_wrong_requests(words: tuple[str, ...], said: str) -> None:
    code, document = planned(*words)
    assert code == 2
    assert said in document["error"]["message"]


def test_a_header_can_be_planned_for_another_card_and_not_measured() -> None:
    words = ("bench", str(QWEN), "--engine", "embedded", "--gpu", "3GiB", "--json")

    def told(*more: str) -> tuple[int, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "kvwise", *words, *more],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout)

    code, document = told("--dry-run")
    assert code == 0
    assert [row["code"] for row in document["rows"]] == ["does_not_fit"]
    _, document = told("--dry-run", "-ngl", "8")
    assert [row["code"] for row in document["rows"]] == [None]
    code, document = told()
    assert code == 2
    assert "--gpu is for --dry-run" in document["error"]["message"]


def _embedding(*more: str) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "kvwise", "bench", str(minilm()), "--json", *more],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


def test_an_embedding_model_reads_and_never_generates() -> None:
    code, document = _embedding("--dry-run", "-p", "16,512,1000", "-d", "0,64")
    assert code == 0
    (row,) = document["rows"]
    assert row["tests"] == ["embd16", "embd512"]  # it has no place for 1,000
    code, document = _embedding("--dry-run", "-p", "0", "-n", "16")
    assert [each["code"] for each in document["rows"]] == ["embedding"]
    code, document = _embedding("--dry-run", "--vary", "ub=64,256", "-p", "64,128")
    assert [each["tests"] for each in document["rows"]] == [["embd64"], ["embd64", "embd128"]]
    code, document = _embedding("--quality")
    assert code == 2
    assert "makes vectors" in document["error"]["message"]


def test_a_draft_counts_in_what_fits() -> None:
    card = ("--gpu", "200MiB", "-ngl", "99")
    draft = ("-md", str(smollm2()), "--spec-type", "draft-simple")
    (alone,) = planned(*card)[1]["rows"]
    (both,) = planned(*card, *draft)[1]["rows"]
    assert (alone["code"], both["code"]) == (None, "does_not_fit")
    twice, once = both["predicted"]["buffers"][0], alone["predicted"]["buffers"][0]
    assert twice["extra_bytes"] >= once["weights_bytes"]
    assert {extra["of"] for extra in both["predicted"]["extras"]} >= {"draft"}


def test_a_file_beside_the_model_that_is_missing_is_a_row_with_its_reason() -> None:
    code, document = planned("--vary", "mmproj=none.gguf;ub=64,128")
    assert code == 0
    assert [row["starts"] for row in document["rows"]] == [0, 0]
    assert all("none.gguf" in row["message"] for row in document["rows"])


def test_a_plan_for_people_shows_what_each_setting_takes() -> None:
    words = ("--gpu", "RTX 4060", "--gpu", "RTX 4060", "--vary", "ctk=f16,q8_0")
    done = subprocess.run(
        [sys.executable, "-m", "kvwise", "bench", str(smollm2()), "--engine", "embedded",
         "--dry-run", *words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    head, *rows = done.stdout.splitlines()[1:4]
    columns = re.split(r"\s{2,}", head)
    assert columns[3:8] == ["cache MiB", "compute MiB", "CUDA0 MiB", "CUDA1 MiB", "CPU MiB"]
    for shown, row in zip(rows, planned(*words)[1]["rows"], strict=True):
        ledger = row["predicted"]
        cache = sum(each["k_bytes"] + each["v_bytes"] for each in ledger["caches"])
        sizes = [each["total_bytes"] for each in ledger["buffers"]]
        compute = sum(each["compute_bytes"] for each in ledger["buffers"])
        want = [f"{size / 2**20:,.2f}" for size in (cache, compute, *sizes)]
        assert re.split(r"\s{2,}", shown)[3:8] == want


def test_a_plan_for_people_has_a_command_for_people() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvwise", "bench", str(smollm2()), "--engine", "embedded",
         "--dry-run", "-ub", "128"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    last = done.stdout.splitlines()[-1]
    assert last.startswith("llama-server -m ")
    assert "-ub 128" in last
    document = planned("-ub", "128")[1]
    assert document["internal"] is True  # nobody could type the embedded engine's own
    assert document["as_llama_server"] == [last]
