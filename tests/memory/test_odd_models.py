"""Headers that no converter would write: a ledger or a sentence, in bounded time, never a crash."""

from __future__ import annotations

import gzip
import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.errors import KvwiseError
from kvwise.gguf.model import Model
from kvwise.gguf.source import BytesSource
from kvwise.gguf.zoo import read_zoo
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.compute import growing, reserve, result
from kvwise.memory.compute.builder import Builder
from kvwise.memory.ledger import Ledger
from kvwise.text import say
from kvwise.units import GIB

MODELS = Path(__file__).parents[1] / "zoo" / "models"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in MODELS.glob("tiny-*.gz"))
GPUS = tuple(Device(f"GPU {n}", "cuda", 24 * GIB, 24 * GIB, index=n) for n in range(2))
NUMBERS = st.one_of(st.integers(-3, 70), st.sampled_from([2**16, 2**31 - 1, 2**32 - 1, 2**40]))
SIZES = st.one_of(st.integers(1, 4096), st.integers(1, 16).map(lambda k: 256 * k))
LAUNCHES = st.sampled_from(
    [
        Launch(n_ctx=4096),
        Launch(n_ctx=4096, flash_attn="off", n_gpu_layers=1),
        Launch(n_ctx=2048, n_seq_max=4, type_k="q8_0", type_v="q8_0", n_gpu_layers=2),
        Launch(n_ctx=2048, n_ubatch=32, offload_kqv=False, embeddings=True),
    ]
)


@cache
def document(name: str) -> dict[str, Any]:
    """The parts of a zoo model that may be changed without contradiction."""
    whole = json.loads(gzip.decompress((MODELS / f"{name}.json.gz").read_bytes()))
    rows = [[name, shape, kind, None, layers] for name, shape, kind, _, layers in whole["tensors"]]
    return {"metadata": whole["metadata"], "tensors": rows}


def model_of(made: dict[str, Any]) -> Model:
    return describe(read_zoo(BytesSource(json.dumps(made).encode(), "odd.json")))


@st.composite
def odd(draw: st.DrawFn) -> dict[str, Any]:
    """A zoo model with a few tensors taken away, other shapes and other numbers."""
    made = deepcopy(document(draw(st.sampled_from(NAMES))))
    tensors, metadata = made["tensors"], made["metadata"]
    for _ in range(draw(st.integers(0, 3))):
        row = draw(st.sampled_from(tensors))
        match draw(st.sampled_from(["drop", "shape", "shape", "flat", "type"])):
            case "drop":
                tensors.remove(row)
            case "shape":
                place = draw(st.integers(0, len(row[1]) - 1))
                row[1] = [*row[1]]
                row[1][place] = draw(SIZES)
            case "flat":
                row[1] = row[1][: draw(st.integers(1, len(row[1])))]
            case _:
                row[2] = draw(st.sampled_from(["f32", "f16", "q4_0", "q8_0", "i32", "bf16"]))
        if not tensors:
            break
    keys = [key for key, value in metadata.items() if _number(value)]
    for _ in range(draw(st.integers(0, 3))):
        key = draw(st.sampled_from(keys))
        action = draw(st.sampled_from(["drop", "number"]))
        if action == "drop":
            metadata.pop(key, None)
        else:
            metadata[key] = draw(NUMBERS)
    return made


def _number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@settings(max_examples=150, deadline=5000)
@given(odd(), LAUNCHES, st.sampled_from([(), GPUS[:1], GPUS]))
def test_a_ledger_or_a_sentence(
    made: dict[str, Any], launch: Launch, devices: tuple[Device, ...]
) -> None:
    try:
        ledger = account(model_of(made), launch, devices)
    except KvwiseError:
        return
    assert all(line.total_bytes >= 0 for line in ledger.lines)


@pytest.mark.parametrize("name", ["tiny-qwen35", "tiny-afmoe", "tiny-llama"])
def test_a_file_with_weights_of_more_layers_than_it_says_it_has(name: str) -> None:
    made = deepcopy(document(name))
    architecture = made["metadata"]["general.architecture"]
    made["metadata"][f"{architecture}.block_count"] = 1
    for row in made["tensors"]:  # no known graph is near to matrices of one column
        row[1] = [row[1][0], *[1 for _ in row[1][1:]]]
    ledger = account(model_of(made), Launch(n_ctx=4096), GPUS[:1])
    assert ledger.lines[0].compute_bytes > 0


def _broken(_: Builder) -> None:
    raise ZeroDivisionError("no heads")


def _codes(ledger: Ledger) -> list[str]:
    return [note.code for note in ledger.notes]


def test_a_graph_that_cannot_be_made_costs_no_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "BUILDERS", {"llama": _broken})
    ledger = account(model_of(document("tiny-llama")), Launch(n_ctx=4096), GPUS[:1])
    assert _codes(ledger) == ["compute_graph_failed", "compute_estimated"]
    assert "ZeroDivisionError" in say(ledger.doubts[-1])
    assert ledger.lines[0].basis["compute"] == "estimated"
    assert ledger.lines[0].compute_bytes > 0
    assert not ledger.verified


def test_nor_does_an_estimate_that_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> list[int]:
        raise RecursionError

    monkeypatch.setattr(reserve, "BUILDERS", {"llama": _broken})
    monkeypatch.setattr(result, "estimate", fails)
    ledger = account(model_of(document("tiny-llama")), Launch(n_ctx=4096), GPUS[:1])
    assert "compute_graph_failed" in _codes(ledger)
    assert ledger.lines[0].compute_bytes > 0


def test_numbers_that_vary_are_given_up_where_a_graph_cannot_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plain(work: object, _: object) -> object:
        tried.append(1)
        raise TypeError("only plain numbers")

    tried: list[int] = []
    model = model_of(document("tiny-llama"))
    sound = account(model, Launch(n_ctx=4096), GPUS[:1])
    monkeypatch.setattr(growing, "varied", plain)
    for n_ctx in (4096, 8192):
        ledger = account(model_of(document("tiny-llama")), Launch(n_ctx=n_ctx), GPUS[:1])
        assert not _codes(ledger)
        if n_ctx == 4096:
            assert ledger.lines == sound.lines
    assert len(tried) == 2


def test_an_unknown_graph_is_said_to_be_estimated() -> None:
    made = deepcopy(document("tiny-llama"))
    made["tensors"].append(["blk.0.attn_qkv.weight", [256, 256], "f32", None, None])
    ledger = account(model_of(made), Launch(n_ctx=4096), GPUS[:1])
    assert _codes(ledger) == ["compute_estimated"]
    assert ledger.lines[0].basis["compute"] == "estimated"


@pytest.mark.parametrize("name", ["tiny-mistral4", "tiny-smallthinker"])
def test_a_router_that_llama_cpp_aborts_on_is_told(name: str) -> None:
    made = deepcopy(document(name))
    architecture = name.removeprefix("tiny-")
    made["metadata"][f"{architecture}.expert_gating_func"] = 7
    ledger = account(model_of(made), Launch(n_ctx=512), [])
    assert ledger.host.basis["compute"] == "estimated"
    assert "no router of kind 7" in str(ledger.host.reasons["compute"])
    assert not [note for note in ledger.notes if note.code == "compute_graph_failed"]
