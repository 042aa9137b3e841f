"""Projectors: weights to the byte, compute buffers as llama.cpp b10605 printed them at start."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
import cache_setup as setup
from encoders import MAKERS, encoder

from kvwise.device import Device
from kvwise.errors import ModelError, UsageError
from kvwise.gguf.header import Header
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.compute.devices import backends_for
from kvwise.memory.ledger import Extra, Ledger
from kvwise.memory.parts.companions import Companions
from kvwise.memory.parts.vision.eye import ROWS, eye_of
from kvwise.memory.parts.vision.measure import Measured, measure
from kvwise.memory.parts.vision.towers import TOWERS
from kvwise.units import GIB, MIB

GPU = Device("A", "generic", 8 * GIB, 8 * GIB)
SECOND = Device("B", "generic", 8 * GIB, 8 * GIB, index=1)
BIG: dict[str, Any] = {"embd": 1152, "heads": 16, "layers": 4, "ff": 4304, "image": 896}

# kind, sizes, nodes and MiB with flash attention, nodes and MiB without: llama-server b10605 on
# the processor, "reserve_compute_meta: CPU compute buffer size" at start
MEASURED: tuple[tuple[str, dict[str, Any], int, str, int, str], ...] = (
    ("gemma3", {}, 121, "1.53", 127, "2.53"),
    ("gemma3", BIG, 152, "121.25", 160, "1132.00"),
    ("janus_pro", {}, 115, "1.62", 121, "2.00"),
    ("idefics3", {}, 117, "1.25", 123, "2.00"),
    ("lfm2", {}, 129, "5.00", 135, "20.00"),
    ("lfm2", {"embd": 384, "heads": 6, "image": 512}, 129, "7.50", 135, "30.00"),
    ("phi4", {}, 115, "1.62", 121, "2.00"),
    ("pixtral", {}, 108, "2.11", 114, "2.36"),
    ("pixtral", {"merger": True}, 117, "8.34", 123, "21.34"),
    ("kimivl", {}, 143, "5.30", 149, "21.30"),
    ("dots_ocr", {}, 101, "68.71", 107, "1153.57"),
    ("gemma4v", {}, 185, "20.94", 191, "92.94"),
    ("qwen2vl_merger", {}, 128, "43.91", 134, "1137.04"),
    ("qwen2vl_merger", {"embd": 1280, "heads": 16, "ff": 5120, "layers": 2},
     95, "267.08", 99, "4598.27"),
    ("qwen2.5vl_merger", {}, 142, "445.59", 145, "1410.34"),
    ("qwen3vl_merger", {}, 127, "56.31", 133, "1153.57"),
    ("qwen3vl_merger", {"deep": True}, 147, "64.58", 153, "1161.84"),
    ("paddleocr", {}, 135, "16.27", 141, "166.33"),
    ("llama4", {}, 129, "1.33", 135, "2.34"),
    ("glm4v", {}, 130, "68.71", 136, "1153.57"),
    ("internvl", {}, 130, "1.25", 136, "2.01"),
    ("nemotron_v2_vl", {}, 108, "1.81", 114, "2.89"),
    ("mlp", {}, 85, "1.38", 89, "2.09"),
)  # fmt: skip


def at_start(header: Header, flash: str, *devices: Device) -> Measured:
    eye = eye_of(header)
    assert eye is not None
    return measure(eye, eye.start_grid, backends_for(devices), flash)


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: f"{row[0]}-{len(row[1])}")
def test_compute_is_what_the_engine_printed(
    row: tuple[str, dict[str, Any], int, str, int, str],
) -> None:
    kind, sizes, nodes, mib, nodes_plain, mib_plain = row
    header = encoder(kind, **sizes)
    for flash, count, printed in (("auto", nodes, mib), ("off", nodes_plain, mib_plain)):
        made = at_start(header, flash)
        assert (made.basis, made.n_nodes, f"{made.sizes[0] / MIB:.2f}") == (
            "computed", count, printed,
        )  # fmt: skip


def test_every_known_kind_was_measured() -> None:
    aliases = {"lightonocr", "qwen2.5o"}  # the same graphs under another name
    assert set(TOWERS) - aliases == {row[0] for row in MEASURED} == set(MAKERS)


def test_the_image_itself_waits_in_host_memory() -> None:
    """Measured with a device behind RPC: 1.53 MiB there and 0.57 MiB on the host."""
    made = at_start(encoder("gemma3"), "auto", GPU)
    assert [f"{size / MIB:.2f}" for size in made.sizes] == ["1.53", "0.57"]


class TestEstimates:
    def test_a_weight_without_a_place_in_the_graph(self) -> None:
        header = encoder("gemma3")
        odd = replace(header.tensors[0], name="mm.something.weight")
        more = replace(header, tensors=(*header.tensors, odd))
        made, known = at_start(more, "auto"), at_start(header, "auto")
        assert made.basis == "estimated"
        assert "mm.something.weight" in made.why
        assert made.sizes[0] > known.sizes[0]

    @pytest.mark.parametrize("row", MEASURED, ids=lambda row: f"{row[0]}-{len(row[1])}")
    @pytest.mark.parametrize("flash", ["auto", "off"])
    def test_is_never_below_what_a_known_graph_takes(self, row: Any, flash: str) -> None:
        """The estimate, asked about kinds whose truth is known."""
        header = encoder(row[0], **row[1])
        odd = replace(header.tensors[0], name="mm.something.weight")
        guess = at_start(replace(header, tensors=(*header.tensors, odd)), flash)
        known = at_start(header, flash)
        assert guess.basis == "estimated"
        assert known.sizes[0] * 0.99 <= guess.sizes[0]

    def test_an_unknown_kind_of_projector(self) -> None:
        header = encoder("gemma3")
        strange = replace(header, metadata={**header.metadata, "clip.projector_type": "novel"})
        rows = lines(strange)
        assert [row.basis for row in rows] == [{"weights": "computed"}, {"compute": "estimated"}]
        assert rows[1].compute_bytes >= rows[0].weights_bytes


def made_of(header: Header, words: str = "", *devices: Device) -> Ledger:
    launch = Launch.parse(["-c", "1024", "--mmproj", "m.gguf", *words.split()])
    model = setup.zoo_model("smollm2-135m")
    return account(model, launch, devices, companions=Companions(mmproj=header))


def lines(header: Header, words: str = "", *devices: Device) -> list[Extra]:
    return [extra for extra in made_of(header, words, *devices).extras if extra.of == "mmproj"]


class TestPlace:
    def weights_on(self, words: str, *devices: Device) -> str:
        return next(row.buffer for row in lines(encoder("gemma3"), words, *devices))

    def test_first_gpu(self) -> None:
        assert self.weights_on("", GPU, SECOND) == "VGPU0"

    def test_does_not_follow_the_models_devices(self) -> None:
        assert self.weights_on("-dev VGPU1", GPU, SECOND) == "VGPU0"
        assert self.weights_on("-ngl 0", GPU) == "VGPU0"

    def test_host(self) -> None:
        assert self.weights_on("") == "CPU"
        assert self.weights_on("--no-mmproj-offload", GPU) == "CPU"

    def test_a_device_of_its_own(self) -> None:
        assert self.weights_on("-mmdev VGPU1", GPU, SECOND) == "VGPU1"
        with pytest.raises(UsageError):
            self.weights_on("-mmdev VGPU7", GPU)

    def test_counts_in_what_fits(self) -> None:
        made = made_of(encoder("gemma3"), "", GPU)
        assert made.lines[0].total_bytes == (
            made.lines[0].weights_bytes + made.lines[0].context_bytes
            + made.lines[0].compute_bytes + made.lines[0].extra_bytes
        )  # fmt: skip
        assert made.lines[0].extra_bytes > encoder("gemma3").tensor_bytes
        assert not made.notes


class TestWeights:
    def test_every_tensor_is_aligned(self) -> None:
        header = encoder("gemma4v")
        for devices, alignment in (((), 32), ((GPU,), 128)):
            padded = sum(-(-t.nbytes // alignment) * alignment for t in header.tensors)
            assert lines(header, "", *devices)[0].weights_bytes == padded

    def test_bounds_of_clamps_are_not_loaded(self) -> None:
        header = encoder("gemma4v")
        bound = replace(header.tensors[0], name="v.blk.0.attn_q.input_max", shape=(1,))
        more = replace(header, tensors=(*header.tensors, bound))
        assert lines(more)[0].weights_bytes == lines(header)[0].weights_bytes

    def test_sound_is_a_line_of_its_own(self) -> None:
        header = encoder("gemma3")
        sound = [replace(t, name=t.name.replace("v.", "a.", 1)) for t in header.tensors[:20]]
        keys = {"clip.has_audio_encoder": True, "clip.audio.attention.head_count": 4}
        both = replace(
            header,
            tensors=(*header.tensors, *sound),
            metadata={**header.metadata, **keys},
        )
        rows = lines(both)
        assert rows[0].weights_bytes == lines(header)[0].weights_bytes
        assert rows[2].weights_bytes == sum(-(-t.nbytes // 32) * 32 for t in sound)
        assert rows[3].basis == {"compute": "estimated"}


NUMBERS = st.one_of(
    st.integers(-5, 5), st.integers(-(2**31), 2**40), st.booleans(), st.text(max_size=3)
)
KEYS = ["embedding_length", "block_count", "patch_size", "image_size", "attention.head_count",
        "attention.head_dim", "projector.scale_factor", "spatial_merge_size", "image_max_pixels",
        "n_wa_pattern", "window_size", "feature_layer"]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(ROWS)),
    st.dictionaries(st.sampled_from(KEYS), NUMBERS, max_size=4),
    st.sampled_from(sorted(MAKERS)),
)
def test_odd_headers_get_a_figure(kind: str, lies: dict[str, Any], maker: str) -> None:
    header = encoder(maker)
    metadata = {**header.metadata, "clip.projector_type": kind}
    metadata |= {f"clip.vision.{key}": value for key, value in lies.items()}
    for row in lines(replace(header, metadata=metadata), "", GPU):
        assert row.total_bytes >= 0
        assert set(row.basis) <= {"weights", "compute"}


class TestLargestImage:
    def compute(self, header: Header, words: str = "") -> tuple[int, int]:
        row = lines(header, words)[1]
        assert row.at_start_bytes is not None
        return row.at_start_bytes, row.compute_bytes

    def test_grows_with_the_image(self) -> None:
        header = encoder("qwen2vl_merger")
        start, most = self.compute(header)
        assert f"{start / MIB:.2f}" == "43.91"
        assert 1.5 < most / start < 2.2  # 4096 tokens against 2116

    def test_fixed_sizes_do_not_grow(self) -> None:
        start, most = self.compute(encoder("gemma3"))
        assert start == most

    def test_tokens_that_were_asked_for(self) -> None:
        header = encoder("qwen2vl_merger")
        assert self.compute(header, "--image-max-tokens 1024")[1] == self.compute(header)[0]
        more = self.compute(header, "--image-max-tokens 8192")[1]
        assert more > self.compute(header)[1]

    def test_tiles_are_encoded_together(self) -> None:
        header = encoder("internvl")  # 64 tokens a tile: 16 tiles in 1024
        start, most = self.compute(header)
        assert 14 * start < most < 18 * start
        assert self.compute(header, "--mtmd-batch-max-tokens 64")[1] == start

    def test_nothing_is_reserved_without_warming_up(self) -> None:
        assert self.compute(encoder("gemma3"), "--no-warmup")[0] == 0


def test_another_model_is_no_projector() -> None:
    with pytest.raises(ModelError, match="neither a vision nor an audio encoder"):
        made_of(setup.zoo_model("llama-3.2-1b").header)
