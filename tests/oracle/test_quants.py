"""Other quantizations take what llama-quantize says that they would, to its last digit."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kvwise.gguf.writer import write_twin
from kvwise.opening import open_model
from kvwise.plan.quants import QUANTS, requantized

from .tools import MARKS, folder

pytestmark = [*MARKS, pytest.mark.engine]

ZOO = Path(__file__).parents[1] / "zoo/models"
MODELS = ("llama-3.2-1b", "qwen3-30b-a3b", "mixtral-8x7b", "falcon-7b", "gemma-3n-e4b",
          "rwkv6-world-1.6b", "falcon-h1-1.5b", "smollm2-135m", "deepseek-v2-lite",
          "llama-3.3-70b")  # fmt: skip
_SIZE = re.compile(r"quant size\s*=\s*([\d.]+) MiB")


@pytest.mark.parametrize("name", MODELS)
def test_sizes_are_those_of_a_dry_run(name: str, tmp_path: Path) -> None:
    tool = folder() / "llama-quantize"
    if not tool.exists():
        pytest.skip("llama-quantize is not here")
    model = open_model(str(ZOO / f"{name}.json.gz"))
    twin = tmp_path / "twin.gguf"
    write_twin(requantized(model, "F16").header, twin)
    for quant in QUANTS:
        if quant in {"F16", "BF16"}:
            continue
        said = subprocess.run(
            [str(tool), "--dry-run", str(twin), quant],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        found = _SIZE.search(said.stdout + said.stderr)
        assert found, said.stderr[-500:]
        ours = requantized(model, quant).header.tensor_bytes / 2**20
        assert ours == pytest.approx(float(found[1]), abs=0.006), quant
