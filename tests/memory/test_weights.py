"""Which buffer each weight lands in, and the bytes of a buffer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import cache_setup as setup

from kvwise.arch import describe
from kvwise.device import Device, Host
from kvwise.errors import Refused, UsageError
from kvwise.gguf.header import Header, Tensor
from kvwise.gguf.model import Model
from kvwise.gguf.shape import header_of_shape
from kvwise.gguf.types import BY_NAME
from kvwise.launch import Launch
from kvwise.memory.backends import KINDS, tensor_size
from kvwise.memory.loader import Spot
from kvwise.memory.placement import HOST, place
from kvwise.memory.repack import is_repacked
from kvwise.memory.roles import role_of
from kvwise.memory.weights import Weights, weigh
from kvwise.units import pad

ONE = (Device("A", "generic", 2**36, 2**36),)
CUDA = (Device("A", "cuda", 2**36, 2**36),)
READ: dict[str, Any] = {"mmap": False, "repack": False}
"""Weights read into plain buffers."""


def weighed(model: Model, devices: tuple[Device, ...] = (), **settings: Any) -> Weights:
    launch = Launch(**settings)
    return weigh(model, launch, place(model, launch, devices), devices)


def plain(model: Model, alignment: int = 32) -> int:
    return sum(pad(tensor.nbytes, alignment) for tensor in model.header.tensors)


def test_on_the_host_it_is_the_sum_of_padded_tensors() -> None:
    model = setup.zoo_model("qwen3-8b")
    assert weighed(model, **READ).by_spot == {Spot(HOST, "CPU"): plain(model)}


def test_embeddings_stay_on_the_host() -> None:
    found = weighed(setup.zoo_model("qwen3-8b"), ONE, **READ)
    assert {name for name, device in found.where.items() if device == HOST} == {"token_embd.weight"}


@pytest.mark.parametrize(
    ("name", "host_copies", "gpu_copies"),
    [("llama-3.2-1b", 1, 2), ("gemma-3n-e4b", 2, 2), ("qwen3-8b", 1, 1)],
)
def test_tied_embeddings(name: str, host_copies: int, gpu_copies: int) -> None:
    """Once more where the output layer is, unless the buffer has them; gemma 3n always twice."""
    model = setup.zoo_model(name)
    embeddings = model.header.by_name["token_embd.weight"].nbytes
    again = weighed(model, **READ).on(HOST) - plain(model)
    assert again == (host_copies - 1) * pad(embeddings, 32)
    assert weighed(model, ONE, **READ).on(HOST) >= pad(embeddings, 32)
    output = weighed(model, ONE, **READ).where.get("output.weight")
    assert (output == 0) == (gpu_copies == 2 or "output.weight" in model.header.by_name)


def test_an_architecture_without_ties_needs_its_output() -> None:
    header = setup.zoo_model("tiny-olmo2").header
    cut = tuple(tensor for tensor in header.tensors if tensor.name != "output.weight")
    with pytest.raises(Refused) as refused:
        weighed(describe(Header(3, header.metadata, cut)))
    assert refused.value.code == "missing_tensor"


def test_cuda_pads_the_last_row_of_quantized_tensors() -> None:
    kind, q8 = KINDS["cuda"], BY_NAME["q8_0"]
    assert tensor_size(kind, q8, 512, 544) == pad(544, 128)
    assert tensor_size(kind, q8, 320, 340) == pad(340 + q8.row_bytes(192), 128)
    assert tensor_size(kind, BY_NAME["f16"], 320, 640) == 640
    assert tensor_size(None, q8, 320, 340) == pad(340, 32)


def test_host_weights_are_pinned_unless_the_file_is_mapped() -> None:
    model = setup.zoo_model("qwen3-8b")
    assert set(weighed(model, CUDA, **READ).by_spot) == {
        Spot(0, "CUDA0"),
        Spot(HOST, "CUDA_Host"),
    }
    mapped = weighed(model, CUDA)
    assert set(mapped.mapped) == {Spot(HOST, "CPU")}


def test_what_cuda_cannot_run_stays_on_the_host() -> None:
    where = weighed(setup.zoo_model("kimi-linear-48b-a3b"), CUDA, **READ).where
    assert {name.split(".", 2)[2] for name in where if name.endswith("ssm_a")} == {"ssm_a"}
    assert all(device == HOST for name, device in where.items() if name.endswith("ssm_a"))
    assert where["blk.0.ssm_f_a.weight"] == 0


def test_rope_factors_are_on_every_device_that_has_layers() -> None:
    model = setup.zoo_model("llama-3.2-1b")
    size = pad(model.header.by_name["rope_freqs.weight"].nbytes, 128)
    two = (*ONE, Device("B", "generic", 2**36, 2**36, index=1))
    one_gpu, both = weighed(model, ONE, **READ), weighed(model, two, **READ)
    assert both.on(0) + both.on(1) - one_gpu.on(0) == size


def test_experts_on_the_host() -> None:
    model = setup.zoo_model("qwen3-30b-a3b")
    all_on, some = weighed(model, ONE, **READ), weighed(model, ONE, n_cpu_moe=3, **READ)
    moved = [
        tensor.nbytes
        for tensor in model.header.tensors
        if role_of(tensor.name, "qwen3moe").layer in {0, 1, 2} and "_exps." in tensor.name
    ]
    assert len(moved) == 9
    assert some.on(HOST) - all_on.on(HOST) == sum(moved)
    assert some == weighed(
        model, ONE, override_tensor=((r"blk\.[012]\.ffn_.*_exps", "CPU"),), **READ
    )


def test_overrides_may_name_a_device() -> None:
    model = setup.zoo_model("qwen3-8b")
    found = weighed(model, ONE, n_gpu_layers=0, override_tensor=(("attn_q", "VGPU0"),), **READ)
    assert found.where["blk.7.attn_q.weight"] == 0
    assert found.where["blk.7.attn_k.weight"] == HOST
    for bad in (("(", "CPU"), ("x", "CUDA7")):
        with pytest.raises(UsageError):
            weighed(model, ONE, override_tensor=(bad,))


@pytest.mark.parametrize("name", ["deepseek-v3.2", "glm-4.5-air", "qwen3.6-35b-a3b-mtp"])
def test_mtp_layers_are_left_in_the_file_until_asked_for(name: str) -> None:
    model = setup.zoo_model(name)
    without, with_them = weighed(model, **READ), weighed(model, load_mtp=True, **READ)
    assert without.skipped
    assert not with_them.skipped
    assert with_them.on(HOST) > without.on(HOST)
    assert all(role_of(name, model.architecture).layer >= model.n_layer for name in without.skipped)


class TestMapped:
    """A mapped buffer is the span of the file between its first and its last weight."""

    header = header_of_shape("4x8x64,type=q8_0")

    def model(self, shards: int = 1) -> Model:
        tensors, ends = [], [0] * shards
        for number, tensor in enumerate(self.header.tensors):
            shard = number * shards // len(self.header.tensors)
            row = Tensor(tensor.name, tensor.shape, tensor.type, ends[shard], shard)
            ends[shard] += pad(row.nbytes, 32)
            tensors.append(row)
        return describe(Header(3, self.header.metadata, tuple(tensors)))

    def test_all_of_it(self) -> None:
        model = self.model()
        last = model.header.tensors[-1]
        assert weighed(model).by_spot == {Spot(HOST, "CPU"): last.offset + last.nbytes}

    def test_holes_count(self) -> None:
        model = self.model()
        found = weighed(model, ONE, n_gpu_layers=2)  # output and last layer are elsewhere
        host = [t for t in model.header.tensors if found.where[t.name] == HOST]
        span = max(t.offset + t.nbytes for t in host) - min(t.offset for t in host)
        assert found.by_spot[Spot(HOST, "CPU")] == span > sum(t.nbytes for t in host)

    def test_one_span_per_shard(self) -> None:
        spans = weighed(self.model(shards=3)).mapped[Spot(HOST, "CPU")]
        assert len(spans) == 3

    def test_the_order_of_the_table_does_not_matter(self) -> None:
        model = self.model()
        turned = describe(Header(3, self.header.metadata, model.header.tensors[::-1]))
        assert weighed(turned, ONE, n_gpu_layers=3) == weighed(model, ONE, n_gpu_layers=3)


def test_repacking_depends_on_the_processor() -> None:
    matrix = Tensor("x", (512, 24), BY_NAME["q4_k"])
    assert is_repacked("MUL_MAT", matrix, ("avx2",))
    assert not is_repacked("GET_ROWS", matrix, ("avx2",))
    assert not is_repacked("MUL_MAT", matrix, ("sse2",))
    assert not is_repacked("MUL_MAT", Tensor("x", (512, 20), BY_NAME["q4_k"]), ("avx2",))
    assert not is_repacked("MUL_MAT_ID", matrix, ("avx2",))
    assert is_repacked("MUL_MAT_ID", Tensor("x", (512, 24, 8), BY_NAME["q4_k"]), ("avx2",))
    assert is_repacked("MUL_MAT", Tensor("x", (512, 20), BY_NAME["q8_0"]), ("asimddp",))
    assert not is_repacked("MUL_MAT", Tensor("x", (512, 24, 2), BY_NAME["q4_k"]), ("avx2",))


def test_a_repacked_tied_output_is_a_second_copy() -> None:
    """The embeddings are looked up in plain memory and multiplied by in the repacked buffer."""
    model = describe(header_of_shape("2x8x64,type=q4_0"))
    cut = tuple(t for t in model.header.tensors if t.name != "output.weight")
    tied = describe(Header(3, model.header.metadata, cut))
    host = Host(cpu_features=("avx2",))
    launch = Launch(mmap=False)
    found = weigh(tied, launch, place(tied, launch, ()), (), host)
    embeddings = pad(tied.header.by_name["token_embd.weight"].nbytes, 32)
    assert found.on(HOST) == plain(tied) + embeddings
    assert found.by_spot[Spot(HOST, "CPU")] < found.by_spot[Spot(HOST, "CPU_REPACK")]


@pytest.mark.parametrize("name", setup.golden_names()[::9])
def test_every_weight_of_a_file_is_loaded_once_or_left_out(name: str) -> None:
    model = setup.zoo_model(name)
    found = weighed(model, CUDA, n_gpu_layers=2, **READ)
    rows = set(model.header.by_name)
    assert set(found.skipped) | (set(found.where) - {"output.weight"}) >= rows - {"output.weight"}
    assert not set(found.skipped) & set(found.where)


@given(ngl=st.integers(0, 8), kind=st.sampled_from(["generic", "cuda"]), mapped=st.booleans())
def test_nothing_is_lost_between_devices(ngl: int, kind: str, mapped: bool) -> None:
    model = TestMapped().model()
    device = (Device("A", kind, 2**36, 2**36),)
    found = weighed(model, device, n_gpu_layers=ngl, mmap=mapped, repack=False)
    total = sum(found.by_spot.values())
    assert total >= model.header.tensor_bytes
    slack = 512 * len(model.header.tensors) + (model.header.tensor_bytes if mapped else 0)
    assert total <= model.header.tensor_bytes + slack
    assert found.count_on(0) + found.count_on(HOST) == len(model.header.tensors)
