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
    "rpc-unreachable": "error: the RPC peer refused: update client",
    "request-refused": "error: the chat template failed to render",
    "device-missing": "error: no device called CUDA7",
    "cache-type-refused": "error: q2_K is not a type for the cache type of K",
    "fit-crash": "error: an exception while fitting parameters",
    "single-allocation-limit": "error: 5368709120 bytes exceed the device buffer limit",
    "prompt-truncation": "error: the history was trimmed to what fits",
    "swa-reprocessing": "the prompt is reprocessed from scratch",
    "vram-spill-slow": "error: pages are evicted to shared GPU memory",
    "kernel-bug-garbage": "error: NaN found in the logits",
    "fa-auto-disabled": "error: flash attention is disabled on this card",
    "recurrent-state-oom": "error: not enough memory for the recurrent state",
    "model-refused": "error: the model could not be loaded",
    "weights-oom": "error: not enough memory for this",
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


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("weights-oom", "error: not enough memory for these tensors"),
        ("kv-alloc-oom", "error: not enough memory for the KV cache"),
        ("compute-oom", "error: not enough memory for the graph"),
    ],
)
def test_a_line_that_says_what_does_not_fit_decides_however_far_the_load_was(
    kind: str, line: str
) -> None:
    for before in BEFORE.values():
        assert diagnose(before + line, numbers=False).findings[0].kind == kind


def test_the_memory_of_the_host_is_named_as_such() -> None:
    found = diagnose("error: not enough system memory for this model", numbers=False)
    assert found.findings[0].memory_pool == "host-ram"


@pytest.mark.parametrize(
    "line",
    [
        "Failed to open file 'm.gguf' with error: Invalid argument. Falling back to buffered I/O",
        "model vocab missing newline token, using special_pad_id instead",
        "failed to allocate 512 bytes, retrying",
        'time=2026-01-01T00:00:00Z level=WARN msg="cannot open the icon file"',
        "[WARN] invalid magic in the thumbnail cache",
    ],
)
def test_a_line_that_says_that_it_is_harmless_is_not_blamed(line: str) -> None:
    assert diagnose(line, numbers=False).blamed == ()


@pytest.mark.parametrize("end", ["cpp", "cu", "cuh", "c", "m", "h", "hpp", "mm"])
def test_where_a_program_stopped_is_a_crash_and_its_path_says_nothing(end: str) -> None:
    found = diagnose(f"/src/ggml-cuda/file.{end}:12: unsupported type 7", numbers=False)
    assert [each.kind for each in found.findings if not each.guessed] == ["engine-crash"]
    assert diagnose(f"/src/file.{end}:12: warning: unused", numbers=False).findings == ()
