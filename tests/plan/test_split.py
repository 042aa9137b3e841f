"""Several GPUs: the split leaves the fullest most, and holds more than sharing by free memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.device import Device
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.options import change, read
from kvwise.plan.candidate import lefts, missing
from kvwise.plan.choose import argv_of, plan
from kvwise.plan.experts import on_host
from kvwise.plan.goal import Goal
from kvwise.plan.lend import lends
from kvwise.plan.split import share

from .setup import RAM, gpu, model

MIXED = [
    ("qwen3-8b", (4, 6)),
    ("qwen3-8b", (6, 4)),
    ("llama-3.1-8b", (6, 3, 2)),
    ("gemma-3-27b", (12, 8)),
    ("qwen3-32b", (12, 8, 6, 4)),
    ("gpt-oss-20b", (8, 6)),
]


def cards(sizes: Sequence[float], kind: str = "cuda") -> list[Device]:
    return [gpu(size, kind=kind, index=index) for index, size in enumerate(sizes)]


# -- the arithmetic ------------------------------------------------------------------------------


def _least_left(sizes: Sequence[int], room: Sequence[int], counts: Sequence[int]) -> int:
    left, at = [], 0
    for space, count in zip(room, counts, strict=True):
        left.append(space - sum(sizes[at : at + count]))
        at += count
    return min(left)


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=7),
    st.lists(st.integers(-20, 200), min_size=1, max_size=3),
)
def test_no_other_split_leaves_the_fullest_more(sizes: list[int], room: list[int]) -> None:
    counts = share(sizes, room)
    assert sum(counts) == len(sizes)

    def splits(units: int, gpus: int) -> list[list[int]]:
        if gpus == 1:
            return [[units]]
        return [[n, *rest] for n in range(units + 1) for rest in splits(units - n, gpus - 1)]

    best = max(_least_left(sizes, room, each) for each in splits(len(sizes), len(room)))
    assert _least_left(sizes, room, counts) == best


# -- plans ---------------------------------------------------------------------------------------


def _longest_by_free_memory(name: str, launch: Launch, devices: Sequence[Device]) -> int:
    """What the same settings hold when llama.cpp shares by free memory."""
    plain = change(launch, tensor_split=())
    low, high = 0, model(name).n_ctx_train // 256 + 1
    while high - low > 1:
        middle = (low + high) // 2
        ledger = account(model(name), change(plain, n_ctx=middle * 256), devices, host=RAM)
        low, high = (low, middle) if missing(ledger) else (middle, high)
    return low * 256


@pytest.mark.parametrize("kind", ["cuda", "generic"])
@pytest.mark.parametrize(("name", "sizes"), MIXED)
def test_more_fits_than_with_shares_by_free_memory(
    name: str, sizes: tuple[float, ...], kind: str
) -> None:
    devices = cards(sizes, kind)
    made = plan(model(name), devices, Goal("chat"), host=RAM)
    choice = made.choice
    usual = _longest_by_free_memory(name, choice.launch, devices)
    assert choice.ledger.context.n_ctx >= usual
    if choice.launch.tensor_split:
        assert sum(choice.launch.tensor_split) == choice.ledger.placement.gpu_layers


def test_the_counts_of_the_split_are_the_layers_of_each_card() -> None:
    devices = cards((4, 6))
    choice = plan(model("qwen3-8b"), devices, host=RAM).choice
    placement = choice.ledger.placement
    homes = [*placement.layers, placement.output]
    assert [homes.count(0), homes.count(1)] == [int(n) for n in choice.launch.tensor_split]
    heard = read(argv_of(choice.launch)[1:]).launch
    assert heard.tensor_split == choice.launch.tensor_split
    assert account(model("qwen3-8b"), heard, devices, host=RAM).lines == choice.ledger.lines


def test_a_card_that_is_not_needed_stays_free() -> None:
    """A small model on a fast and a slow card: the fast one alone, and nothing lost."""
    fast, slow = cards((24, 24))
    fast = replace(fast, bandwidth_bytes_per_s=1000 * 10**9)
    slow = replace(slow, bandwidth_bytes_per_s=300 * 10**9)
    choice = plan(model("qwen3-0.6b"), [slow, fast], host=RAM).choice
    assert choice.slot_tokens == model("qwen3-0.6b").n_ctx_train
    assert [device.name for device in choice.ledger.devices] == [fast.name]


@pytest.mark.parametrize(
    ("field", "value"), [("tensor_split", (1.0, 1.0)), ("main_gpu", 1), ("split_mode", "none")]
)
def test_shares_that_the_user_gave_stay(field: str, value: object) -> None:
    launch = replace(Launch(), **{field: value})
    made = plan(model("qwen3-8b"), cards((8, 10)), launch=launch, fixed={field}, host=RAM)
    for choice in (made.choice, *made.alternatives, *made.ladder):
        assert getattr(choice.launch, field) == value


def test_devices_that_the_user_chose_share_among_themselves() -> None:
    launch = replace(Launch(), devices=("CUDA0", "CUDA2"))
    made = plan(model("qwen3-8b"), cards((6, 24, 4)), launch=launch, fixed={"devices"}, host=RAM)
    assert made.choice.launch.devices == ("CUDA0", "CUDA2")
    assert len(made.choice.launch.tensor_split) == 2


def test_an_override_that_names_a_gpu_keeps_that_gpu() -> None:
    """The first card alone would do, but its buffer is not the one that is named."""
    reading = read(["-ot", r"blk\.(1|2)\.ffn_up=CUDA1"])
    made = plan(
        model("qwen3-8b"), [gpu(11.5), gpu(7.5, index=1)], Goal("chat"),
        launch=reading.launch, fixed={"override_tensor"}, host=RAM,
    )  # fmt: skip
    assert not made.choice.launch.devices
    assert made.choice.ledger.placement.n_gpu == 2


def test_a_card_with_room_takes_a_layer_without_all_of_its_experts() -> None:
    """Whole layers of experts leave up to a layer's size empty on the second card."""
    made = plan(model("mixtral-8x7b"), [gpu(8, kind="generic"), gpu(8, kind="generic", index=1)],
                Goal(min_quality="lossless"))  # fmt: skip
    ledger = made.choice.ledger
    smallest = min(each.nbytes for rows in on_host(ledger).values() for each in rows)
    assert max(lefts(ledger)[:2]) < smallest


def test_where_no_smaller_cache_may_make_room_a_layer_on_the_host_is_offered() -> None:
    """Unless two GPUs may share a layer, which holds as much and reads nothing from the host."""
    lossless = Goal(min_quality="lossless")
    shared = plan(model("llama-3.1-8b"), [gpu(8), gpu(8, index=1)], lossless, host=RAM)
    made = plan(model("llama-3.1-8b"), [gpu(9)], lossless, host=RAM)
    for each, layers in ((shared, 33), (made, 32)):
        assert each.choice.ledger.placement.gpu_layers == 33
        beside = each.alternatives[-1]
        assert beside.ledger.placement.gpu_layers == layers
        assert beside.slot_tokens > each.choice.slot_tokens
        assert beside.ledger.fits
    assert lends(shared.alternatives[-1].launch)
