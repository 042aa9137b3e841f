"""Levels: everything on the GPU first, then expert matrices one by one, then layers."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from kvwise.device import Host
from kvwise.errors import UsageError
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.options import change
from kvwise.plan.choose import plan
from kvwise.plan.goal import Goal
from kvwise.plan.hunt import first_level, hunt, one_step_less_offloaded
from kvwise.plan.offload import is_full, levels
from kvwise.plan.quality import SOURCED
from kvwise.plan.search import Search
from kvwise.units import GIB

from .setup import RAM, gpu, model

MIXTURES = ["gpt-oss-20b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v2-lite", "llama-4-scout"]


@pytest.mark.parametrize("name", [*MIXTURES, "qwen3-8b"])
def test_every_level_keeps_less_on_the_gpu(name: str) -> None:
    steps = levels(model(name), 1, ())
    assert is_full(steps[0], model(name))
    assert not any(is_full(step, model(name)) for step in steps[1:])
    search = _search(name, 900)
    launch = search.sized(search.launch_of(("f16", "f16"), 512), 4096)
    sizes = []
    for step in steps:
        bare = search.ledgers.bare(change(launch, **step))
        assert bare is not None
        sizes.append(bare.lines[0].weights_bytes)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) >= len(steps) - 2  # a level that moves nothing is none


def _search(name: str, free: float, goal: Goal | None = None) -> Search:
    from kvwise.launch import Launch

    def ask(model, launch, devices, host, *, bare=False):  # type: ignore[no-untyped-def]
        mode = "none" if bare else "reserved"
        return account(model, launch, devices, host=host, compute_mode=mode)

    base = Launch(n_outputs_max=1)
    return Search(model(name), [gpu(free)], RAM, goal or Goal(), base, (), ask, SOURCED)


@pytest.mark.parametrize("name", MIXTURES)
def test_a_step_is_one_matrix_of_experts(name: str) -> None:
    """So that a layer's experts, which can be a GiB, are not given away for a few MiB."""
    steps = levels(model(name), 1, ())
    search = _search(name, 900)
    launch = search.sized(search.launch_of(("f16", "f16"), 512), 4096)
    largest = max(tensor.nbytes for tensor in model(name).header.tensors if "_exps." in tensor.name)
    experts = [step for step in steps if step.get("n_gpu_layers") == steps[0]["n_gpu_layers"]]
    ledgers = [search.ledgers.bare(change(launch, **step)) for step in experts]
    sizes = [each.lines[0].weights_bytes for each in ledgers if each]
    drops = [before - after for before, after in pairwise(sizes)]
    assert max(drops) <= largest * 1.01


def test_patterns_name_one_layer_and_not_its_shared_experts() -> None:
    for name in MIXTURES:
        names = [tensor.name for tensor in model(name).header.tensors]
        weights = [each for each in names if each.endswith(".weight")]
        for step in levels(model(name), 1, ()):
            for pattern, _ in step.get("override_tensor", ()):
                hit = [each for each in weights if re.search(pattern, each)]
                assert 1 <= len(hit) <= 2
                assert len({each.split(".")[1] for each in hit}) == 1
                assert not any("shexp" in each for each in hit)


@pytest.mark.parametrize("fixed", ["n_cpu_moe", "override_tensor"])
def test_experts_that_the_user_placed_stay_there(fixed: str) -> None:
    for step in levels(model("gpt-oss-20b"), 1, {fixed}):
        assert not {"n_cpu_moe", "override_tensor"} & set(step)


@pytest.mark.parametrize(("name", "free"), [("gpt-oss-20b", 7.4), ("qwen3-8b", 4.5)])
def test_the_fastest_level_is_found_by_few_graphs(name: str, free: float) -> None:
    search = _search(name, free)
    launch = search.launch_of(("f16", "f16"), 512)
    found = first_level(search, launch, 4096)
    assert found is not None
    asked = len(search.ledgers._whole)
    assert asked <= 6
    above = one_step_less_offloaded(search, found)
    assert above is not None
    left = search.ledgers.whole(search.sized(above[0], 4096))
    assert left is not None
    assert (left.lines[0].headroom_bytes or 0) < 192 * 1024**2


def test_a_host_that_is_too_small_is_seen_without_a_graph() -> None:
    search = _search("deepseek-v3", 8)
    search.host = Host.of("64GiB")
    assert list(hunt(search)) == []
    assert len(search.ledgers._whole) <= 3
    assert search.closest is not None
    assert search.closest > 100 * GIB


def test_what_the_host_cannot_hold_stays_on_the_gpu() -> None:
    """30 GiB of weights, 20 GiB on the card and 16 GiB of memory: only a middle level fits both."""
    small = Host.of("16GiB")
    made = plan(model("qwen3-30b-a3b"), [gpu(10)], Goal("chat"), host=small)
    ledger = made.choice.ledger
    assert ledger.host.total_bytes <= 16 * GIB
    assert made.choice.launch.n_cpu_moe or made.choice.launch.override_tensor


def test_the_ladder_says_what_each_rung_gives_up() -> None:
    made = plan(model("qwen3-8b"), [gpu(7.4)], host=RAM)
    reasons = [str(rung.step) for rung in made.ladder]
    assert reasons[0].startswith("-c ")
    assert all("MiB less on GPU0" in reason for reason in reasons)
    assert any("-ctk f16 -> q8_0, -ctv f16 -> q8_0" in reason for reason in reasons)
    kept = [line for rung in made.ladder for line in rung.ledger.lines if not line.host]
    assert (kept[0].headroom_bytes or 0) >= (192 + 256) * 1024**2


@pytest.mark.parametrize(
    "changes",
    [{"n_gpu_layers": 10}, {"n_cpu_moe": 4}, {"offload_kqv": False},
     {"override_tensor": (("exps", "CPU"),)}],
)  # fmt: skip
def test_never_offload_and_a_flag_that_offloads_contradict_each_other(
    changes: dict[str, object],
) -> None:
    goal, moe = Goal("chat", never_offload=True), model("qwen3-30b-a3b")
    launch = change(Launch(n_seq_max=1), **changes)
    with pytest.raises(UsageError, match="contradict each other"):
        plan(moe, [gpu(24)], goal, launch=launch, fixed=set(changes), host=RAM)
    whole = change(Launch(n_seq_max=1), n_gpu_layers=99)
    made = plan(moe, [gpu(24)], goal, launch=whole, fixed={"n_gpu_layers"}, host=RAM)
    assert made.choice.launch.n_gpu_layers == 99


def test_an_alternative_without_speeds_says_what_it_reads_from_the_host() -> None:
    made = plan(model("qwen3-8b"), [gpu(5)], host=RAM)
    slower = [each for each in made.alternatives
              if each.speed.read_bytes_host > 1.1 * made.choice.speed.read_bytes_host]  # fmt: skip
    assert slower
    for each in slower:
        assert each.speed.decode is None
        assert "more from the host for each token" in str(each.trades)
