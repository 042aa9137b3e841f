"""`kvwise inspect`: facts of real headers; hostile files end in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import QWEN, ROOT, ZOO, Kvwise

ATTACKS = sorted((ROOT / "tests/attacks").glob("*.gguf"))


def test_facts_of_a_model(quick: Kvwise) -> None:
    facts = quick("inspect", QWEN, "--json").json
    assert facts["schema"] == "kvwise/inspect/1"
    assert facts["model"]["architecture"] == "qwen3"
    assert facts["model"]["n_layer"] == 36
    assert set(facts["attention"]["n_head_kv"]) == {8}
    costs = {row["type"]: row["bytes"] for row in facts["cache"]["per_token"]}
    assert (costs["f16"], costs["q8_0"], costs["f32"]) == (147_456, 78_336, 294_912)
    types = facts["tensors"]["by_type"]
    assert sum(row["bytes"] for row in types) == facts["model"]["tensor_bytes"]
    layers = facts["tensors"]["by_layer"]
    assert sum(row["bytes"] for row in layers) == facts["model"]["tensor_bytes"]
    assert [row["layer"] for row in layers] == [*range(36), None]


def test_windows_and_states_do_not_grow(quick: Kvwise) -> None:
    gemma = quick("inspect", str(ZOO / "gemma-3-1b.json.gz"), "--json").json
    f16 = next(row for row in gemma["cache"]["per_token"] if row["type"] == "f16")
    assert gemma["attention"]["window"] == 512
    assert 0 < f16["bytes"] < f16["fixed_bytes"]
    mamba = quick("inspect", str(ZOO / "mamba-130m.json.gz"), "--json").json
    state = next(row for row in mamba["cache"]["per_token"] if row["type"] == "f16")
    assert state["bytes"] == 0 < state["fixed_bytes"]


def test_types_that_llama_cpp_refuses_are_null(quick: Kvwise) -> None:
    shape = quick("inspect", "--shape", "2x4x40", "--json").json
    refused = {row["type"] for row in shape["cache"]["per_token"] if row["bytes"] is None}
    assert {"q8_0", "q4_0", "iq4_nl"} <= refused
    assert "f16" not in refused
    assert "refused" in quick("inspect", "--shape", "2x4x40").out


def test_the_text_groups_layers_that_look_alike(quick: Kvwise) -> None:
    out = quick("inspect", QWEN).out
    assert "0-3, 6, 9" in out
    assert "147,456" in out
    assert len(quick("inspect", QWEN, "-v").out.splitlines()) > len(out.splitlines()) + 30


TRAINED = {"qwen3-8b": 40960, "gpt2-xl": 1024, "mamba-130m": 1048576, "gemma-3-1b": 32768}


@pytest.mark.parametrize("name", TRAINED)
def test_no_context_is_shown_that_the_model_was_not_trained_for(name: str, quick: Kvwise) -> None:
    done = quick("inspect", str(ZOO / f"{name}.json.gz"))
    heading = next(line for line in done.out.splitlines() if line.startswith("K and V"))
    shown = [int(each.replace(",", "")) for each in heading.split()[6:] if each != "at"]
    assert shown[-1] == TRAINED[name]
    assert shown == sorted(set(shown))
    assert set(shown[:-1]) <= {4096, 32768}


def test_a_model_without_a_cache_gets_no_table_of_zeros(quick: Kvwise) -> None:
    out = quick("inspect", str(ZOO / "bge-small-en-v1.5.json.gz")).out
    assert "It keeps no cache" in out
    assert "K and V" not in out.split("It keeps no cache")[1]


@pytest.mark.parametrize("path", ATTACKS, ids=lambda path: path.stem)
def test_a_bad_file_is_one_line_on_stderr(quick: Kvwise, path: Path) -> None:
    done = quick("inspect", str(path))
    assert (done.code, done.out) == (1, "")
    lines = done.err.splitlines()
    assert lines[0].startswith("error: ")
    assert len(lines) <= 2
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("path", ["", "nothing.gguf", "/", "/dev/null", "hf:", "ollama:", "x\ny"])
def test_what_is_no_model(quick: Kvwise, path: str) -> None:
    done = quick("inspect", path, "--json")
    assert done.code in {1, 2}
    assert done.json["schema"] == "kvwise/error/1"
