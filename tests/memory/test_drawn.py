"""Models drawn at random: tensors that converters may or may not write, odd sizes and settings.

`drawn.json.gz` holds, for each architecture of b10605 that loads by itself, small models whose
metadata, optional weights (fused or split Q, K and V, norms, biases, tied output, shared experts,
RoPE factors) and types were drawn, and what llama.cpp's own no-alloc pass said of drawn settings:
weights, context and compute per device, and the output buffer, in bytes. Names and shapes are those
that the loader asks for. GPUs are virtual, with the rules of the zoo (tests/zoo/README.md).
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvwise.arch import describe
from kvwise.arch.newer import NEWER
from kvwise.arch.table import ROWS
from kvwise.gguf.model import Model
from kvwise.gguf.source import BytesSource
from kvwise.gguf.zoo import read_zoo
from kvwise.memory.account import account
from kvwise.memory.zoo_config import read_config

Row = dict[str, Any]
ALONE = set(ROWS) - set(NEWER) - {"eagle3", "gemma4-assistant"}
"""Architectures of b10605; drafts load next to their target only."""


@cache
def drawn() -> list[Row]:
    data = (Path(__file__).parent / "drawn.json.gz").read_bytes()
    models: list[Row] = json.loads(gzip.decompress(data))["models"]
    return models


def architecture(row: Row) -> str:
    return str(row["metadata"]["general.architecture"])


def model_of(row: Row) -> Model:
    text = json.dumps({"metadata": row["metadata"], "tensors": row["tensors"]})
    return describe(read_zoo(BytesSource(text.encode(), "drawn.json")))


def differences(model: Model, result: Row) -> list[str]:
    """Every figure that is not what llama.cpp said, or not called exact."""
    zoo = read_config({**result["config"], "compute_mode": "no-alloc"})
    ledger = account(model, zoo.launch, zoo.devices, compute_mode="no-alloc")
    found = []
    for line in ledger.lines:
        said = result["buffers"].get("Host" if line.host else line.buffer, [0, 0, 0])
        ours = [line.weights_bytes, line.context_bytes, line.compute_bytes]
        if ours != said:
            found.append(f"{line.buffer}: {ours} for {said}")
        if line.basis["compute"] != "computed":
            found.append(f"{line.buffer}: {line.reasons.get('compute')}")
    if ledger.host.output_bytes != result["output"]:
        found.append(f"output: {ledger.host.output_bytes} for {result['output']}")
    return found


@pytest.mark.parametrize("name", sorted(ALONE))
def test_drawn_models_take_what_llama_cpp_says(name: str) -> None:
    wrong = [
        f"{result['config']}: {what}"
        for row in drawn()
        if architecture(row) == name
        for result in row["results"]
        for what in differences(model_of(row), result)
    ]
    assert wrong == []


def test_every_architecture_is_there() -> None:
    assert {architecture(row) for row in drawn()} == ALONE
