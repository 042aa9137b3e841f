"""Files without tensors that llama.cpp does without: the embedded engine decides what that takes.

Its no-alloc pass over twins of the zoo's models, on the processor.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.engine.find import embedded
from kvwise.gguf.header import Header
from kvwise.gguf.open import open_header
from kvwise.gguf.source import BytesSource
from kvwise.gguf.writer import write_twin
from kvwise.gguf.zoo import read_zoo
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.simulate import simulation
from kvwise.tiers import tiers
from zoo_files import ZOO

DRAWN = Path(__file__).parents[1] / "drawn.json.gz"
SETTINGS: tuple[dict[str, Any], ...] = (
    {"n_ubatch": 512},
    {"n_seq_max": 2, "n_outputs_max": 2, "n_ubatch": 128, "flash_attn": "off"},
)
PLAIN = Launch(n_ctx=4096, n_batch=512, n_outputs_max=1, mmap=False, repack=False)
GIB = 1 << 30


def without(header: Header, part: str) -> Header:
    return replace(header, tensors=tuple(t for t in header.tensors if part not in t.name))


def unshared(name: str) -> Header:
    """Experts without a shared network: three graphs add its activation all the same."""
    return without(open_header(str(ZOO / "models" / f"{name}.json.gz")), "shexp")


def codeshell() -> Header:
    """The output matrix a second time in place of token embeddings, and a large one."""
    models = json.loads(gzip.decompress(DRAWN.read_bytes()))["models"]
    row = next(m for m in models if m["metadata"]["general.architecture"] == "codeshell")
    header = read_zoo(BytesSource(json.dumps({k: row[k] for k in ("metadata", "tensors")}).encode(),
                                  "drawn.json"))  # fmt: skip
    return without(header, "token_embd")


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="no xllamacpp")
@pytest.mark.parametrize(
    "header",
    [
        pytest.param(lambda: unshared("tiny-kimi-linear"), id="kimi-linear"),
        pytest.param(lambda: unshared("tiny-hy_v3"), id="hy_v3"),
        pytest.param(lambda: unshared("tiny-step35"), id="step35"),
        pytest.param(lambda: unshared("tiny-kimi-k3"), id="kimi-k3"),
        pytest.param(codeshell, id="codeshell"),
    ],
)
@pytest.mark.parametrize("settings", SETTINGS, ids=["one", "two slots"])
def test_the_engines_pass_says_the_same(
    header: Callable[[], Header], settings: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "twin.gguf"
    write_twin(header(), path)
    beside = tiers(simulation(str(path), replace(PLAIN, **settings), engine=embedded()))
    assert beside.expected.host.basis["compute"] == "computed"
    assert beside.agrees, [(row.part, row.expected, str(row.simulated)) for row in beside.wrong]


def test_the_second_copy_is_where_the_output_is() -> None:
    header = codeshell()
    gpu = Device("card", "rpc", 8 * GIB, 8 * GIB)
    made = account(describe(header), replace(PLAIN, n_gpu_layers=999), (gpu,))
    plain = sum(-(-t.nbytes // 128) * 128 for t in header.tensors)
    twice = header.by_name["output.weight"].nbytes
    assert made.lines[0].weights_bytes == plain + -(-twice // 128) * 128
    assert made.host.weights_bytes == 0
