"""The rules beside a really allocating engine, on a twin of every architecture of the zoo.

Twins are sparse files: real header, holes for weights. The engine maps them, allocates caches and
output for real, and is stopped before it computes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import kvwise
from kvwise.engine.find import find
from kvwise.engine.process import Child, Limits
from kvwise.engine.server import command
from kvwise.engine.settings import Run
from kvwise.errors import Refused
from kvwise.gguf.open import open_header
from kvwise.gguf.writer import write_twin
from kvwise.memory.account import account
from kvwise.probe.host import host
from kvwise.verify import compare
from kvwise.verify.compare import engine_features
from zoo_files import ZOO, zoo_names

TINY = [name for name in zoo_names() if name.startswith("tiny-")]
FEW = {
    "tiny-" + name
    for name in (
        "llama", "qwen35", "gemma2", "gemma3n", "gemma4", "gpt-oss", "mistral4", "deepseek32",
        "minimax-m3", "mamba", "mamba2", "rwkv7", "jamba", "qwen3next", "lfm2", "granitehybrid",
        "kimi-linear", "bert", "llama4", "falcon-h1", "plamo2", "chatglm", "glm4", "t5",
    )
}  # fmt: skip
"""One or more of each cache family; the others run with `-m slow`."""
DIES = {"tiny-deepseek4", "tiny-plm"}
"""b11549 stops in the middle of creating these contexts: nothing to compare."""

SETTINGS = {
    "split": ["-c", "1024", "-np", "2", "-no-kvu"],
    "unified": ["-c", "3000", "-np", "3", "-kvu", "-ctk", "q8_0", "-ctv", "q8_0", "--swa-full"],
}
CASES = [
    pytest.param(name, words, id=f"{name}-{label}", marks=[] if name in FEW else pytest.mark.slow)
    for name in TINY
    if name not in DIES
    for label, words in SETTINGS.items()
]


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
@pytest.mark.parametrize(("name", "words"), CASES)
def test_a_real_allocation_is_as_computed(name: str, words: list[str], tmp_path: Path) -> None:
    twin = tmp_path / "twin.gguf"
    write_twin(open_header(str(ZOO / "models" / f"{name}.json.gz")), twin)
    model = kvwise.open_model(str(twin))
    engine = find("embedded")
    launch = replace(kvwise.Launch.parse(words), build=engine.build or "")
    argv = command(twin, launch, engine, Run(threads=1, warmup=False))
    with Child(argv, limits=Limits(silence_s=60)) as child:
        loaded = child.loaded
        child.wait_until(lambda: loaded.main is not None and bool(loaded.main.compute), 60)
        child.kill()
        child.wait()
    seen = replace(host(), cpu_features=engine_features(loaded) or ())
    try:
        ledger = account(model, launch, (), host=seen)
    except Refused:  # ours and the engine's refusals are the same
        assert loaded.main is None or not loaded.main.compute
        return
    # the engine may be stopped before the line of its compute buffer is whole
    rows = [row for row in compare(ledger, loaded) if row.decisive or row.measured is not None]
    assert any(row.decisive for row in rows)
    assert [row for row in rows if not row.agrees] == []
