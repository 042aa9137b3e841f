"""Lines that no wording knows: their plain words point at a cause, but only as a last resort."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvwise.diagnose import diagnose
from kvwise.diagnose.finding import LIKELY
from kvwise.diagnose.rules import HINTS

HEALTHY = (Path(__file__).parent / "logs/healthy-b10605.log").read_text("utf-8")
LINES = {
    "device-lost-timeout": "ERROR: the compute device was removed by the system",
    "split-missing": "error: shard 3 of 5 is missing",
    "spec-vocab": "error: the draft has an incompatible vocabulary",
    "embed-ubatch": "error: text exceeds the physical batch of 512",
    "kv-slot-exhaustion": "error: KV slots exhausted",
    "context-overflow": "error: this text is longer than the model's context",
    "fa-required": "error: this cache needs flash attention",
    "option-refused": "error: unrecognised option --frobnicate",
    "port-taken": "error: port 8080 is already occupied",
    "arch-unknown": "error: the architecture 'mamba9' is not implemented",
    "missing-tensor": "error: tensor blk.0.attn_q.weight has the wrong shape",
    "file-corrupt": "error: checksum of the model differs",
    "engine-incomplete": "error: could not find ggml-hip.dll",
    "file-missing": "error: cannot open /models/a.gguf",
    "wrong-kernel-build": "error: no suitable GPU found",
    "hang": "error: timed out waiting for the model",
    "engine-crash": "error: the server crashed",
    "weights-oom": "error: not enough memory for this model",
    "kv-alloc-oom": "error: not enough memory for this",
    "compute-oom": "error: not enough memory for this",
    "runtime-vram-growth": "error: not enough memory for this",
}
BEFORE = {
    "kv-alloc-oom": "llama_context: n_ctx         = 4096\n",
    "compute-oom": "common_init_from_params: warming up the model with an empty run - please wait "
    "... (--no-warmup to disable)\nterminate called after throwing an instance of 'x'\n",
    "runtime-vram-growth": HEALTHY + "terminate called after throwing an instance of 'x'\n",
}


def test_every_hint_has_a_line() -> None:
    assert {rule.kind for rule in HINTS} == set(LINES)


@pytest.mark.parametrize("kind", LINES)
def test_plain_words_point_at_a_cause(kind: str) -> None:
    found = diagnose(BEFORE.get(kind, "") + LINES[kind], numbers=False).findings
    first = next(each for each in found if each.rule.startswith("hint-"))
    assert first == found[0]
    assert first.kind == kind
    assert first.memory_is_the_cause == (kind.endswith("oom") or kind == "runtime-vram-growth")
    assert first.confidence < LIKELY
    assert first.evidence[-1].text == LINES[kind]


def test_a_known_wording_speaks_alone() -> None:
    log = "error: invalid argument: --no-such\nerror: the architecture 'x' is not implemented\n"
    found = diagnose(log, numbers=False)
    assert [each.kind for each in found.blamed] == ["option-refused"]


@pytest.mark.parametrize("level", ["W", "I"])
def test_what_the_engine_calls_a_warning_is_not_blamed(level: str) -> None:
    log = f"0.00.360.389 {level} ggml_x: unsupported GPU, could not initialize the device\n"
    assert diagnose(log, numbers=False).blamed == ()


def test_a_load_that_went_on_is_not_blamed() -> None:
    log = "error: cannot open the icon file\n"
    assert diagnose(log, numbers=False).blamed
    assert diagnose(HEALTHY + log, numbers=False).blamed == ()
