"""What stands beside the model counts in every command: draft, MTP, projector, adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvwise.gguf.writer import write_twin
from memory.parts.encoders import encoder
from memory.parts.test_lora import adapter
from models import smollm2
from oracle.tools import MARKS, folder

from .conftest import QWEN, ZOO, Kvwise

SMALL = str(ZOO / "qwen3-0.6b.json.gz")
MTP = str(ZOO / "qwen3.6-35b-a3b-mtp.json.gz")
DRAFT = ("-md", SMALL, "--spec-type", "draft-simple")


def sums(document: Any) -> dict[str, int]:
    """Bytes of each companion, weights to output."""
    found: dict[str, int] = {}
    for extra in document["extras"]:
        found[extra["of"]] = found.get(extra["of"], 0) + extra["total_bytes"]
    return found


def bases(document: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for extra in document["extras"]:
        found.setdefault(extra["of"], set()).update(extra["basis"].values())
    return found


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A projector and an adapter for SmolLM2: headers with holes for the data."""
    paths = {"mmproj": tmp_path / "mmproj.gguf", "lora": tmp_path / "lora.gguf"}
    write_twin(encoder("qwen2vl_merger"), paths["mmproj"])
    write_twin(adapter(7), paths["lora"])
    return {name: str(path) for name, path in paths.items()}


class TestConfigs:
    LINES = '{"n_ctx": 4096}\n{"n_ctx": 8192, "device": "cpu", "engine_build": "b11549"}\n'

    def test_companions_count_for_every_line(self, quick: Kvwise, tmp_path: Path) -> None:
        path = tmp_path / "lines.jsonl"
        path.write_text(self.LINES)
        plain = quick("size", QWEN, "--configs", str(path)).out.splitlines()
        both = quick("size", QWEN, "--configs", str(path), *DRAFT).out.splitlines()
        for without, line in zip(map(json.loads, plain), map(json.loads, both), strict=True):
            assert sums(without).keys() == {"prompt_cache"}
            assert sums(line).keys() == {"draft", "speculation", "prompt_cache"}
            assert not [note for note in line["notes"] if note["code"] == "not_counted"]
            for old, new in zip(without["buffers"], line["buffers"], strict=True):
                assert new["total_bytes"] == old["total_bytes"] + new["extra_bytes"]
        # the same as asked one by one
        flags = ("-c", "8192", "-np", "1", "--no-repack", "-lm", "none", *DRAFT)
        alone = quick("size", QWEN, "--cpu-only", *flags, "--engine-build", "b11549", "--json").json
        assert sums(json.loads(both[1])) == sums(alone)

    def test_limits_of_the_prompt_cache_and_mtp(self, quick: Kvwise, tmp_path: Path) -> None:
        path = tmp_path / "lines.jsonl"
        path.write_text('{"n_ctx": 4096}\n')
        words = ("-cram", "0", "--spec-type", "draft-mtp")
        line = json.loads(quick("size", MTP, "--configs", str(path), *words).out)
        assert {"mtp", "speculation"} <= sums(line).keys()
        assert "prompt_cache" not in sums(line)

    def test_the_command_line_says_what_silent_lines_have(
        self, quick: Kvwise, tmp_path: Path
    ) -> None:
        path = tmp_path / "lines.jsonl"
        path.write_text('{}\n{"compute_mode": "reserved", "engine_build": "b10605"}\n')
        words = ("--engine-build", "b11549", "--compute-mode", "no-alloc", "-c", "512")
        done = quick("size", QWEN, "--configs", str(path), *words)
        first, second = map(json.loads, done.out.splitlines())
        assert (first["launch"]["build"], first["compute_mode"]) == ("b11549", "no-alloc")
        assert (second["launch"]["build"], second["compute_mode"]) == ("b10605", "reserved")
        assert first["launch"]["n_ctx"] == 8192
        assert "-c is left out" in done.err


class TestTable:
    def test_a_draft_shortens_the_longest_context(self, quick: Kvwise) -> None:
        words = ("table", QWEN, "--gpu", "RTX 4060", "--types", "q8_0", "--contexts", "4k")
        plain = quick(*words, "--json").json["cells"][0]
        both = quick(*words, *DRAFT, "--json").json["cells"][0]
        assert both["n_ctx_max"] < plain["n_ctx_max"]
        at = both["contexts"][0]
        assert plain["contexts"][0]["beside_bytes"] == 0 < at["beside_bytes"]
        ledger = quick(
            "size", QWEN, "--gpu", "RTX 4060", "-c", "4096", "-ctk", "q8_0", "-ctv", "q8_0",
            *DRAFT, "--json",
        ).json  # fmt: skip
        assert at["beside_bytes"] == ledger["buffers"][0]["extra_bytes"]
        assert "counted too: what stands beside the model" in quick(*words, *DRAFT).out


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
class TestSimulateEmbedded:
    def test_a_draft_is_measured_by_the_engine(self, kvwise: Kvwise) -> None:
        words = ("-c", "8192", "--cpu-only", *DRAFT)
        done = kvwise("simulate", QWEN, *words, "--engine", "embedded", "--json")
        assert done.code in (0, 3)
        document = done.json
        assert bases(document) == {
            "draft": {"simulated"}, "speculation": {"computed"}, "prompt_cache": {"computed"},
        }  # fmt: skip
        rows = [row for row in document["beside"]["lines"] if row["of"] == "draft"]
        assert [row["part"] for row in rows] == ["weights", "context", "compute", "output"]
        assert document["beside"]["agrees"], rows
        (host,) = document["buffers"]
        assert host["total_bytes"] > sums(document)["draft"] == host["extra_bytes"] - sums(
            document
        )["speculation"]  # fmt: skip
        told = {note["message"] for note in document["notes"] if note["code"] == "not_simulated"}
        assert "the prompt cache is in no pass of the engine: it is computed" in told

    def test_a_projector_and_an_adapter(self, kvwise: Kvwise, files: dict[str, str]) -> None:
        words = ("--mmproj", files["mmproj"], "--lora", files["lora"], "-cram", "100")
        done = kvwise(
            "simulate", str(smollm2()), "-c", "2048", "--cpu-only", *words, "--engine", "embedded"
        )
        assert done.code == 0
        assert "no difference: all 5 lines agree" in done.out
        # the engine's own estimate is that of the image it warms up with
        assert "the largest image takes 91.74" in done.out
        assert "LoRA adapters are in no pass of the engine: they are computed" in done.out
        assert "up to 100.0" in done.out


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
class TestSimulateOracle:
    pytestmark = MARKS

    @pytest.mark.parametrize(
        ("model", "words", "of"),
        [(QWEN, (*DRAFT, "-ngld", "10"), "draft"), (MTP, ("--spec-type", "draft-mtp"), "mtp")],
    )
    def test_drafts_on_gpus_that_are_not_here(
        self, kvwise: Kvwise, model: str, words: tuple[str, ...], of: str
    ) -> None:
        gpus = ("--gpu", "24GiB", "--gpu", "24GiB")
        asked = ("-c", "4096", *gpus, "--engine", str(folder()), *words, "--json")
        document = kvwise("simulate", model, *asked).json
        assert bases(document)[of] == {"simulated"}
        rows = [row for row in document["beside"]["lines"] if row["of"] == of]
        assert document["beside"]["agrees"], rows
        assert {row["buffer"] for row in rows} >= {"VGPU1", "CPU"}

    def test_a_projector_on_a_gpu(self, kvwise: Kvwise, files: dict[str, str]) -> None:
        words = ("-c", "2048", "--gpu", "24GiB", "--engine", str(folder()), "--json")
        document = kvwise(
            "simulate", str(smollm2()), *words, "--mmproj", files["mmproj"]
        ).json  # fmt: skip
        rows = {
            row["buffer"]: row for row in document["beside"]["lines"] if row["of"] == "mmproj"
        }  # fmt: skip
        assert rows.keys() == {"VGPU0", "CPU"}
        for row in rows.values():
            assert row["difference_bytes"] == 0
            assert row["reserved_bytes"] > row["computed_bytes"] > 0
