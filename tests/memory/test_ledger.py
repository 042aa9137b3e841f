"""The ledger: lines, fits and misses, doubts, reasons, JSON; and figures people published."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cache_setup as setup

from kvwise.arch import describe
from kvwise.device import Device, Host
from kvwise.errors import Refused
from kvwise.gguf.header import Header
from kvwise.gguf.model import Model
from kvwise.gguf.shape import header_of_shape
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.memory.overhead import overhead
from kvwise.memory.report import ledger_json, ranges, refusal_json
from kvwise.text import say
from kvwise.units import GIB, MIB

F32: dict[str, Any] = {"type_k": "f32", "type_v": "f32"}
SHAPE = describe(header_of_shape("24x16x48"))


def ledger_of(
    model: Model = SHAPE,
    devices: tuple[Device, ...] = (),
    host: Host | None = None,
    **settings: Any,
) -> Ledger:
    return account(model, Launch(**settings), devices, host=host, compute_mode="none")


def kv(model: Model = SHAPE, **settings: Any) -> int:
    return ledger_of(model, **settings).host.context_bytes


class TestPublished:
    """Arithmetic that people did by hand; where they erred, the right value."""

    per_token = 147_456

    def test_a_token_of_24_layers_16_heads_of_48_in_f32(self) -> None:
        assert kv(n_ctx=256, **F32) == 256 * self.per_token

    @pytest.mark.parametrize(("tokens", "size"), [(4096, 603_979_776), (3584, 528_482_304)])
    def test_contexts(self, tokens: int, size: int) -> None:
        assert kv(n_ctx=tokens, **F32) == size

    @pytest.mark.parametrize(("size", "tokens"), [(800 * MIB, 5_688), (600 * MIB, 4_266)])
    def test_tokens_in_a_budget(self, size: int, tokens: int) -> None:
        assert size // self.per_token == tokens
        room = tokens // 256 * 256
        assert kv(n_ctx=room, **F32) <= size < kv(n_ctx=room + 256, **F32)

    def test_a_million_tokens(self) -> None:
        assert 1_000_000 * self.per_token == 147_456_000_000
        padded = -(-1_000_000 // 256) * 256
        assert kv(n_ctx=1_000_000, **F32) == padded * self.per_token

    def test_chunks_and_their_embeddings(self) -> None:
        chunks = -(-1_000_000 // 4096)
        assert (chunks, chunks * 768 * 4) == (245, 752_640)

    def test_half_of_the_layers_is_half_of_the_cache(self) -> None:
        gpu = (Device("A", "generic", 8 * GIB, 8 * GIB),)
        ledger = ledger_of(SHAPE, gpu, n_ctx=4096, n_gpu_layers=13, **F32)
        assert [line.context_bytes for line in ledger.lines] == [603_979_776 // 2] * 2

    @pytest.mark.parametrize(
        ("n_ctx", "type_k", "type_v", "mib"),
        [
            (4096, "f16", "f16", 576),
            (8192, "f16", "f16", 1152),
            (16384, "f16", "f16", 2304),
            (32768, "f16", "f16", 4608),
            (4096, "q8_0", "f16", 441),
            (4096, "f16", "q4_0", 369),
            (4096, "q8_0", "q8_0", 306),
        ],
    )
    def test_qwen3_8b(self, n_ctx: int, type_k: str, type_v: str, mib: int) -> None:
        assert (
            kv(setup.zoo_model("qwen3-8b"), n_ctx=n_ctx, type_k=type_k, type_v=type_v) == mib * MIB
        )

    def test_shares_of_six_gib(self) -> None:
        shares = [round(100 * mib / 6144, 1) for mib in (576, 1152, 2304, 4608)]
        assert shares == [9.4, 18.8, 37.5, 75.0]

    def test_deepseek_r1_distill_qwen_7b(self) -> None:
        model = setup.zoo_model("deepseek-r1-distill-qwen-7b")
        assert kv(model, n_ctx=8192) == 448 * MIB == 8192 * 57_344
        assert (model.n_head[0] // model.n_head_kv[0], model.n_head_kv[0]) == (7, 4)

    def test_qwen3_embedding(self) -> None:
        assert kv(setup.zoo_model("qwen3-embedding-0.6b"), n_ctx=256) == 256 * 114_688


class TestFits:
    gpu = (Device("A", "generic", 2 * GIB, 1 * GIB),)

    def test_what_is_missing_is_added_up(self) -> None:
        small, large = (ledger_of(devices=self.gpu, n_ctx=n) for n in (4096, 65536))
        assert small.fits
        assert small.misses_by_bytes == 0
        assert not large.fits
        assert large.misses_by_bytes == large.lines[0].total_bytes - GIB

    def test_the_host_counts_when_it_is_known(self) -> None:
        poor = Host(GIB, 100 * MIB)
        assert ledger_of(host=None, n_ctx=65536).fits
        assert not ledger_of(host=poor, n_ctx=65536).fits
        assert ledger_of(host=poor, n_ctx=65536).host.free_bytes == 100 * MIB

    def test_a_device_of_unknown_size_never_misses(self) -> None:
        assert ledger_of(devices=(Device("mute"),), n_ctx=65536).fits


def test_lines_are_devices_in_order_and_the_host_last() -> None:
    two = (Device("A", "cuda", GIB, GIB), Device("B", "cuda", GIB, GIB, index=1))
    ledger = ledger_of(devices=two)
    assert [line.buffer for line in ledger.lines] == ["CUDA0", "CUDA1", "CPU"]
    assert [line.host for line in ledger.lines] == [False, False, True]
    assert ledger.host.output_bytes == 4 * SHAPE.n_vocab
    pinned = next(part for part in ledger.host.parts if part.buffer == "CUDA_Host")
    assert pinned.output_bytes == ledger.host.output_bytes


def test_a_full_gpu_is_full_and_one_that_reports_nothing_is_unknown() -> None:
    full = Device("full", "cuda", total_bytes=8 * GIB, free_bytes=0)
    line = ledger_of(devices=(full,), n_ctx=4096).lines[0]
    assert line.free_bytes == 0
    assert not ledger_of(devices=(full,), n_ctx=4096).fits
    assert ledger_of(devices=(Device("silent"),), n_ctx=4096).lines[0].free_bytes is None


def test_a_driver_takes_its_part_once() -> None:
    fresh = Device("RTX", "cuda", 8 * GIB, 8 * GIB, sm_count=24)
    assert overhead(fresh)[0] == (420 + 28 * 24) * MIB // 10
    assert overhead(Device("RTX", "cuda", 8 * GIB, 7 * GIB, sm_count=24))[0] == 0
    assert overhead(Device("virtual", "generic", 8 * GIB, 8 * GIB))[0] == 0
    assert overhead(Device("VGPU0", "cuda", 8 * GIB, 8 * GIB, source="zoo"))[0] == 0


class TestDoubts:
    def test_known_rules_leave_none(self) -> None:
        assert ledger_of(setup.zoo_model("qwen3-8b")).verified

    def test_an_unknown_architecture(self) -> None:
        metadata = {
            key.replace("llama.", "novel.", 1): value
            for key, value in header_of_shape("4x8x64").metadata.items()
        } | {"general.architecture": "novel"}
        ledger = ledger_of(describe(Header(3, metadata, ())))
        assert not ledger.verified
        assert "novel" in str(ledger.doubts[0])

    @pytest.mark.parametrize("settings", [{"build": "b99999"}, {"split_mode": "row"}])
    def test_other_rules(self, settings: dict[str, Any]) -> None:
        assert not ledger_of(**settings).verified

    def test_a_driver_that_decides(self) -> None:
        assert not ledger_of(devices=(Device("A", "vulkan", GIB, GIB),)).verified


def test_every_line_says_its_reasons() -> None:
    model = setup.zoo_model("gemma-3-4b")
    gpu = (Device("A", "cuda", 24 * GIB, 24 * GIB),)
    ledger = ledger_of(model, gpu, n_gpu_layers=10, swa_full=True)
    for line in ledger.lines:
        for part in ("weights", "context"):
            text = say(line.reasons[part])
            assert "b10605" in text
            assert "src/" in text
            assert "{" not in text
    assert [note.code for note in ledger.notes] == ["swa_full"]
    assert all("{" not in say(note.message) for note in ledger.notes)


def test_json_has_the_contract_s_shape() -> None:
    gpu = (Device("RTX 4060", "cuda", 8 * GIB, 7 * GIB),)
    document = ledger_json(ledger_of(setup.zoo_model("qwen3-8b"), gpu, n_ctx=4096))
    assert json.loads(json.dumps(document)) == document
    assert document["schema"] == "kvwise/ledger/1"
    assert document["model"].keys() >= {
        "name", "architecture", "path", "n_params", "tensor_bytes", "n_layer", "n_ctx_train",
    }  # fmt: skip
    assert document["launch"].keys() >= {
        "tool", "build", "n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "n_seq_max", "kv_unified",
        "flash_attn", "type_k", "type_v", "gpu_layers", "swa_full", "offload_kqv",
        "n_outputs_max", "argv",
    }  # fmt: skip
    assert document["caches"][0].keys() >= {
        "role", "kind", "cells", "streams", "n_layers", "type_k", "type_v", "k_bytes", "v_bytes",
        "r_bytes", "s_bytes",
    }  # fmt: skip
    first, host = document["buffers"]
    assert (first["buffer"], first["device"], first["host"]) == ("CUDA0", "RTX 4060", False)
    assert first.keys() >= {
        "weights_bytes", "context_bytes", "compute_bytes", "output_bytes", "overhead_bytes",
        "total_bytes", "free_bytes", "headroom_bytes", "basis",
    }  # fmt: skip
    assert host["host"] is True
    assert {part["buffer"] for part in host["parts"]} >= {"CPU", "CPU_Mapped"}
    assert document.keys() >= {"fits", "misses_by_bytes", "verified", "notes"}


def test_a_refusal_as_json() -> None:
    with pytest.raises(Refused) as refused:
        ledger_of(type_v="q8_0", flash_attn="off")
    document = refusal_json(refused.value)
    assert document["schema"] == "kvwise/refusal/1"
    assert document["code"] == "v_quant_needs_flash_attn"
    assert document["message"]
    assert document["hint"]


def test_ranges() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert ranges([]) == ""


def test_modes_of_compute_agree_where_nothing_is_pinned() -> None:
    model = setup.zoo_model("qwen3-8b")
    gpu = (Device("VGPU0", "generic", 24 * GIB, 24 * GIB, source="zoo"),)
    ledgers = [account(model, Launch(n_ctx=4096), gpu, compute_mode=mode) for mode in
               ("reserved", "no-alloc")]  # fmt: skip
    reserved, simulated = (ledger.lines[0].compute_bytes for ledger in ledgers)
    assert reserved == simulated > 0
