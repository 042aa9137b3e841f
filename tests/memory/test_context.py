"""Padding and clamping in the engine's order, and every refusal with its code."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import cache_setup as setup

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.errors import Refused, UsageError
from kvwise.gguf.header import Header, Tensor
from kvwise.gguf.model import Model
from kvwise.gguf.shape import header_of_shape
from kvwise.gguf.types import F16
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.context import CELLS, Context, resolve
from kvwise.memory.graph_limits import max_nodes
from kvwise.memory.ledger import Ledger
from kvwise.memory.placement import place
from kvwise.memory.zoo_config import read_config

PLAIN = describe(header_of_shape("4x8x64,ctx=4096"))
CUDA = (Device("A", "cuda", 2**34, 2**34),)


def resolved(model: Model = PLAIN, devices: tuple[Device, ...] = (), **settings: Any) -> Context:
    launch = Launch(**settings)
    return resolve(model, launch, place(model, launch, devices), devices)


def test_no_context_means_the_training_length() -> None:
    assert resolved(n_ctx=0).n_ctx == 4096


def test_batches_are_clamped_before_the_context_is_padded() -> None:
    context = resolved(n_ctx=300)
    assert (context.n_batch, context.n_ubatch, context.n_ctx) == (300, 300, 512)


def test_an_encoder_keeps_its_batch() -> None:
    context = resolved(setup.zoo_model("bge-small-en-v1.5"), n_ctx=256)
    assert (context.n_batch, context.n_ubatch) == (2048, 512)


def test_no_ubatch_means_the_batch() -> None:
    assert resolved(n_ctx=4096, n_ubatch=0).n_ubatch == 2048


def test_separate_sequences_round_up_although_the_log_says_down() -> None:
    context = resolved(n_ctx=5000, n_seq_max=3)
    assert (context.n_ctx_seq, context.n_ctx) == (1792, 5376)
    assert context.notes == ("n_ctx_rounded",)
    assert context.n_stream == 3


def test_a_unified_context_is_shared() -> None:
    context = resolved(n_ctx=5000, n_seq_max=3, kv_unified=True)
    assert (context.n_ctx_seq, context.n_ctx, context.n_stream) == (5120, 5120, 1)


@given(
    n_ctx=st.integers(1, 2**20),
    n_batch=st.integers(1, 2**14),
    n_ubatch=st.integers(0, 2**14),
    n_seq_max=st.integers(1, 256),
    unified=st.booleans(),
)
def test_sizes_hold_together(
    n_ctx: int, n_batch: int, n_ubatch: int, n_seq_max: int, unified: bool
) -> None:
    context = resolved(
        n_ctx=n_ctx,
        n_batch=max(n_batch, n_seq_max),
        n_ubatch=n_ubatch,
        n_seq_max=n_seq_max,
        kv_unified=unified,
        n_outputs_max=n_seq_max,
    )
    assert context.n_ctx % CELLS == 0 == context.n_ctx_seq % CELLS
    assert context.n_ctx == context.n_ctx_seq * context.n_stream
    assert 0 < context.n_ubatch <= context.n_batch
    assert n_ctx <= context.n_ctx or not unified


@pytest.mark.parametrize(
    ("model", "settings", "code"),
    [
        ("qwen3-8b", {"type_v": "q8_0", "flash_attn": "off"}, "v_quant_needs_flash_attn"),
        ("grok-1", {"type_v": "q8_0"}, "v_quant_needs_flash_attn"),
        ("phi-2", {"type_k": "q8_0"}, "k_block_vs_head_size"),
        ("phi-2", {"type_v": "q8_0"}, "v_block_vs_head_size"),
        ("deepseek-v3", {"type_k": "q8_0"}, "mla_k_v_types_differ"),
        ("deepseek-v4-flash", {"type_v": "q8_0"}, "mla_k_v_types_differ"),
        ("qwen3-8b", {"n_outputs_max": 1, "n_seq_max": 2}, "n_outputs_below_n_seq"),
        ("flan-t5-large", {"n_seq_max": 2}, "unsupported_n_seq"),
        ("tiny-eagle3", {}, "needs_target_context"),
        ("tiny-plm", {}, "internal_abort"),
        ("tiny-laguna", {"type_k": "q4_0", "flash_attn": "off"}, "internal_abort"),
        ("qwen3-8b", {"mtp": True}, "mtp_unavailable"),
        ("qwen3-8b", {"n_seq_max": 257}, "other_context"),
    ],
)
def test_refusals(model: str, settings: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as refused:
        resolved(setup.zoo_model(model), n_ctx=4096, **settings)
    assert refused.value.code == code
    assert refused.value.hint
    assert "{" not in str(refused.value)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("qwen3-8b", {"type_v": "q8_0"}),  # auto is switched on
        ("tiny-plm", {"flash_attn": "off"}),  # a transposed V takes its flat values
        ("phi-2", {"type_k": "q8_0", "flash_attn": "off"}),  # nothing checks the heads then
        ("flan-t5-large", {"n_seq_max": 2, "kv_unified": True}),
        ("deepseek-v3", {"type_k": "q8_0", "type_v": "q8_0"}),
    ],
)
def test_neighbours_of_refusals_pass(model: str, settings: dict[str, Any]) -> None:
    context = resolved(setup.zoo_model(model), n_ctx=4096, **settings)
    assert context.flash_attn == (settings.get("flash_attn") != "off")


def test_an_unknown_type_and_no_batch_are_usage_errors() -> None:
    with pytest.raises(UsageError):
        resolved(type_k="q9_9")
    with pytest.raises(UsageError):
        resolved(n_batch=0, n_ubatch=0)


def test_a_file_without_a_length_needs_one() -> None:
    silent = replace(PLAIN, n_ctx_train=0)
    with pytest.raises(UsageError):
        resolved(silent)
    assert resolved(silent, n_ctx=512).n_ctx == 512


def test_snapshots_only_where_the_state_can_be_rolled_back() -> None:
    assert resolved(n_rs_seq=2).n_rs_seq == 0
    assert resolved(setup.zoo_model("qwen3.5-9b"), n_rs_seq=2).n_rs_seq == 2


class TestFlashAttention:
    """`auto` stays on only if every layer's attention runs where the layer is."""

    def test_cuda_has_no_kernel_for_mixed_types(self) -> None:
        mixed = resolved(setup.zoo_model("qwen3-8b"), CUDA, n_ctx=4096, type_k="q8_0")
        assert not mixed.flash_attn
        assert "flash_attn_unavailable" in mixed.notes
        assert resolved(setup.zoo_model("qwen3-8b"), n_ctx=4096, type_k="q8_0").flash_attn

    def test_a_layer_on_the_host_does_not_mind(self) -> None:
        launch = {"n_ctx": 4096, "type_k": "q8_0", "n_gpu_layers": 0}
        assert resolved(setup.zoo_model("qwen3-8b"), CUDA, **launch).flash_attn

    def test_a_state_on_the_host_pulls_its_neighbour_away(self) -> None:
        launch = {"n_ctx": 4096, "offload_kqv": False}
        assert not resolved(setup.zoo_model("nemotron-nano-9b-v2"), CUDA, **launch).flash_attn
        assert resolved(setup.zoo_model("qwen3-8b"), CUDA, **launch).flash_attn

    def test_32_sequences_pull_host_layers_to_the_gpu(self) -> None:
        launch = {"n_ctx": 8192, "n_gpu_layers": 10, "kv_unified": True}
        assert not resolved(setup.zoo_model("qwen3-8b"), CUDA, n_seq_max=32, **launch).flash_attn
        assert resolved(setup.zoo_model("qwen3-8b"), CUDA, n_seq_max=31, **launch).flash_attn


def test_zoo_defaults_are_those_of_the_measurements() -> None:
    zoo_launch = read_config({}).launch
    assert (zoo_launch.n_ctx, zoo_launch.n_gpu_layers, zoo_launch.mmap) == (8192, 999, False)
    assert not zoo_launch.repack


class TestGraphLimit:
    """llama.cpp sizes its tables by the number of weights and stops when a graph is larger."""

    def phi(self, layers: int = 40) -> Model:
        """A phi-4: few, fused weights for its many layers."""
        metadata = {
            key.replace("llama.", "phi3."): value
            for key, value in header_of_shape(f"{layers}x40x128,kv=10,embd=5120").metadata.items()
        } | {"general.architecture": "phi3"}
        kinds = {
            "attn_norm": (5120,), "attn_qkv": (5120, 7680), "attn_output": (5120, 5120),
            "ffn_norm": (5120,), "ffn_up": (5120, 35840), "ffn_down": (17920, 5120),
        }  # fmt: skip
        rows = [
            ("token_embd", (5120, 32000)),
            ("output_norm", (5120,)),
            ("output", (5120, 32000)),
            *((f"blk.{il}.{name}", shape) for il in range(layers) for name, shape in kinds.items()),
        ]
        tensors = tuple(Tensor(f"{name}.weight", shape, F16) for name, shape in rows)
        return describe(Header(3, metadata, tensors))

    def ledger(self, **settings: Any) -> Ledger:
        quantized = {"type_k": "q8_0", "type_v": "q8_0"}
        return account(self.phi(), Launch(n_ctx=8192, **quantized, **settings), CUDA)

    def test_two_quantized_streams_are_too_many_nodes(self) -> None:
        with pytest.raises(Refused) as refused:
            self.ledger(n_seq_max=2)
        assert refused.value.code == "graph_too_large"

    def test_one_stream_is_not(self) -> None:
        assert self.ledger().lines[0].compute_bytes
        assert self.ledger(n_seq_max=2, kv_unified=True).lines[0].compute_bytes

    def test_the_limit(self) -> None:
        assert max_nodes(PLAIN, 512, 39) == 1024
        assert max_nodes(PLAIN, 512, 243) == 1944
        assert max_nodes(setup.zoo_model("qwen3.5-9b"), 512, 400) == 20480
