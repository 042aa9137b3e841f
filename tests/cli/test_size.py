"""`kvwise size`: the ledger as JSON and text, --configs, --shape, exit codes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import QWEN, ROOT, ZOO, Kvwise

MIB = 1024**2


def test_the_document_has_the_contracts_shape(quick: Kvwise) -> None:
    document = quick("size", QWEN, "-c", "8192", "-ngl", "20", "--gpu", "RTX 4060", "--json").json
    assert document["schema"] == "kvwise/ledger/1"
    assert {"name", "architecture", "path", "n_params", "tensor_bytes", "n_layer",
            "n_ctx_train"} <= set(document["model"])  # fmt: skip
    assert {"tool", "build", "n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "n_seq_max", "kv_unified",
            "flash_attn", "type_k", "type_v", "gpu_layers", "swa_full", "offload_kqv",
            "n_outputs_max", "argv"} <= set(document["launch"])  # fmt: skip
    for cache in document["caches"]:
        assert {"role", "kind", "cells", "streams", "n_layers", "type_k", "type_v", "k_bytes",
                "v_bytes", "r_bytes", "s_bytes"} <= set(cache)  # fmt: skip
    assert [buffer["host"] for buffer in document["buffers"]] == [False, True]
    for buffer in document["buffers"]:
        parts = [
            f"{part}_bytes" for part in ("weights", "context", "compute", "output", "overhead")
        ]
        assert buffer["total_bytes"] == sum(buffer[part] for part in parts)
        assert buffer["headroom_bytes"] == buffer["free_bytes"] - buffer["total_bytes"]
        assert set(buffer["basis"]) >= {"weights", "context", "compute"}
    assert document["fits"] is True
    assert document["misses_by_bytes"] == 0


def test_what_does_not_fit_is_exit_3_with_the_missing_bytes(quick: Kvwise) -> None:
    done = quick("size", QWEN, "-c", "32768", "--gpu", "6GiB", "--json")
    assert done.code == 3
    assert done.json["fits"] is False
    gpu = done.json["buffers"][0]
    assert done.json["misses_by_bytes"] == -gpu["headroom_bytes"] > 0
    text = quick("size", QWEN, "-c", "32768", "--gpu", "6GiB")
    assert text.code == 3
    assert "does not fit" in text.out


def test_what_llama_cpp_refuses_is_exit_3_with_its_code(quick: Kvwise) -> None:
    words = ("size", QWEN, "-fa", "off", "-ctv", "q8_0", "--cpu-only")
    done = quick(*words, "--json")
    assert done.code == 3
    assert set(done.json) == {"schema", "code", "message", "hint"}
    assert done.json["schema"] == "kvwise/refusal/1"
    assert done.json["code"] == "v_quant_needs_flash_attn"
    assert quick(*words).err.startswith("refused: ")


def test_the_reports_numbers(quick: Kvwise) -> None:
    """requirements.md A and B."""

    def cache(*words: str) -> int:
        document = quick("size", *words, "--ram", "200GiB", "--cpu-only", "--json").json
        return sum(row["k_bytes"] + row["v_bytes"] for row in document["caches"])

    shape = ("--shape", "24x16x48", "-ctk", "f32", "-ctv", "f32", "-c")
    assert cache(*shape, "4096") == 603_979_776
    assert cache(*shape, "3584") == 528_482_304
    assert cache(QWEN, "-c", "4096") == 576 * MIB
    assert cache(QWEN, "-c", "32768") == 4608 * MIB
    assert cache(QWEN, "-c", "4096", "-ctk", "q8_0") == 441 * MIB
    assert cache(QWEN, "-c", "4096", "-ctv", "q4_0") == 369 * MIB
    assert cache(QWEN, "-c", "4096", "-ctk", "q8_0", "-ctv", "q8_0") == 306 * MIB
    deepseek = str(ZOO / "deepseek-r1-distill-qwen-7b.json.gz")
    assert cache(deepseek, "-c", "8192") == 448 * MIB


@pytest.mark.parametrize("shape", ["24x16", "24x16x48,kv=5", "24x16x48,type=q9", "0x1x1",
                                   "9x9x9,a=1", "24x16x48,embd=100,type=q8_0",
                                   "99999999999x1x1"])  # fmt: skip
def test_a_shape_that_is_none(quick: Kvwise, shape: str) -> None:
    assert quick("size", "--shape", shape, "--cpu-only").code == 2


def test_a_shape_with_weights(quick: Kvwise) -> None:
    words = ("--shape", "36x32x128,kv=8,embd=4096,ff=12288,vocab=151936,type=q8_0", "--cpu-only",
             "--ram", "64GiB", "--json")  # fmt: skip
    document = quick("size", *words).json
    assert document["model"]["n_params"] > 8e9
    assert document["buffers"][-1]["weights_bytes"] > 8e9


def test_explain_names_a_rule_for_every_figure(quick: Kvwise) -> None:
    out = quick("size", QWEN, "-c", "4096", "--gpu", "RTX 4060", "--explain").out
    assert "src/llama-kv-cache.cpp" in out
    assert "603,979,776 bytes" in out


@pytest.mark.parametrize("name", ["qwen3-8b", "gemma-3-1b", "tiny-llama"])
def test_configs_give_the_golden_figures_line_by_line(kvwise: Kvwise, name: str) -> None:
    golden = json.loads(gzip.decompress((ROOT / f"tests/zoo/golden/{name}.json.gz").read_bytes()))
    entries = [e for e in golden["results"] if not e["config"].get("extra_bufts")][:40]
    lines = "".join(
        json.dumps({**golden["defaults"], **entry["config"]}) + "\n" for entry in entries
    )
    done = kvwise("size", str(ZOO / f"{name}.json.gz"), "--configs", "-", stdin=lines)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert len(answers) == len(entries)
    for entry, answer in zip(entries, answers, strict=True):
        _same(entry["result"], answer)


def _same(result: dict[str, Any], answer: dict[str, Any]) -> None:
    if not result["ok"]:
        assert answer["code"] == result["error_code"]
        return
    found = {
        part["buffer"]: part for line in answer["buffers"] for part in line.get("parts", [line])
    }
    for buffer in result["buffers"]:
        part = found[buffer["buffer"]]
        assert (part["weights_bytes"], part["context_bytes"]) == (
            buffer["model"],
            buffer["context"],
        )
    assert answer["launch"]["n_ctx"] == result["n_ctx"]


def test_a_bad_line_is_answered_too(kvwise: Kvwise, tmp_path: Path) -> None:
    file = tmp_path / "configs.jsonl"
    file.write_text('{"n_ctx": 1024}\nnot json\n\n[1]\n{"colour": 3}\n{"type_v": "q8_0"}\n')
    done = kvwise("size", QWEN, "--configs", str(file))
    schemas = [json.loads(line)["schema"] for line in done.out.splitlines()]
    error = "kvwise/error/1"
    assert schemas == ["kvwise/ledger/1", error, error, error, "kvwise/ledger/1"]
    assert done.code == 2
    said = [json.loads(line)["error"]["message"] for line in done.out.splitlines()[1:4]]
    for number, message in zip((2, 4, 5), said, strict=True):
        assert message.startswith(f"{file}, line {number}: ")
    assert kvwise("size", QWEN, "--configs", str(tmp_path / "none")).code == 1


@pytest.mark.parametrize(
    "line",
    ["[" * 100_000, '{"n_ctx": 1e400}', '{"n_ctx": ' + "9" * 5000 + "}", '{"tensor_split": [NaN]}',
     '{"n_ctx": null}', '{"engine_build": "\\ud800"}', "\x00", '{"n_gpu": 99}'],
)  # fmt: skip
def test_no_line_ends_the_stream(kvwise: Kvwise, line: str) -> None:
    good = '{"n_ctx": 1024}\n'
    done = kvwise("size", QWEN, "--configs", "-", stdin=f"{good}{line}\n{good}")
    schemas = [json.loads(answer)["schema"] for answer in done.out.splitlines()]
    assert len(schemas) == 3
    assert schemas[0] == schemas[2] == "kvwise/ledger/1"
    assert schemas[1] != "kvwise/ledger/1" or "build" in line


@pytest.mark.parametrize("line", ["[" * 100_000, '{"a":' * 100_000, "\x00", '{"n_ubatch": -1}'])
def test_a_line_that_is_no_configuration_does_not_end_the_others(kvwise: Kvwise, line: str) -> None:
    done = kvwise("size", QWEN, "--configs", "-", stdin=f"\ufeff{{}}\n{line}\n{{}}\n")
    answers = [json.loads(each) for each in done.out.splitlines()]
    assert done.code == 2
    assert [each["schema"] for each in answers] == [
        "kvwise/ledger/1", "kvwise/error/1", "kvwise/ledger/1",
    ]  # fmt: skip
    assert answers[1]["error"]["type"] == "UsageError"


def test_a_file_without_line_ends_is_not_read_whole(kvwise: Kvwise) -> None:
    done = kvwise("size", QWEN, "--configs", "/dev/zero", "--json")
    assert done.code == 2
    assert "longer than" in done.json["error"]["message"]
