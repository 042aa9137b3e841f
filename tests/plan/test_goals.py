"""Presets: what each goal needs is what its plan holds, and docs/presets.md says what they give."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from kvwise.device import Device, Host
from kvwise.errors import UsageError
from kvwise.plan.choose import Impossible, Plan, plan
from kvwise.plan.goal import PURPOSES, Goal
from kvwise.plan.quality import meets

from .setup import RAM, gpu, model

PAGE = Path(__file__).parents[2] / "docs/presets.md"
CARD = "name=GTX 1660 Ti,total=6144MiB,free=5900MiB,kind=cuda,reserve=192MiB"
ROW = re.compile(
    r"^\| `(?P<goal>[a-z-]+)` \|.*\| (?P<tokens>[\d,]+) \| (?P<k>\w+)/(?P<v>\w+) \| (?P<ub>\d+) \| "
    r"(?P<layers>\d+) of 37 \| (?P<where>GPU|host) \|$",
    re.MULTILINE,
)


@cache
def _on_the_reports_card(purpose: str) -> Plan:
    return plan(model("qwen3-8b"), [Device.of(CARD)], Goal(purpose), host=Host.of("32GiB"))


@pytest.mark.parametrize("purpose", PURPOSES)
def test_every_preset_holds_what_it_needs(purpose: str) -> None:
    """requirements.md B6, on the report's own card and model."""
    made, terms = _on_the_reports_card(purpose), PURPOSES[purpose]
    assert made.choice.slot_tokens >= terms.least
    assert meets(made.choice.quality, terms.floor)
    assert made.choice.ledger.placement.gpu_layers == 37
    assert made.choice.ledger.lines[0].headroom_bytes is not None
    assert made.choice.ledger.lines[0].headroom_bytes >= 192 * 1024**2


@pytest.mark.parametrize("row", [m.groupdict() for m in ROW.finditer(PAGE.read_text())])
def test_the_page_says_what_plan_says(row: dict[str, str]) -> None:
    choice = _on_the_reports_card(row["goal"]).choice
    launch = choice.launch
    assert (f"{choice.slot_tokens:,}", launch.type_k, launch.type_v, str(launch.n_ubatch)) == (
        row["tokens"], row["k"], row["v"], row["ub"],
    )  # fmt: skip
    assert str(choice.ledger.placement.gpu_layers) == row["layers"]
    assert launch.offload_kqv == (row["where"] == "GPU")


def test_the_page_has_every_preset() -> None:
    assert {m["goal"] for m in ROW.finditer(PAGE.read_text())} == set(PURPOSES)


def test_a_conversation_stays_in_the_context_as_a_whole() -> None:
    goal = Goal("multi-turn", prompt_tokens=2000, turns=30, tokens_per_turn=400)
    made = plan(model("qwen3-8b"), [gpu(7.4)], goal, host=RAM)
    assert goal.conversation == 14_000
    assert made.choice.slot_tokens >= 14_000
    assert made.turns_max == (made.choice.slot_tokens - 2000) // 400
    assert made.turns_max is not None
    assert made.turns_max >= 30


@pytest.mark.parametrize(
    ("goal", "tokens"),
    [
        (Goal("multi-turn", turns=20), 20 * 512),
        (Goal("multi-turn", tokens_per_turn=100), 16 * 100),
        (Goal("multi-turn", turns=1, tokens_per_turn=10, predict_tokens=900), 900),
        (Goal("multi-turn"), None),
    ],
)
def test_what_is_not_said_of_a_conversation_is_usual(goal: Goal, tokens: int | None) -> None:
    assert goal.conversation == tokens
    assert goal.least(131_072) == (tokens or PURPOSES["multi-turn"].least)


def test_too_many_turns_are_refused_and_fewer_offered() -> None:
    with pytest.raises(Impossible) as caught:
        plan(model("qwen3-8b"), [gpu(7.4)], Goal("multi-turn", turns=1000), host=RAM)
    nearest = caught.value.nearest
    assert nearest is not None
    assert nearest.turns_max is not None
    assert 1 <= nearest.turns_max < 1000


@pytest.mark.parametrize("wrong", [{"turns": 0}, {"tokens_per_turn": 0}])
def test_turns_that_cannot_be_meant(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Goal("multi-turn", **wrong)


def test_a_smaller_cache_that_keeps_all_layers_is_better_than_layers_on_the_host() -> None:
    goal = Goal("multi-turn", turns=30, tokens_per_turn=300)
    made = plan(model("qwen3-8b"), [Device.of(CARD)], goal, host=RAM)
    assert made.choice.ledger.placement.gpu_layers == 37
    assert made.choice.quality == "high"


def test_all_layers_on_the_card_go_before_a_longer_context() -> None:
    """Qwen3-8B with f16 lacks room for its last layers, with q8_0 all fit: chat takes that, and
    max-context says what it gives up."""
    card = gpu(5.6)
    chat = plan(model("qwen3-8b"), [card], Goal("chat"), host=RAM)
    assert chat.choice.launch.n_gpu_layers == 37
    assert chat.choice.launch.type_k == "q8_0"
    assert any(each.slot_tokens > chat.choice.slot_tokens for each in chat.alternatives)
    longest = plan(model("qwen3-8b"), [card], Goal("max-context", min_quality="high"), host=RAM)
    assert longest.choice.slot_tokens > chat.choice.slot_tokens
    said = [str(each) for each in longest.choice.why]
    assert any(each.startswith("everything fits on the GPUs with") for each in said)
    assert not any("more do not fit" in each for each in said)
