"""A layer that two GPUs share: it fills both, is told, and never hides what it costs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.device import Device
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.weights import weigh
from kvwise.options import read
from kvwise.plan.candidate import lefts, missing
from kvwise.plan.choose import Plan, argv_of, plan
from kvwise.plan.goal import Goal
from kvwise.plan.lend import balanced, lending, lends, without_loans
from kvwise.units import MIB

from .setup import RAM, gpu, model

DENSE, EXPERTS = "minicpm3-4b", "qwen1.5-moe-a2.7b"
LOSSLESS = Goal("chat", min_quality="lossless")
LONGEST = Goal("max-context", min_quality="lossless", never_offload=True)
ALL_ROWS = Launch(n_outputs_max=0)  # logits of all tokens, as llama.cpp's `--fit` counts them


def cards(sizes: Sequence[float], kind: str) -> list[Device]:
    """Nothing but the buffers on them, and 256 MiB that stay free."""
    plain = [gpu(size, kind=kind, index=index) for index, size in enumerate(sizes)]
    return [replace(each, reserve_bytes=256 * MIB, overhead_bytes=0) for each in plain]


def _plan(name: str, sizes: Sequence[float], kind: str, goal: Goal = LOSSLESS) -> Plan:
    return plan(
        model(name), cards(sizes, kind), goal, launch=ALL_ROWS, fixed={"n_ubatch"}, host=RAM
    )


# -- the arithmetic ------------------------------------------------------------------------------


@given(st.integers(-600, 600), st.integers(-600, 600), st.sampled_from([DENSE, EXPERTS]))
def test_a_loan_leaves_the_fullest_card_more_and_changes_no_sum(
    first: int, second: int, name: str
) -> None:
    ledger = account(model(name), Launch(n_ctx=512), cards((24, 24), "generic"), host=RAM)
    left = [first * MIB, second * MIB, 1 << 50]
    loans, rooms = balanced(ledger, left)
    assert sum(rooms) == sum(left)
    assert min(rooms) >= min(left)
    assert bool(loans) == (rooms != left)
    assert not loans or min(left) < 0


@pytest.mark.parametrize("name", [DENSE, EXPERTS])
def test_what_is_lent_moves_by_exactly_its_bytes(name: str) -> None:
    devices = cards((24, 24), "generic")
    launch = Launch(n_ctx=512, tensor_split=(1.0, 1.0))
    before = account(model(name), launch, devices, host=RAM)
    loans, _ = balanced(before, [-64 * MIB, 1 << 30, 1 << 50])
    after = account(model(name), lending(launch, before, loans), devices, host=RAM)
    moved = [a.weights_bytes - b.weights_bytes
             for a, b in zip(after.lines, before.lines, strict=True)]  # fmt: skip
    size = sum(each.nbytes for each in loans)
    assert size
    assert moved == [-size, size, 0]


# -- plans ---------------------------------------------------------------------------------------


def test_a_layer_is_shared_where_no_split_of_whole_layers_holds_as_much() -> None:
    made = _plan(EXPERTS, (8, 8), "generic")
    choice = made.choice
    assert lends(choice.launch)
    assert choice.slot_tokens == model(EXPERTS).n_ctx_train
    assert missing(choice.ledger) == 0
    ((pattern, buffer),) = choice.launch.override_tensor
    placement = choice.ledger.placement
    where = weigh(model(EXPERTS), choice.launch, placement, choice.ledger.devices).where
    names = [name for name in where if re.search(pattern, name)]
    assert names
    assert all(choice.ledger.lines[where[name]].buffer == buffer for name in names)
    homes = {placement.of(int(name.split(".")[1])) for name in names}
    assert homes.isdisjoint({where[name] for name in names})
    assert any(f"-ot {pattern}" in str(reason) for reason in choice.why)


def test_the_command_line_says_the_same() -> None:
    choice = _plan(EXPERTS, (8, 8), "generic").choice
    heard = replace(read(argv_of(choice.launch)[1:]).launch, n_outputs_max=0)
    assert heard.override_tensor == choice.launch.override_tensor
    again = account(model(EXPERTS), heard, choice.ledger.devices, host=RAM)
    assert again.lines == choice.ledger.lines


def test_a_pipeline_is_given_up_by_the_one_who_asks_and_offered_to_others() -> None:
    """Any `-ot` ends the pipeline in which several CUDA cards read a prompt."""
    made = _plan(EXPERTS, (8, 8), "cuda")
    assert made.choice.ledger.placement.pipeline_parallel
    beside = [each for each in made.alternatives if lends(each.launch)]
    assert beside
    assert beside[0].slot_tokens > made.choice.slot_tokens
    assert "pipeline" in str(beside[0].trades)
    longest = _plan(EXPERTS, (8, 8), "cuda", LONGEST).choice
    assert lends(longest.launch)
    assert any("pipeline" in str(reason) for reason in longest.why)


def test_a_hair_more_context_is_no_reason() -> None:
    """256 tokens more of 17,152, which only the longest context wants."""
    plain = _plan(DENSE, (8, 8), "generic").choice
    longest = _plan(DENSE, (8, 8), "generic", LONGEST).choice
    assert not plain.launch.override_tensor
    assert lends(longest.launch)
    assert plain.slot_tokens < longest.slot_tokens < plain.slot_tokens * 1.02


def test_patterns_of_the_user_stay_alone() -> None:
    own = ((r"blk\.3\.ffn_up_exps", "VGPU1"),)
    made = plan(
        model(EXPERTS), cards((8, 8), "generic"), LOSSLESS, host=RAM,
        launch=Launch(override_tensor=own), fixed={"override_tensor"},
    )  # fmt: skip
    for choice in (made.choice, *made.alternatives, *made.ladder):
        assert choice.launch.override_tensor == own
    assert not any("shared by two GPUs" in str(reason) for reason in made.choice.why)


def test_the_ladder_goes_down_from_a_shared_layer() -> None:
    made = _plan(EXPERTS, (8, 8), "generic")
    assert made.ladder
    fullest = [min(lefts(each.ledger)) for each in (made.choice, *made.ladder)]
    assert all(left >= 0 for left in fullest)
    assert without_loans(made.choice.launch).override_tensor == ()
