"""Classes of cache types: by rule, by what others measured of a family, by this machine."""

from __future__ import annotations

import pytest

from kvwise.plan.choose import plan
from kvwise.plan.goal import Goal
from kvwise.plan.quality import FRAGILE, PAIRS, SOURCED, Fidelity, Grades, class_of, quality_of

from .setup import RAM, gpu, model


@pytest.mark.parametrize(
    ("divergence", "agreement", "expected"),
    [
        (0.0002, 0.995, "lossless"),
        (0.0002, None, "lossless"),
        (0.005, 0.995, "high"),
        (0.0002, 0.97, "high"),
        (0.05, 0.98, "medium"),
        (0.05, 0.749, "low"),
        (0.5, None, "low"),
    ],
)
def test_the_worse_figure_decides(
    divergence: float, agreement: float | None, expected: str
) -> None:
    assert class_of(Fidelity("q8_0", "q8_0", divergence, agreement)) == expected


def test_what_was_measured_wins_over_every_rule() -> None:
    grades = Grades.measured(
        [Fidelity("q8_0", "q8_0", 0.2), Fidelity("q4_0", "q4_0", 0.004, 0.98)], "gpt-oss"
    )
    assert grades.of("q8_0", "q8_0") == "low"
    assert grades.of("q4_0", "q4_0") == "high"
    assert grades.basis("q4_0", "q4_0") == "measured"
    assert sorted(PAIRS, key=grades.rank)[:2] == [("f16", "f16"), ("q4_0", "q4_0")]


def test_families_that_lose_more_are_classed_lower() -> None:
    sinks = Grades(architecture="gpt-oss")
    assert sinks.of("q8_0", "q8_0") == "low"
    assert sinks.of("f16", "q8_0") == "high"
    assert sinks.basis("q8_0", "q8_0") == "model family"
    qwen = Grades(architecture="qwen2")
    assert (qwen.of("q8_0", "q8_0"), qwen.of("q5_1", "q4_0")) == ("high", "low")
    assert all("#" in each.source for each in FRAGILE.values())


def test_others_follow_the_rule() -> None:
    for pair in PAIRS:
        assert SOURCED.of(*pair) == quality_of(*pair)
        assert SOURCED.basis(*pair) == "cache types"


def test_a_plan_keeps_gpt_oss_at_f16_until_something_better_is_known() -> None:
    made = plan(model("gpt-oss-20b"), [gpu(7.4)], Goal("chat"), host=RAM)
    assert (made.choice.launch.type_k, made.choice.quality) == ("f16", "lossless")


def test_a_plan_follows_what_was_measured() -> None:
    """q8_0 was found bad and q4_0 good on this model, whatever the rules say."""
    grades = Grades.measured([Fidelity("q8_0", "q8_0", 0.5), Fidelity("q4_0", "q4_0", 0.001)])
    made = plan(
        model("qwen3-8b"), [gpu(5.6)], Goal("document", min_quality="high"), host=RAM,
        grades=grades,
    )  # fmt: skip
    assert made.choice.launch.type_k == "q4_0"
    assert (made.choice.quality, made.choice.quality_basis) == ("lossless", "measured")
    for each in (made.choice, *made.alternatives, *made.ladder):
        assert each.launch.type_k != "q8_0"
