"""Commands that start an engine tell the doctor's finding of a failure, not its raw last line."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from kvwise.cli._finding import finding_of
from kvwise.engine.outcome import Ending, Outcome
from kvwise.text import phrase
from kvwise.verify import Attempt
from models import smollm2

REFUSED = (
    "llama_kv_cache_init: offloading 32 layers to GPU",
    (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: "
        "cudaMalloc failed: out of memory"
    ),
    "alloc_tensor_range: failed to allocate CUDA0 buffer of size 4294967296",
    (
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv "
        "cache"
    ),
)


def failed(*tail: str, code: int = 1) -> Attempt:
    outcome = Outcome(Ending.REFUSED, code, 1, 1.0, ready=False, tail=tail)
    return Attempt(0, 1.0, error=outcome.sentence, outcome=outcome)


def test_the_lines_of_a_failure_are_diagnosed() -> None:
    found = finding_of(failed(*REFUSED))
    assert found is not None
    assert (found.kind, found.memory_pool) == ("kv-alloc-oom", "vram")


def test_nothing_is_said_of_runs_that_went_well_or_said_nothing() -> None:
    assert finding_of(Attempt(0, 1.0)) is None
    assert finding_of(Attempt(0, 1.0, error=phrase("no answer"))) is None
    assert finding_of(failed("loading", "still loading")) is None


def _little() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1_000_000 << 10, 1_000_000 << 10))


@pytest.mark.engine
def test_verify_says_why_a_real_engine_could_not_load() -> None:
    command = [
        sys.executable, "-m", "kvwise", "verify", str(smollm2()), "-c", "32768", "-np", "4",
        "--no-kv-unified", "--no-simulate",
    ]  # fmt: skip
    done = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=False, preexec_fn=_little
    )
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 1
    assert "does not fit" in error["message"] or "memory" in error["message"]
    assert error["hint"]
