"""A plan beside results of this machine: one basis for every claim, and no claim within noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvwise.device import Host
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.plan.choose import Plan, plan
from kvwise.plan.goal import Goal
from kvwise.plan.outlook import outlook
from kvwise.plan.speed import Measured, Range, Speed, against, estimate
from kvwise.plan.speed.work import Work
from kvwise.plan.trades import gains, outdoing, trades, undominated

from .setup import model

HOST = replace(Host.of("24GiB"), cores=2)
NAME = "qwen3-0.6b"
DEPTH = 4096


def result(type_k: str, type_v: str, decode: float, prompt: float, spread: float = 0.0) -> Measured:
    """What a benchmark of this machine's processor keeps."""
    launch = Launch.parse(f"-c 8192 -ctk {type_k} -ctv {type_v}".split())
    ledger = account(model(NAME), launch, [], host=HOST, compute_mode="none")
    return replace(
        Measured.of(ledger, DEPTH, decode_tokens_per_s=decode, prompt_tokens_per_s=prompt),
        spread=spread,
    )


NOISY = (result("f16", "f16", 11.4, 114.0, 0.05), result("q8_0", "f16", 12.4, 124.0, 0.12))


def planned(results: Sequence[Measured] = (), **fixed: object) -> Plan:
    launch = Launch(n_seq_max=1, n_outputs_max=1, **fixed)  # type: ignore[arg-type]
    return plan(
        model(NAME), [], Goal("chat"), launch=launch, fixed=fixed, host=HOST, results=results
    )


def speed(results: Sequence[Measured], type_k: str, type_v: str) -> Speed:
    launch = Launch.parse(f"-c 8192 -ctk {type_k} -ctv {type_v}".split())
    ledger = account(model(NAME), launch, [], host=HOST, compute_mode="none")
    return estimate(ledger, DEPTH, host=HOST, results=results)


def decode(found: Speed) -> Range:
    assert found.decode is not None
    return found.decode


def test_types_that_nobody_measured_are_not_chosen_for_a_speed_that_nobody_saw() -> None:
    """By its bytes alone q8_0 would be half as fast again; unpacking it takes that and more."""
    found = planned(NOISY)
    assert found.choice.quality == "lossless"
    assert found.choice.speed.basis == "corrected"
    assert [each.quality for each in found.alternatives] == []


def test_a_decision_is_weighed_by_the_measurements_that_its_speed_stands_on() -> None:
    found = planned(NOISY, type_k="q8_0", type_v="q8_0").choice
    assert [each.flag for each in found.costs] == ["-ctk/-ctv"]
    assert found.costs[0].decode is None  # within what the results leave open
    assert "answers come" not in str(found.costs[0].sentence)
    known = (*NOISY, result("q8_0", "q8_0", 5.0, 60.0))
    (cost,) = planned(known, type_k="q8_0", type_v="q8_0").choice.costs
    assert cost.decode is not None
    assert cost.decode < 0.9


def test_other_types_gain_between_nothing_and_all_their_bytes() -> None:
    base = decode(speed(NOISY[:1], "f16", "f16"))
    both = [
        decode(speed((result("q8_0", "f16", 12.4, 124.0),), *types))
        for types in (("q8_0", "f16"), ("q8_0", "q8_0"))
    ]
    assert speed(NOISY[:1], "q8_0", "q8_0").basis == "corrected"
    assert base.low < 11.4 < base.high
    assert both[1].high - both[1].low > both[0].high - both[0].low
    unpacked = decode(speed(NOISY[:1], "q8_0", "q8_0"))
    assert unpacked.low < base.low  # unpacking was worked out to take so much
    back = decode(speed((result("q8_0", "q8_0", 5.0, 60.0),), "f16", "f16"))
    assert back.high > 5.0 * 1.05


def test_the_spread_of_the_samples_widens_the_range() -> None:
    quiet, noisy = (speed((result("f16", "f16", 11.4, 114.0, by),), "f16", "f16")
                    for by in (0.01, 0.2))  # fmt: skip
    assert decode(quiet).low > 11.4 * 0.94
    assert decode(noisy).low < 11.4 * 0.81
    assert decode(noisy).high > 11.4 * 1.19


def test_other_quantizations_stand_on_the_same_measurements() -> None:
    made = planned(NOISY)
    cases = [each.choice for each in outlook(made, model(NAME), [], host=HOST, results=NOISY)]
    assert len(cases) > 1
    assert all(each is not None and each.speed.basis == "corrected" for each in cases)
    widest = max(decode(each.speed).high / decode(each.speed).low for each in cases if each)
    assert widest < 2


# -- what can be told from noise -----------------------------------------------------------


class Offer:
    def __init__(self, quality: str, low: float, high: float, basis: str = "measured") -> None:
        self.slot_tokens, self.quality, self.pipeline = 8192, quality, False
        self.speed = Speed(decode=Range(low, high), basis=basis)


def test_ranges_that_touch_are_no_difference_once_something_was_measured() -> None:
    one, two = Offer("high", 11, 13).speed, Offer("high", 12, 16).speed
    assert against.decode(one, two) is None
    assert against.decode(one, Offer("high", 14, 16, "roofline").speed) is not None
    worked_out = Offer("high", 11, 13, "roofline").speed, Offer("high", 12, 16, "roofline").speed
    assert against.decode(*worked_out) is not None


def test_an_alternative_that_gains_nothing_is_not_one() -> None:
    chosen = Offer("lossless", 11, 13)
    slower, alike = Offer("high", 5, 7), Offer("high", 12, 14)
    assert undominated(chosen, [slower, alike]) == []
    assert not gains(chosen, slower)
    assert not gains(chosen, alike)
    assert gains(chosen, Offer("high", 14, 16))


def test_what_measures_as_fast_and_loses_nothing_is_taken() -> None:
    chosen = Offer("high", 12, 14)
    assert outdoing(chosen, [Offer("lossless", 11, 13)]) == 0
    assert outdoing(chosen, [Offer("lossless", 8, 11)]) is None
    assert outdoing(chosen, [Offer("lossless", 11, 13, "roofline")]) is None


def test_without_speeds_fewer_bytes_from_the_host_are_named() -> None:

    one, two = Offer("high", 1, 1), Offer("medium", 1, 1)
    one.speed, two.speed = (Speed(parts=(Work(-1, weights=size << 20),)) for size in (300, 200))
    assert gains(one, two)
    assert not gains(two, two)
    assert "reads 100.0 MiB less from the host for each token" in str(trades(one, two))
