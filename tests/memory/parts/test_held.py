"""What llama-server may keep in host memory: checkpoints and the prompt cache."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))
import cache_setup as setup

from kvwise.arch import describe
from kvwise.device import Device, Host
from kvwise.gguf.header import Header
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Extra, Ledger
from kvwise.memory.made import Made, make
from kvwise.memory.parts.companions import Companions
from kvwise.memory.parts.state import Extent, sequence_bytes
from kvwise.units import GIB, MIB

GPU = Device("A", "generic", 24 * GIB, 24 * GIB)
FULL, WINDOWED, STATE = "qwen3-0.6b", "gemma-3-1b", "mamba-130m"


def ledger(name: str, words: str = "", *devices: Device, host: Host | None = None) -> Ledger:
    return account(setup.zoo_model(name), Launch.parse(words.split()), devices, host=host)


def held(made: Ledger) -> dict[str, Extra]:
    return {extra.of: extra for extra in made.extras if extra.up_to}


def gemma_270m() -> Made:
    """Gemma 3 270M: 18 layers, 15 of them with a window of 512."""
    keys = {
        "context_length": 32768, "embedding_length": 640, "block_count": 18,
        "feed_forward_length": 2048, "attention.head_count": 4, "attention.head_count_kv": 1,
        "attention.key_length": 256, "attention.value_length": 256,
        "attention.sliding_window": 512, "attention.layer_norm_rms_epsilon": 1e-6,
        "vocab_size": 262144,
    }  # fmt: skip
    metadata = {f"gemma3.{key}": value for key, value in keys.items()}
    model = describe(Header(3, {"general.architecture": "gemma3", **metadata}, ()))
    return make(model, Launch.parse(["-c", "4096", "-np", "1"]), (), None, "none")


@pytest.mark.parametrize(
    ("tokens", "extent", "printed"),
    [(684, "partial", "7.506"), (1196, "partial", "7.506"), (46, "partial", "0.675"),
     (1201, "whole", "11.039")],
)  # fmt: skip
def test_state_sizes_are_what_the_server_printed(tokens: int, extent: Extent, printed: str) -> None:
    """`created context checkpoint` and `saving prompt with length` of llama-server b10605."""
    assert f"{sequence_bytes(gemma_270m(), tokens, extent) / MIB:.3f}" == printed


class TestState:
    @settings(max_examples=30, deadline=None)
    @given(st.integers(0, 5000), st.integers(0, 5000))
    def test_more_tokens_are_never_smaller(self, one: int, other: int) -> None:
        made, (less, more) = gemma_270m(), sorted((one, other))
        for extent in ("whole", "partial"):
            assert sequence_bytes(made, less, extent) <= sequence_bytes(made, more, extent)
        assert sequence_bytes(made, less, "partial") <= sequence_bytes(made, less)

    def test_a_whole_context_is_about_its_cache(self) -> None:
        launch = Launch.parse(["-c", "4096", "-np", "1"])
        made = make(setup.zoo_model(FULL), launch, (), None, "none")
        cache = sum(cache.nbytes for cache in made.caches)
        assert cache < sequence_bytes(made, 4096) < cache * 1.01

    def test_states_do_not_grow_with_tokens(self) -> None:
        launch = Launch.parse(["-c", "4096", "-np", "2"])
        made = make(setup.zoo_model(STATE), launch, (), None, "none")
        size = sequence_bytes(made, 10, "partial")
        assert size == sequence_bytes(made, 4000, "partial") == sequence_bytes(made, 4000)
        assert size > made.caches[0].nbytes // 2

    def test_hybrids_checkpoint_their_states_alone(self) -> None:
        launch = Launch.parse(["-c", "4096", "-np", "1"])
        made = make(setup.zoo_model("qwen3.5-0.8b"), launch, (), None, "none")
        state = sum(cache.nbytes for cache in made.caches if cache.kind == "recurrent")
        assert state < sequence_bytes(made, 4000, "partial") < state * 1.01


class TestCheckpoints:
    def test_only_where_a_sequence_cannot_be_cut_back(self) -> None:
        assert "checkpoints" not in held(ledger(FULL, "-c 8192"))
        assert "checkpoints" in held(ledger(WINDOWED, "-c 8192"))
        assert "checkpoints" in held(ledger(STATE, "-c 8192"))

    def test_not_with_whole_windows_or_when_off(self) -> None:
        assert "checkpoints" not in held(ledger(WINDOWED, "-c 8192 --swa-full"))
        assert "checkpoints" not in held(ledger(WINDOWED, "-c 8192 -ctxcp 0"))

    def test_at_most_as_many_as_asked_for_each_slot(self) -> None:
        one = held(ledger(WINDOWED, "-c 8192 -np 1 -ctxcp 1"))["checkpoints"].total_bytes
        words = "-c 8192 -np 1 -cms 0 -ctxcp 7"
        assert held(ledger(WINDOWED, words))["checkpoints"].total_bytes == 7 * one

    def test_no_more_than_their_spacing_allows(self) -> None:
        one = held(ledger(WINDOWED, "-c 32768 -np 1 -ctxcp 1"))["checkpoints"].total_bytes
        many = held(ledger(WINDOWED, "-c 32768 -np 1 -cms 8192"))["checkpoints"].total_bytes
        assert many == 8 * one

    def test_a_draft_is_part_of_each(self) -> None:
        words = ["-c", "8192", "-md", "x", "--spec-type", "draft-simple"]
        model = setup.zoo_model(WINDOWED)
        made = account(model, Launch.parse(words), (), companions=Companions(draft=model))
        plain = held(ledger(WINDOWED, "-c 8192"))["checkpoints"].total_bytes
        both = held(made)["checkpoints"].total_bytes
        assert plain * 1.9 < both <= plain * 2


class TestPromptCache:
    def test_its_limit(self) -> None:
        assert held(ledger(FULL, "-c 4096"))["prompt_cache"].total_bytes == 8192 * MIB
        assert held(ledger(FULL, "-c 4096 -cram 100"))["prompt_cache"].total_bytes == 100 * MIB
        assert "prompt_cache" not in held(ledger(FULL, "-c 4096 --cache-ram 0"))

    def test_without_a_limit_at_least_one_context(self) -> None:
        found = held(ledger(FULL, "-c 4096 -np 1 -cram -1"))["prompt_cache"].total_bytes
        cache = ledger(FULL, "-c 4096 -np 1").host.context_bytes
        assert cache < found < cache * 1.01

    def test_not_for_other_tools_nor_embeddings(self) -> None:
        assert not held(ledger(FULL, "--tool llama-bench -p 512"))
        assert not held(ledger(FULL, "-c 4096 --embedding"))


class TestWhatFits:
    def test_maxima_are_in_no_total(self) -> None:
        made = ledger(FULL, "-c 4096", GPU, host=Host(4 * GIB, 4 * GIB))
        assert made.fits
        assert made.host.up_to_bytes == 8192 * MIB
        assert made.host.total_bytes < GIB
        assert made.lines[0].up_to_bytes == 0

    def test_too_little_host_memory_is_said(self) -> None:
        small, large = Host(4 * GIB, 4 * GIB), Host(64 * GIB, 64 * GIB)
        codes = [
            [note.code for note in ledger(FULL, "-c 4096", GPU, host=host).notes]
            for host in (small, large)
        ]
        assert codes == [["host_may_fill"], []]

    def test_the_worst_is_what_is_left_when_all_has_come(self) -> None:
        line = ledger(FULL, "-c 4096", GPU, host=Host(64 * GIB, 64 * GIB)).host
        assert line.headroom_bytes is not None
        assert line.headroom_at_worst_bytes == line.headroom_bytes - 8192 * MIB
