"""`kvwise run` end to end: the steps down from each failure that less can cure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guard.fakes import SERVE_AND_END, fake, last, starts
from guard.running import (
    GPU,
    KV_OOM,
    QWEN,
    TAKEN,
    Inside,
    gone,
)


def test_it_steps_down_until_it_fits(tmp_path: Path, inside: Inside) -> None:
    program = fake(tmp_path, {"lines": KV_OOM, "exit": 1, "above": {"-c": 9000}, "soon": True})
    done = inside(program, QWEN, *GPU)
    assert done.code == 0
    steps = done.named("step")
    assert steps
    assert all(step["frees_bytes"] > 0 for step in steps)
    assert all("less on card" in step["message"] for step in steps)
    assert done.named("ready")[0]["launch"]["n_ctx"] <= 9000
    assert done.causes() == ["kv-alloc-oom"] * len(steps)


@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        ({"signal": 9}, "killed"),
        ({"signal": 11}, "crash"),
        ({"signal": 6, "lines": ["ggml.c:1: GGML_ASSERT(x) failed"]}, "crash"),
        ({"exit": 1, "lines": ["E graph_reserve: failed to allocate compute pp buffers"]},
         "compute-oom"),
        ({"exit": 1, "lines": ["E load_tensors: unable to allocate CUDA0 buffer"]}, "weights-oom"),
        ({"exit": 1, "lines": ["ggml_vulkan: vk::Queue::submit: ErrorDeviceLost"]},
         "device-lost-timeout"),
        ({"exit": 1, "lines": ["something: std::bad_alloc"]}, "out-of-memory"),
        ({"exit": 1, "lines": ["E Requested buffer size exceeds device memory allocation limit"]},
         "single-allocation-limit"),
        ({"hang": True}, "hang"),
        ({"spin": True}, "hang"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_each_failure_that_less_can_cure_is_tried_again(
    tmp_path: Path, inside: Inside, behaviour: dict[str, Any], cause: str
) -> None:
    program = fake(tmp_path, behaviour, SERVE_AND_END)
    done = inside(program, *TAKEN, "-c", "16384", "--may-change", "all", "--hang-after", "1")
    assert done.code == 0
    assert done.causes() == [cause]
    assert done.named("step")[0]["changes"]
    assert len(starts(tmp_path)) == 2


def test_a_load_that_never_ends_is_ended(tmp_path: Path, inside: Inside) -> None:
    program = fake(tmp_path, {"busy": 60}, SERVE_AND_END)
    done = inside(program, *TAKEN, "-c", "4096", "--load-timeout", "2")
    assert done.code == 0
    assert done.causes() == ["slow-start"]
    assert gone(starts(tmp_path)[0]["pid"])


def test_cache_types_that_the_engine_lacks_are_taken_back(tmp_path: Path, inside: Inside) -> None:
    lines = ["E llama_init_from_model: quantized V cache requires flash_attn to be enabled"]
    program = fake(tmp_path, {"lines": lines, "exit": 1}, SERVE_AND_END)
    done = inside(program, QWEN, *GPU)
    assert done.causes() == ["cache-types"]
    assert done.named("ready")[0]["launch"]["type_v"] == "f16"
    program = fake(tmp_path / "b", {"lines": lines, "exit": 1})
    done = inside(program, *TAKEN, "-ctk", "q8_0", "-ctv", "q8_0")
    assert done.code == 1  # what was asked for is not taken back unasked


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ("gguf_init_from_file: failed to open GGUF file 'm.gguf' (No such file)", "file-missing"),
        ("gguf_init_from_reader: invalid magic characters: 'hell', expected 'GGUF'",
         "file-corrupt"),
        ("error loading model: unknown model architecture: 'new'", "arch-unknown"),
        ("error: invalid argument: --nope", "bad-flag"),
        ("llama_model_load: error loading model: missing tensor 'blk.0.x'", "missing-tensor"),
        ("CUDA error: no kernel image is available for execution on the device",
         "wrong-kernel-build"),
    ],
)  # fmt: skip
def test_what_no_setting_can_cure_is_told_at_once(
    tmp_path: Path, inside: Inside, lines: str, cause: str
) -> None:
    done = inside(fake(tmp_path, {"lines": [lines], "exit": 1}), *TAKEN)
    assert done.code == 1
    (failed,) = done.named("failed")
    assert (failed["cause"], failed["curable"]) == (cause, False)
    assert failed["evidence"]
    assert len(starts(tmp_path)) == 1


def test_a_dead_rpc_server_is_told_at_once(tmp_path: Path, inside: Inside) -> None:
    lines = ["0.00.000.001 E Failed to connect to 127.0.0.1:1"]
    program = fake(tmp_path, {"lines": lines, "above": {"-c": 0}, "busy": 20})
    done = inside(program, "-m", "m.gguf", "-c", "4096", "--rpc", "127.0.0.1:1")
    assert done.code != 0
    assert done.causes() == ["rpc-dead"]
    assert len(starts(tmp_path)) == 1
    assert gone(starts(tmp_path)[0]["pid"])


def test_an_unknown_refusal_is_heard_twice_and_not_more(tmp_path: Path, inside: Inside) -> None:
    done = inside(fake(tmp_path, {"exit": 3}), "-m", "m.gguf")
    assert done.code == 3
    assert len(starts(tmp_path)) == 2
    assert done.causes()[-1] == "unknown"


def test_tries_are_bounded(tmp_path: Path, inside: Inside) -> None:
    done = inside(fake(tmp_path, {"lines": KV_OOM, "exit": 1}), *TAKEN, "--tries", "3")
    assert done.code == 1
    assert len(starts(tmp_path)) == 3
    assert "--tries" in done.named("gave-up")[0]["message"]


FIXED = ("-c", "16384", "-ctk", "q8_0", "-ctv", "q8_0", "-ub", "128")


def test_what_was_fixed_stays_and_is_named(tmp_path: Path, inside: Inside) -> None:
    done = inside(fake(tmp_path, {"lines": KV_OOM, "exit": 1}), *TAKEN, *FIXED)
    assert done.code == 1
    assert len(starts(tmp_path)) == 1
    said = done.named("gave-up")[0]["message"]
    assert "--may-change context" in said
    assert "-c 16384 -> " in said


def test_what_was_fixed_moves_when_it_may(tmp_path: Path, inside: Inside) -> None:
    program = fake(tmp_path, {"lines": KV_OOM, "exit": 1, "above": {"-c": 9000}, "soon": True})
    done = inside(program, *TAKEN, *FIXED, "--may-change", "context")
    assert done.code == 0
    assert done.named("ready")[0]["launch"]["n_ctx"] <= 9000
    assert all(step["knobs"] == ["context"] for step in done.named("step"))
    argv = starts(tmp_path)[-1]["argv"]
    assert last(argv, "-ub") == "128"
    assert argv.count("-c") == 2  # the user's word stays; the last one counts


def test_a_model_that_kvwise_cannot_read_is_stepped_down_too(
    tmp_path: Path, inside: Inside
) -> None:
    program = fake(tmp_path, {"lines": KV_OOM, "exit": 1}, SERVE_AND_END)
    done = inside(program, "-m", "no-such.gguf", "-c", "16384")
    assert done.code == 0
    assert done.named("step")[0]["changes"] == {"-ctk": ["f16", "q8_0"], "-ctv": ["f16", "q8_0"]}
