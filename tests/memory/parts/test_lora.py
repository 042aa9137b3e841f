"""Adapters: in the buffers of the weights they change, as llama.cpp b10605 loaded them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import cache_setup as setup

from kvwise.device import Device
from kvwise.errors import ModelError
from kvwise.gguf.header import Header, Tensor
from kvwise.gguf.types import F16, F32, GGMLType
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Extra
from kvwise.memory.parts.companions import Companions
from kvwise.units import GIB, MIB

MODEL = setup.zoo_model("smollm2-135m")
GPU = Device("A", "generic", 8 * GIB, 8 * GIB)
ADAPTED = ("attn_q.weight", "ffn_down.weight", "attn_output.weight")


def adapter(rank: int, kind: GGMLType = F32, *, architecture: str = "llama") -> Header:
    """An adapter of three matrices in every layer and the embeddings, and a norm nobody loads."""
    rows: list[Tensor] = []
    for tensor in MODEL.header.tensors:
        if tensor.name.endswith(ADAPTED):
            wide, out = tensor.shape
            rows.append(Tensor(f"{tensor.name}.lora_a", (wide, rank), kind))
            rows.append(Tensor(f"{tensor.name}.lora_b", (rank, out), kind))
    table = MODEL.header.by_name["token_embd.weight"]
    rows.append(Tensor(f"{table.name}.lora_a", (rank, table.shape[1]), kind))
    rows.append(Tensor(f"{table.name}.lora_b", (rank, table.shape[0]), kind))
    rows.append(Tensor("blk.0.attn_norm.weight", (576,), F32))
    metadata = {"general.architecture": architecture, "general.type": "adapter"}
    return Header(3, metadata, tuple(rows))


def lines(*adapters: Header, words: str = "", gpu: bool = False) -> list[Extra]:
    launch = Launch.parse(["-c", "512", "--no-repack", *words.split()])
    made = account(MODEL, launch, (GPU,) if gpu else (), companions=Companions(loras=adapters))
    return [extra for extra in made.extras if extra.of == "lora"]


def weights(rows: list[Extra]) -> dict[str, str]:
    return {row.buffer: f"{row.weights_bytes / MIB:.2f}" for row in rows if row.weights_bytes}


@pytest.mark.parametrize(
    ("rank", "kind", "alone", "device", "host"),
    [(7, F32, "4.87", "2.24", "2.62"), (32, F16, "11.12", "5.12", "6.00")],
)
def test_buffers_are_what_the_engine_printed(
    rank: int, kind: GGMLType, alone: str, device: str, host: str
) -> None:
    """`LoRA buffer size` on the processor, and with -ngl 20 on a device behind RPC."""
    assert weights(lines(adapter(rank, kind))) == {"CPU": alone}
    both = lines(adapter(rank, kind), words="-ngl 20", gpu=True)
    assert weights(both) == {"VGPU0": device, "CPU": host}


def test_norms_are_not_loaded() -> None:
    header = adapter(8)
    loaded = [t for t in header.tensors if "lora" in t.name]
    assert lines(header)[0].weights_bytes == sum(-(-t.nbytes // 32) * 32 for t in loaded)


def test_several_adapters_are_lines_of_their_own() -> None:
    one, two = adapter(4), adapter(16)
    found = [row.weights_bytes for row in lines(one, two) if row.weights_bytes]
    assert found == [
        row.weights_bytes for each in (one, two) for row in lines(each) if row.weights_bytes
    ]


def test_adapters_of_repacked_weights_are_in_plain_memory() -> None:
    launch = Launch.parse(["-c", "512", "--load-mode", "none"])
    made = account(MODEL, launch, (), companions=Companions(loras=(adapter(8),)))
    assert {extra.buffer for extra in made.extras if extra.of == "lora"} == {"CPU"}


def test_compute_is_an_upper_estimate() -> None:
    rows = [row for row in lines(adapter(8), words="-ngl 20", gpu=True) if row.compute_bytes]
    assert {row.buffer for row in rows} == {"VGPU0", "CPU"}
    assert all(row.basis == {"compute": "estimated"} for row in rows)
    width = max(*(MODEL.header.by_name[f"blk.0.{name}"].shape[1] for name in ADAPTED), 576)
    assert all(row.compute_bytes >= 512 * width * 4 for row in rows)


def test_another_architecture_is_refused() -> None:
    with pytest.raises(ModelError, match="adapter is for gemma3"):
        lines(adapter(8, architecture="gemma3"))


def test_a_weight_that_is_not_there_is_refused() -> None:
    header = adapter(8)
    odd = replace(header.tensors[0], name="blk.99.attn_q.weight.lora_a")
    with pytest.raises(ModelError, match=r"blk\.99\.attn_q\.weight"):
        lines(replace(header, tensors=(odd,)))


def test_a_tensor_of_another_kind_is_refused() -> None:
    odd = Tensor("blk.0.attn_q.weight", (4, 4), F32)
    with pytest.raises(ModelError, match="no tensor of a LoRA adapter"):
        lines(replace(adapter(8), tensors=(odd,)))


def test_named_but_not_opened_is_said() -> None:
    launch = Launch.parse(["-c", "512", "--lora", "a,b"])
    made = account(MODEL, launch, (), companions=Companions(loras=(adapter(8),)))
    notes = [note for note in made.notes if note.code != "weights_repacked"]  # of this processor
    assert [note.code for note in notes] == ["not_counted"]
