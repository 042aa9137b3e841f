"""Reasons, costs, alternatives and what-ifs of a plan carry figures that two ledgers give."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from kvwise.device import Device, Host
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.options import change
from kvwise.plan.choose import Choice, Plan, plan
from kvwise.plan.experts import count_on_host
from kvwise.plan.goal import Goal
from kvwise.plan.outlook import MORE_BYTES, WhatIf, outlook
from kvwise.plan.quality import CLASSES
from kvwise.plan.report import plan_json
from kvwise.plan.speed import Measured, Range, Speed
from kvwise.plan.speed.words import with_speed
from kvwise.plan.trades import outdoing, trades, undominated
from kvwise.text import phrase

from .setup import RAM, gpu, model

CARD = Device.of("RTX 4060", os="linux")


@cache
def made(name: str, goal: Goal | None = None, *devices: Device, **more: object) -> Plan:
    return plan(model(name), devices, goal or Goal("chat"), host=RAM, **more)  # type: ignore[arg-type]


@cache
def cases(name: str, goal: Goal | None = None) -> tuple[WhatIf, ...]:
    return outlook(made(name, goal, CARD), model(name), [CARD], host=RAM)


def on_gpus(ledger: Ledger) -> int:
    return sum(line.total_bytes for line in ledger.lines if not line.host)


def said(choice: Choice) -> str:
    return "\n".join(str(each) for each in choice.why)


# -- costs ---------------------------------------------------------------------


def test_a_cache_type_frees_what_two_ledgers_differ_by() -> None:
    choice = made("qwen3-8b", Goal("document", prompt_tokens=24000), CARD).choice
    cost = next(each for each in choice.costs if each.flag == "-ctk/-ctv")
    plain = account(
        model("qwen3-8b"), change(choice.launch, type_k="f16", type_v="f16"), [CARD], host=RAM
    )
    assert cost.freed_bytes == on_gpus(plain) - on_gpus(choice.ledger)
    row = 2 * 36 * 8 * 128 // 32 * 34  # q8_0 bytes per token
    assert cost.tokens == cost.freed_bytes // row
    assert cost.decode is not None and cost.decode > 1
    assert f"= {cost.tokens:,} tokens" in said(choice)


def test_a_small_micro_batch_frees_its_compute_buffer() -> None:
    launch = Launch.parse(["-ub", "128"])
    choice = made("qwen3-8b", None, CARD, launch=launch, fixed=frozenset({"n_ubatch"})).choice
    cost = next(each for each in choice.costs if each.flag == "-ub")
    usual = account(model("qwen3-8b"), change(choice.launch, n_ubatch=512), [CARD], host=RAM)
    assert cost.freed_bytes == on_gpus(usual) - on_gpus(choice.ledger) > 0
    assert cost.prompt is not None and cost.prompt < 1
    assert "prompts are read" in str(cost.sentence)


def test_what_leaves_the_gpu_is_priced_in_speed() -> None:
    choice = made("qwen3-8b", None, replace(CARD, free_bytes=3 * 1024**3)).choice
    cost = next(each for each in choice.costs if each.flag == "-ngl")
    assert cost.freed_bytes > 0
    assert cost.tokens is None
    assert cost.decode is not None and cost.decode < 0.9


def test_a_plain_plan_cost_nothing() -> None:
    assert made("llama-3.2-1b", None, CARD).choice.costs == ()


# -- sentences ---------------------------------------------------------------------


def test_several_slots_are_told_per_slot() -> None:
    choice = made("qwen3-8b", Goal("chat", slots=4), CARD).choice
    assert f"4 slots of {choice.slot_tokens:,} tokens each" in said(choice)
    shared = made(
        "qwen3-8b",
        Goal("chat", slots=4),
        CARD,
        launch=Launch.parse(["-np", "4", "-kvu"]),
        fixed=frozenset({"kv_unified", "n_seq_max"}),
    ).choice
    per_slot = shared.ledger.context.n_ctx // 4
    assert f"{per_slot:,} per slot when all are in use" in said(shared)


def test_models_that_cannot_reuse_a_prompt_say_so() -> None:
    window = made("gemma-3-4b", None, CARD).choice
    assert "the cache goes back 1,024 tokens at most" in said(window)
    assert "--swa-full avoids it and takes" in said(window)
    whole = made(
        "gemma-3-4b", None, CARD, launch=Launch.parse(["--swa-full"]), fixed=frozenset({"swa_full"})
    ).choice
    assert "goes back" not in said(whole)
    assert "cannot go back" in said(made("mamba-130m", None, CARD).choice)
    assert "cannot go back" in said(made("falcon-h1-1.5b", None, CARD).choice)
    assert "back" not in said(made("qwen3-8b", None, CARD).choice)


def test_the_speed_is_a_range_that_says_it_was_worked_out() -> None:
    assert "(worked out, not measured)" in said(made("qwen3-8b", None, CARD).choice)
    assert "per second" not in said(made("qwen3-8b", None, gpu(7.4)).choice)  # nothing is known


def test_the_device_that_ends_the_context_is_named_where_there_are_several() -> None:
    two = [replace(CARD, free_bytes=3 * 1024**3), replace(CARD, free_bytes=4 * 1024**3, index=1)]
    found = made("qwen3-8b", Goal("chat", never_offload=True), *two)
    binds = found.choice.binds
    assert binds is not None and binds.context == "memory"
    assert f"on {binds.device}" in said(found.choice)
    alone = made("qwen3-8b", None, CARD).choice
    assert "more miss by" in said(alone) and "on CUDA0" not in said(alone)


def test_a_goal_that_wants_no_more_says_so() -> None:
    assert "is what the goal asks for" in said(made("qwen3-8b", Goal("min-memory"), CARD).choice)


# -- alternatives --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "devices"),
    [("qwen3-8b", [CARD]), ("gpt-oss-20b", [CARD]), ("gemma-3-27b", [CARD]), ("qwen3-8b", [])],
)
def test_no_alternative_is_worse_in_everything(name: str, devices: list[Device]) -> None:
    found = made(name, None, *devices)
    every = [found.choice, *found.alternatives]
    for one in found.alternatives:
        for other in every:
            if other is one or not (one.speed.decode and other.speed.decode):
                continue
            better = (
                other.slot_tokens > 1.04 * one.slot_tokens,
                CLASSES.index(other.quality) < CLASSES.index(one.quality),
                other.speed.decode.middle > 1.04 * one.speed.decode.middle,
            )
            worse = (
                other.slot_tokens < one.slot_tokens,
                CLASSES.index(other.quality) > CLASSES.index(one.quality),
                other.speed.decode.middle < one.speed.decode.middle,
            )
            assert any(worse) or not any(better)
        assert one.trades is not None
        assert str(one.trades) != "as the choice, by another way"


class Offer:
    def __init__(self, tokens: int, quality: str, low: float) -> None:
        self.slot_tokens, self.quality, self.pipeline = tokens, quality, False
        self.speed = Speed(decode=Range(low, 2 * low))


def test_what_is_dominated_or_hardly_differs_is_left_out() -> None:
    chosen = Offer(8192, "high", 20)
    others = [
        Offer(8192, "high", 10),  # slower for nothing
        Offer(16384, "high", 10),
        Offer(16640, "high", 10.1),  # hardly another
        Offer(16384, "medium", 9),  # worse than the second
        Offer(4096, "lossless", 20),
    ]
    assert undominated(chosen, others) == [1, 4]


def test_what_is_better_in_everything_is_taken() -> None:
    chosen = Offer(8192, "high", 20)
    faster, fastest = Offer(8192, "lossless", 30), Offer(9000, "high", 40)
    shorter, worse, alike = Offer(8000, "high", 50), Offer(9000, "low", 50), Offer(9000, "high", 20)
    assert outdoing(chosen, [faster, shorter, fastest, worse, alike]) == 2
    assert outdoing(chosen, [shorter, worse, alike]) is None


def test_a_processor_keeps_f16_where_it_is_faster_and_fits() -> None:
    """With q8_0 fewer bytes are read, and still answers come slower (docs/quality.md)."""
    made = plan(model("qwen3-8b"), [], Goal(), host=replace(Host.of("64GiB"), cores=8))
    assert made.choice.quality == "lossless"
    assert outdoing(made.choice, made.alternatives) is None


def test_trades_name_what_is_given_and_taken() -> None:
    chosen, other = Offer(8192, "high", 20), Offer(16384, "medium", 10)
    assert str(trades(chosen, other)) == (
        "8,192 tokens more (+100 %), cache quality medium instead of high, answers 50 % slower"
    )


@pytest.mark.parametrize(
    ("ratio", "said"),
    [(14.5, "answers come 14 times as fast"), (2.04, "answers come 2.0 times as fast"),
     (2.0, "answers come 100 % faster"), (1.25, "answers come 25 % faster"),
     (0.07, "answers come 93 % slower"), (1.02, "")],
)  # fmt: skip
def test_above_twice_as_fast_a_factor_is_said(ratio: float, said: str) -> None:
    """`1350 % faster` is read by nobody."""
    words = str(with_speed(phrase("x"), ratio, None))
    assert words == (f"x; {said}" if said else "x")
    prompt = str(with_speed(phrase("x"), None, ratio))
    assert prompt == words.replace("answers come", "prompts are read")


def test_trades_above_twice_are_factors() -> None:
    chosen, other = Offer(8192, "high", 2), Offer(40960, "high", 29)
    assert str(trades(chosen, other)) == (
        "32,768 tokens more (5.0 times as many), answers 14 times as fast"
    )


# -- what if ------------------------------------------------------------------------


def test_more_memory_gives_what_a_plan_with_it_gives() -> None:
    found = made("qwen3-8b", None, CARD)
    more = cases("qwen3-8b")[0]
    bigger = replace(
        CARD, total_bytes=CARD.total_bytes + MORE_BYTES, free_bytes=CARD.free_bytes + MORE_BYTES
    )
    assert more.kind == "memory" and more.basis == "computed"
    assert more.choice is not None
    again = account(model("qwen3-8b"), more.choice.launch, [bigger], host=RAM)
    assert again.lines[0].headroom_bytes == more.choice.ledger.lines[0].headroom_bytes
    gained = more.choice.slot_tokens - found.choice.slot_tokens
    assert gained >= MORE_BYTES // (36 * 4096) - 512  # f16: 147,456 bytes per token
    assert f"{gained:,} tokens more" in str(more.sentence)


def test_the_smaller_the_weights_the_fewer_experts_stay_on_the_host() -> None:
    others = [each for each in cases("qwen3-30b-a3b") if each.kind == "quant"]
    away = [count_on_host(each.choice.ledger) for each in others if each.choice]
    assert len(away) == len(others) == 4
    assert away == sorted(away, reverse=True)
    assert f"{away[0]} of 144 expert matrices on the host" in str(others[0].sentence)


def test_other_quantizations_are_estimated_and_say_so() -> None:
    found = [each for each in cases("qwen3-8b") if each.kind == "quant"]
    assert [each.name for each in found] == ["Q6_K", "Q5_K_M", "IQ4_XS", "Q3_K_M"]
    assert all(each.basis == "estimated" and "about" in str(each.sentence) for each in found)
    contexts = [each.choice.slot_tokens for each in found if each.choice]
    assert contexts == sorted(contexts) and len(contexts) == 4


def test_a_model_in_its_own_type_has_no_other() -> None:
    assert {each.kind for each in cases("gpt-oss-20b")} == {"memory"}


# -- the document ---------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_document_holds_it_all(language: str) -> None:
    goal = Goal("document", prompt_tokens=24000)
    found = made("qwen3-8b", goal, CARD)
    document = plan_json(found, language, cases("qwen3-8b", goal))
    choice = document["choice"]
    assert choice["speed"]["decode_range"]["low"] < choice["speed"]["decode_tokens_per_s"]
    assert choice["speed"]["decode_tokens_per_s"] < choice["speed"]["decode_range"]["high"]
    assert choice["speed"]["devices"][0]["cache_read_bytes"] > 0
    assert choice["costs"][0]["freed_bytes"] > 0
    assert all(each["trades"] for each in document["alternatives"])
    assert document["choice"]["trades"] is None
    assert {each["kind"] for each in document["what_if"]} == {"memory", "quant"}
    assert plan_json(found)["what_if"] is None
    if language == "zh":
        assert any("\u4e00" <= letter <= "\u9fff" for letter in choice["costs"][0]["sentence"])


# -- what was measured here ------------------------------------------------------------


def test_a_plan_takes_speeds_that_were_measured_here() -> None:
    found = made("qwen3-8b", None, CARD).choice
    result = Measured.of(found.ledger, found.speed.depth, decode_tokens_per_s=31.5)
    again = made("qwen3-8b", None, CARD, results=(result,)).choice
    assert again.launch == found.launch
    assert again.speed.basis == "measured"
    assert "(measured here)" in said(again)
