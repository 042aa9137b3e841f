"""Vulkan and Metal: scratch, offload and flash attention as their source says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvwise.device import Device
from kvwise.gguf.types import F16, F32, GGMLType, by_name
from kvwise.launch import Launch
from kvwise.memory import kernels
from kvwise.memory.account import account
from kvwise.memory.compute import ops
from kvwise.memory.compute.devices import backend_of, cuda, metal, vulkan
from kvwise.memory.compute.graph import Shape, Tensor, nbytes
from kvwise.units import GIB

sys.path.insert(0, str(Path(__file__).parents[1]))
import cache_setup as setup

Q8_0 = by_name("q8_0")
assert Q8_0 is not None


def tensor(kind: GGMLType, *ne: int) -> Tensor:
    shape: Shape = (*ne, 1, 1, 1, 1)[:4]  # type: ignore[assignment]
    return ops.new("NONE", kind, shape)


def attention(kind: GGMLType, tokens: int = 512, cells: int = 1024) -> Tensor:
    q = tensor(F32, 128, tokens, 32)
    k, v = tensor(kind, 128, cells, 8), tensor(kind, 128, cells, 8)
    return ops.flash_attn(q, k, v, tensor(F16, cells, tokens))


class TestMetal:
    def test_attention_keeps_room_for_copies_of_the_whole_cache(self) -> None:
        node = attention(F16)
        copies = 2 * 128 * 1024 * 8 * 2
        padding = 64 * (2 * 256 * 8 + 2 * 512)
        blocks = 64 * 16
        partial = 4 * 32 * 32 * 32 * 130
        assert (
            metal.alloc_size(node, node.src) == nbytes(node) + copies + padding + blocks + partial
        )

    def test_quantized_caches_pad_their_copies(self) -> None:
        assert Q8_0 is not None
        few, many = attention(Q8_0, 8), attention(Q8_0, 512)
        for node, row in ((few, 136), (many, 256)):
            scratch = metal.attention_scratch(node.src)
            mask = 2 * node.src[3].ne[1] if node.src[3] else 0
            assert scratch >= 64 * (2 * row * 8 + mask) + 2 * 2 * 128 * 1024 * 8

    def test_sorting_and_experts(self) -> None:
        x = tensor(F32, 64, 512)
        assert metal.alloc_size(ops.argsort(x), (x,)) == 2 * 4 * 64 * 512
        assert metal.alloc_size(ops.top_k(x, 8), (x,)) == 2 * 4 * 64 * 512
        experts, ids = tensor(F16, 256, 128, 60), tensor(by_name("i32") or F32, 8, 512)
        node = ops.mul_mat_id(experts, tensor(F32, 256, 1, 512), ids)
        assert metal.alloc_size(node, node.src) == nbytes(node) + 4 * 60 * (1 + 512)

    def test_only_products_of_batches_are_brought_over(self) -> None:
        w = tensor(F16, 64, 64)
        assert metal.wants(ops.mul_mat(w, tensor(F32, 64, 32)))
        assert not metal.wants(ops.mul_mat(w, tensor(F32, 64, 31)))
        assert not metal.wants(ops.add(tensor(F32, 64, 512), w))


class TestVulkan:
    def test_asks_for_the_tensors_own_bytes(self) -> None:
        backend = backend_of(Device("A", "vulkan"), 0)
        node = attention(F16)
        assert backend.alloc_size(node, node.src) == nbytes(node)

    def test_brings_batches_over(self) -> None:
        assert vulkan.wants(ops.mul_mat(tensor(F16, 64, 64), tensor(F32, 64, 32)))


@pytest.mark.parametrize(
    ("kind", "heads", "types", "runs"),
    [("vulkan", (128, 128), ("q8_0", "q4_0"), True), ("vulkan", (100, 100), ("f16", "f16"), False),
     ("vulkan", (128, 128), ("bf16", "f16"), False), ("vulkan", (128, 128), ("q6_0", "f16"), False),
     ("metal", (128, 128), ("q8_0", "q4_0"), False), ("metal", (128, 128), ("q8_0", "q8_0"), True),
     ("metal", (60, 60), ("f16", "f16"), False), ("metal", (576, 512), ("f16", "f16"), True),
     ("metal", (128, 128), ("iq4_nl", "iq4_nl"), False)],
)  # fmt: skip
def test_flash_attention(
    kind: str, heads: tuple[int, int], types: tuple[str, str], runs: bool
) -> None:
    assert kernels.ATTENDS[kind](*heads, *types) is runs


def test_mixed_cache_types_switch_flash_attention_off_on_metal_only() -> None:
    words = ["-c", "4096", "-ctk", "q8_0", "-fa", "auto"]
    model = setup.zoo_model("qwen3-8b")
    found = {
        kind: account(model, Launch.parse(words), (Device("A", kind, 24 * GIB, 24 * GIB),))
        for kind in ("metal", "vulkan")
    }
    assert {kind: ledger.context.flash_attn for kind, ledger in found.items()} == {
        "metal": False, "vulkan": True,
    }  # fmt: skip


def test_host_weights_are_staged_on_vulkan() -> None:
    """With layers on the host a prompt's products run on the GPU, beside a copy of the weight."""
    model, words = setup.zoo_model("qwen3-8b"), ["-c", "4096", "-ngl", "10"]
    kinds = ("vulkan", "generic")
    sizes = {
        kind: account(model, Launch.parse(words), (Device("A", kind, 24 * GIB, 24 * GIB),))
        .lines[0].compute_bytes
        for kind in kinds
    }  # fmt: skip
    largest = max(t.nbytes for t in model.header.tensors if ".ffn_" in t.name)
    assert sizes["vulkan"] >= sizes["generic"] // 2 + largest


class TestCudaIndexer:
    """Kernels for 32 or 64 heads (newer: 4, too) of 128 elements; not for every type of keys."""

    @staticmethod
    def node(heads: int, size: int, kind: str) -> Tensor:
        keys = by_name(kind)
        assert keys is not None
        q, k = tensor(F32, size, heads, 512), tensor(keys, size, 1, 1024)
        return ops.new("LIGHTNING_INDEXER", F32, (1024, 512, 1, 1), (q, k))

    @pytest.mark.parametrize(
        ("heads", "size", "kind", "old", "new"),
        [
            (64, 128, "f16", True, True), (32, 128, "q5_1", True, True),
            (4, 128, "f16", False, True), (2, 64, "f16", False, False),
            (64, 64, "q8_0", False, False), (64, 128, "iq4_nl", False, False),
        ],
    )  # fmt: skip
    def test_runs(self, heads: int, size: int, kind: str, old: bool, new: bool) -> None:
        node = self.node(heads, size, kind)
        assert cuda.supports(node) is old
        assert cuda.supports(node, newer=True) is new

    def test_the_zoos_card_runs_any_size_but_not_any_type(self) -> None:
        assert cuda.supports(self.node(2, 64, "f16"), any_indexer=True)
        assert not cuda.supports(self.node(2, 64, "iq4_nl"), any_indexer=True)
        zoo, card = (Device("C", "cuda", source=source) for source in ("zoo", ""))
        small = self.node(2, 64, "f16")
        assert backend_of(zoo, 0).supports(small)
        assert not backend_of(card, 0).supports(small)

    def test_a_cache_without_a_kernel_takes_more(self) -> None:
        model = setup.zoo_model("deepseek-v4-flash")
        card = Device("C", "cuda", 200 * GIB, 200 * GIB)
        f16, iq4 = (
            account(model, Launch(n_ctx=8192, type_k=kind, type_v=kind), (card,)).lines[0]
            for kind in ("f16", "iq4_nl")
        )
        assert iq4.compute_bytes > f16.compute_bytes
        assert iq4.basis["compute"] == "computed"
