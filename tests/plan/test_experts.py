"""Expert matrices on the host: the fewest bytes that do, said in patterns that hit exactly them."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

import pytest

from kvwise.memory.account import account
from kvwise.options import change
from kvwise.plan.candidate import lefts, missing
from kvwise.plan.choose import plan
from kvwise.plan.experts import fields_of, matrices, on_host, packed, sums
from kvwise.plan.goal import Goal

from .setup import RAM, gpu, model

MIXTURES = ["gpt-oss-20b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v2-lite", "olmoe-1b-7b"]


@pytest.mark.parametrize("name", MIXTURES)
def test_the_patterns_keep_exactly_these_matrices_on_the_host(name: str) -> None:
    dice = random.Random(7)
    every = matrices(model(name))
    assert len(every) >= 3 * 16
    base = plan(model(name), [gpu(99)], Goal("chat"), host=RAM).choice.launch
    first = {each for each in every if each.layer < 3}
    sets = [set(), first, set(every), *(set(dice.sample(every, n)) for n in (1, 5, 40))]
    for wanted in sets:
        launch = change(base, **fields_of(model(name), wanted))
        ledger = account(model(name), launch, [gpu(99)], host=RAM, compute_mode="none")
        assert set(on_host(ledger).get(0, ())) == wanted
        for pattern, _ in launch.override_tensor:
            assert not any(
                re.search(pattern, tensor.name)
                for tensor in model(name).header.tensors
                if "exps" not in tensor.name or "shexp" in tensor.name
            )


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("share", [0.4, 0.55, 0.7, 0.85])
def test_no_matrix_or_exchange_that_fits_is_left_undone(name: str, share: float) -> None:
    free = model(name).header.tensor_bytes * share / 2**30 + 1
    devices = [gpu(free, kind="generic")]
    made = plan(model(name), devices, Goal("chat", min_quality="lossless"), host=RAM)
    ledger = made.choice.ledger
    host = set(on_host(ledger).get(0, ()))
    assert host
    left = lefts(ledger)[0]
    assert all(comes.nbytes > left for comes in host)
    moved = sum(each.nbytes for each in packed(ledger, [-1, -1]) or ())
    assert moved > sum(each.nbytes for each in host)
    better = packed(ledger, lefts(ledger))
    if better is not None and not made.alternatives:  # it needs more to compute in
        launch = change(ledger.launch, **fields_of(model(name), better))
        assert missing(account(model(name), launch, devices, host=RAM)) > 0


@pytest.mark.parametrize("seed", range(60))
def test_sums_come_in_order_and_none_is_left_out(seed: int) -> None:
    dice = random.Random(seed)
    sizes = {dice.randint(1, 40) * dice.choice([1, 4]): dice.randint(1, 4) for _ in range(3)}
    least = dice.randint(-2, sum(size * count for size, count in sizes.items()) + 3)
    found = list(sums(sizes, least))
    every = itertools.product(*(range(count + 1) for count in sizes.values()))
    totals = {sum(a * b for a, b in zip(sizes, counts, strict=True)) for counts in every}
    assert [sum(size * n for size, n in each.items()) for each in found] == sorted(
        total for total in totals if total >= least
    )
    assert all(each[size] <= sizes[size] for each in found for size in sizes)


def test_experts_of_the_last_layers_stay_on_the_host_where_that_takes_less_to_compute_in() -> None:
    """The copies of this model's first layers take up 378 MiB more; the engine's own fit, which
    has the last ones there, reads 764.2 MiB with 4,096 tokens (b10605)."""
    card = replace(gpu(7.9375), overhead_bytes=0)
    made = plan(model("qwen3-next-80b-a3b"), [card], Goal("chat", min_quality="lossless"), host=RAM)
    ledger = made.choice.ledger
    away = {each.layer for rows in on_host(ledger).values() for each in rows}
    assert max(away) == model("qwen3-next-80b-a3b").n_layer - 1
    assert made.choice.launch.n_cpu_moe == 0
    best = min(each.speed.read_bytes_host for each in (made.choice, *made.alternatives))
    assert best <= 764.2 * 2**20


@pytest.mark.parametrize(("name", "free", "theirs"), [
    ("olmoe-1b-7b", 3.9375, 93.9), ("qwen3.5-35b-a3b", 7.9375, 396.4),
])  # fmt: skip
def test_no_more_is_read_from_the_host_than_with_llama_cpps_fit(
    name: str, free: float, theirs: float
) -> None:
    """At 4,096 tokens and the same margin; its figures are from its own fit, b10605."""
    made = plan(
        model(name), [gpu(free, kind="generic")],
        Goal("document", prompt_tokens=3840, predict_tokens=256, min_quality="lossless"),
        host=RAM,
    )  # fmt: skip
    assert made.choice.speed.read_bytes_host <= theirs * 2**20
