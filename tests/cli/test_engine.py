"""Commands that start the real engine: exact counts and a proof."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from models import smollm2 as smollm2_file

from .conftest import QWEN, Kvwise

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]


@pytest.fixture
def smollm2() -> str:
    return str(smollm2_file())


def test_tokens_and_what_is_left(kvwise: Kvwise, smollm2: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog.\n" * 40, encoding="utf-8")
    document = kvwise("tokens", smollm2, str(text), "--json").json
    assert document["schema"] == "kvwise/tokens/1"
    assert document["tokens"] == 440
    assert document["left"] == 8192 - 440
    trained = kvwise("tokens", smollm2, str(text), "-c", "0").out
    assert "of the 8,192 tokens the model was trained for" in trained
    small = kvwise("tokens", smollm2, "-", "-c", "256", stdin=text.read_text())
    assert small.code == 3
    assert "185 too many for -c 256" in small.out


def test_a_plan_counts_the_prompt(kvwise: Kvwise, smollm2: str, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("The quick brown fox jumps over the lazy dog.\n" * 40, encoding="utf-8")
    document = kvwise("plan", smollm2, "--gpu", "2GiB", "--prompt", str(prompt), "--json").json
    assert document["prompt_tokens"] == 440
    assert document["predict_tokens_max"] == document["choice"]["launch"]["n_ctx_seq"] - 440


def test_verify_finds_no_difference(kvwise: Kvwise, smollm2: str) -> None:
    done = kvwise("verify", smollm2, "-c", "512", "-np", "1", "-ctk", "q8_0", "-ctv", "q8_0")
    assert done.code == 0
    assert "no difference" in done.out
    assert "main K" in done.out


def test_a_dry_run_starts_nothing(kvwise: Kvwise, smollm2: str) -> None:
    line = ("verify", smollm2, "-c", "512", "--dry-run")
    done = kvwise(*line)
    assert done.code == 0
    typed = shlex.split(done.out)
    assert typed[:5] == ["llama-server", "-m", smollm2, "-c", "512"]
    document = kvwise(*line, "--json").json
    assert document["internal"] is True  # nobody could type the embedded engine's own
    assert document["as_llama_server"] == [typed]


def test_a_header_alone_cannot_be_loaded(kvwise: Kvwise, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("x")
    for words in (("verify", QWEN), ("tokens", QWEN, str(text))):
        done = kvwise(*words, "--json")
        assert (done.code, done.json["error"]["type"]) == (2, "UsageError")


def test_files_that_are_no_text(kvwise: Kvwise, smollm2: str, tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    assert kvwise("tokens", smollm2, str(binary)).code == 1
    assert kvwise("tokens", smollm2, str(tmp_path / "none")).code == 1
