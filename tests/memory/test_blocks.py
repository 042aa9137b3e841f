"""The largest single allocation, where each kind of backend cuts, and what follows for a fit."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cache_setup as setup

from kvwise.device import Device
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.blocks import CHUNKS, chunk_bytes
from kvwise.memory.ledger import Ledger, Line
from kvwise.memory.parts.companions import Companions
from kvwise.memory.report import ledger_json
from kvwise.units import GIB, MIB

MODEL = setup.zoo_model("qwen3-8b")


def ledger(device: Device, words: str = "-c 8192") -> Ledger:
    return account(MODEL, Launch.parse(words.split()), (device,))


def line(kind: str, words: str = "-c 8192", block: int | None = None) -> Line:
    return ledger(Device("A", kind, 24 * GIB, 24 * GIB, max_block_bytes=block), words).lines[0]


class TestOnePiece:
    @pytest.mark.parametrize("kind", ["cuda", "hip", "generic"])
    def test_all_weights_of_a_device(self, kind: str) -> None:
        found = line(kind)
        assert found.largest_block_bytes == found.weights_bytes

    def test_or_a_cache_that_is_larger(self) -> None:
        found = line("cuda", "-c 131072")
        assert found.largest_block_bytes == found.context_bytes > found.weights_bytes

    def test_windowed_caches_are_two(self) -> None:
        gpu = Device("A", "cuda", 24 * GIB, 24 * GIB)
        model = setup.zoo_model("gemma-3-1b")
        made = account(model, Launch.parse(["-c", "131072", "--swa-full"]), (gpu,))
        each = [cache.by_device[0] for cache in made.caches]
        assert len(each) == 2
        assert made.lines[0].largest_block_bytes == max(*each, made.lines[0].weights_bytes)


class TestCut:
    def test_vulkan_cuts_at_a_gibibyte(self) -> None:
        assert chunk_bytes(Device("A", "vulkan", 24 * GIB, 24 * GIB)) == GIB
        assert line("vulkan").largest_block_bytes == GIB
        assert line("vulkan").weights_bytes > 4 * GIB

    def test_never_above_what_the_driver_allows(self) -> None:
        small = Device("A", "vulkan", 24 * GIB, 24 * GIB, max_block_bytes=700 * MIB)
        assert chunk_bytes(small) == 700 * MIB
        assert ledger(small).fits

    def test_a_tensor_is_never_cut(self) -> None:
        output = MODEL.header.by_name["output.weight"].nbytes
        small = Device("A", "vulkan", 24 * GIB, 24 * GIB, max_block_bytes=output - 1)
        made = ledger(small)
        assert made.lines[0].largest_block_bytes == output
        assert not made.fits
        assert made.misses_by_bytes == 1

    def test_sides_of_a_cache_are_tensors(self) -> None:
        found = line("vulkan", "-c 1048576 -np 1")
        side = 2 * 1024 * 1048576  # f16, 8 heads of 128, one layer
        assert found.largest_block_bytes == side > GIB

    def test_metal_cuts_where_the_machine_says(self) -> None:
        whole = line("metal", "-c 8192 --load-mode none")
        assert whole.largest_block_bytes == whole.weights_bytes
        assert line("metal", "-c 8192 --load-mode none", 2 * GIB).largest_block_bytes == 2 * GIB

    def test_the_last_chunk_of_a_compute_buffer_takes_the_rest(self) -> None:
        words = "-c 4096 -ub 4096 -b 4096 --tool llama-cli"
        found = line("vulkan", words, 40 * MIB)
        assert found.compute_bytes > CHUNKS * 40 * MIB
        assert found.largest_block_bytes >= found.compute_bytes - (CHUNKS - 1) * 40 * MIB


class TestLimit:
    def test_nothing_is_said_without_one(self) -> None:
        made = ledger(Device("A", "cuda", 24 * GIB, 24 * GIB))
        assert made.fits
        assert not made.notes
        assert made.lines[0].max_block_bytes is None

    def test_room_enough_in_pieces_is_not_enough(self) -> None:
        card = Device("A", "cuda", 24 * GIB, 24 * GIB, max_block_bytes=3 * GIB)
        made = ledger(card)
        short = made.lines[0].weights_bytes - 3 * GIB
        assert [note.code for note in made.notes] == ["single_allocation_limit"]
        assert (made.lines[0].headroom_bytes or 0) > 0
        assert not made.fits
        assert made.misses_by_bytes == short
        assert ledger(replace(card, max_block_bytes=made.lines[0].weights_bytes)).fits

    def test_fewer_layers_make_smaller_pieces(self) -> None:
        card = Device("A", "cuda", 24 * GIB, 24 * GIB, max_block_bytes=3 * GIB)
        assert ledger(card, "-c 8192 -ngl 20").fits

    def test_the_larger_lack_counts(self) -> None:
        card = Device("A", "cuda", 2 * GIB, 2 * GIB, max_block_bytes=GIB)
        found = ledger(card).lines[0]
        assert found.misses_bytes == -(found.headroom_bytes or 0)

    def test_a_draft_has_pieces_of_its_own(self) -> None:
        card = Device("A", "cuda", 24 * GIB, 24 * GIB, max_block_bytes=3 * GIB)
        launch = Launch.parse(
            ["-c", "4096", "-ngl", "0", "-md", "x", "--spec-type", "draft-simple"]
        )
        made = account(MODEL, launch, (card,), companions=Companions(draft=MODEL))
        assert [note.code for note in made.notes] == ["single_allocation_limit"]

    def test_json_says_both(self) -> None:
        card = Device("A", "cuda", 24 * GIB, 24 * GIB, max_block_bytes=3 * GIB)
        row = ledger_json(ledger(card))["buffers"][0]
        assert row["max_block_bytes"] == 3 * GIB
        assert row["largest_block_bytes"] == row["weights_bytes"]

    def test_a_limit_in_words(self) -> None:
        assert Device.of("total=8GiB,kind=cuda,block=1GiB").max_block_bytes == GIB
