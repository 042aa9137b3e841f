"""What `kvwise plan` says to a person: short by default, everything with --explain."""

from __future__ import annotations

import re
import unicodedata

import pytest

from kvwise.device import Device
from kvwise.memory.account import account
from kvwise.opening import open_model
from kvwise.options import read

from .conftest import QWEN, ZOO, Kvwise

CARD = ("--gpu", "name=RTX 4060,os=linux", "--ram", "32GiB", "--no-simulate")
TWO = ("--gpu", "name=RTX 4060,os=linux", "--gpu", "name=RTX 3060 Ti GDDR6,os=linux",
       "--ram", "32GiB", "--no-simulate")  # fmt: skip


def wide(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def test_the_short_version_has_no_chapters_of_the_long_one(quick: Kvwise) -> None:
    short = quick("plan", QWEN, *CARD).out
    assert "What else is worth a look" in short
    for chapter in ("What the speed stands on", "What if", "If it fails after all"):
        assert chapter not in short


def test_the_long_version_has_them_all(quick: Kvwise) -> None:
    long = quick("plan", QWEN, *CARD, "--explain").out
    assert "What the speed stands on" in long
    assert "272 GB/s" in long
    assert re.search(r"500\.0 MiB more on CUDA0: [\d,]+ tokens more", long)
    assert re.search(r"as Q6_K, about [\d,.]+ MiB of weights: [\d,]+ tokens per slot", long)
    assert "If it fails after all, in this order" in long


@pytest.mark.parametrize("language", ["en", "zh"])
def test_tables_and_bars_stay_within_80_columns(
    quick: Kvwise, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = quick("--lang", language, "plan", QWEN, *TWO, "--slots", "2", "--explain").out
    lines = out.splitlines()
    sentences = ("  - ", "llama-server ")
    tables = [line for line in lines if not line.startswith(sentences)]
    assert max(wide(line) for line in tables) <= 80


def test_two_gpus_are_told_apart_in_every_step_down(quick: Kvwise) -> None:
    out = quick("plan", QWEN, *TWO, "--slots", "2", "--explain").out
    steps = out.split("If it fails after all, in this order")[1].split("bash:")[0]
    rungs = [line for line in steps.splitlines() if line.startswith("  - ")]
    assert rungs
    assert all("CUDA0" in rung and "CUDA1" in rung for rung in rungs)


@pytest.mark.parametrize("model", [QWEN, str(ZOO / "gpt-oss-20b.json.gz")])
def test_the_flags_of_an_alternative_make_it(quick: Kvwise, model: str) -> None:
    document = quick("plan", model, *CARD, "--json").json
    out = quick("plan", model, *CARD).out
    shown = out.split("What else is worth a look")[1].split("bash:")[0]
    lines = [line for line in shown.splitlines() if line.startswith("  - ")]
    assert len(lines) == len(document["alternatives"]) > 0
    card = Device.of("name=RTX 4060,os=linux")
    for line, other in zip(lines, document["alternatives"], strict=True):
        assert other["trades"] in line
        flags = line.split(": ")[-1].split()
        argv = [*document["commands"]["argv"][1:], *flags]
        launch = read(argv).launch
        made = account(open_model(model), launch, [card])
        assert made.context.n_ctx == other["launch"]["n_ctx"]
        assert made.context.type_k == other["launch"]["type_k"]
        assert made.launch.offload_kqv == other["launch"]["offload_kqv"]


def test_the_document_has_what_ifs_only_when_explained(quick: Kvwise) -> None:
    assert quick("plan", QWEN, *CARD, "--json").json["what_if"] is None
    cases = quick("plan", QWEN, *CARD, "--json", "--explain").json["what_if"]
    assert cases[0]["kind"] == "memory"
    assert {each["basis"] for each in cases if each["kind"] == "quant"} == {"estimated"}


def test_size_says_the_speed_of_a_full_slot(quick: Kvwise) -> None:
    done = quick("size", QWEN, "-c", "8192", "-np", "1", *CARD[:4])
    assert re.search(r"\d+ to \d+ tokens per second with 8,192 in the context", done.out)
    speed = quick("size", QWEN, "-c", "8192", "-np", "1", *CARD[:4], "--json").json["speed"]
    assert speed["depth"] == 8192
    assert speed["decode_range"]["low"] < speed["decode_range"]["high"]
    only_numbers = quick("size", "--shape", "24x16x48", "-c", "4096", *CARD[:4])
    assert "per second" not in only_numbers.out


def test_a_draft_that_nothing_uses_is_warned_of_before_the_reasons(quick: Kvwise) -> None:
    line = ("plan", QWEN, "-md", str(ZOO / "qwen3-0.6b.json.gz"), *CARD)
    out = quick(*line).out
    warned = out.index("warning: -md loads a draft that nothing uses: add --spec-type")
    assert warned < out.index("  - ")
    assert out.count("nothing uses") == 1
    assert "nothing uses" not in quick(*line, "--spec-type", "draft-simple").out
