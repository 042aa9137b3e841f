"""Verdicts and what stands out, from figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.plan.quality import CLASSES, Fidelity, Grades, class_of
from kvwise.quality.flags import quick_but_broken, sensitivity
from kvwise.quality.prompts import Outcome
from kvwise.quality.repetition import Loop
from kvwise.quality.verdict import VERDICTS, verdict
from kvwise.results import EngineSeen, Machine, Measurement, ModelSeen

SMOLLM2 = Fidelity("q8_0", "q8_0", 0.00466, 0.954, 0.00391, 0.957)
"""As measured at b10605 (Q4_1 weights), with the noise of -ub 128."""
FINE = Outcome("prose", 100, 12, False, None, False, None, False, False, None)


def test_noise_is_taken_off_before_judging() -> None:
    assert verdict(SMOLLM2).name == "lossless"
    assert verdict(replace(SMOLLM2, noise=0.0, noise_agreement=None)).name == "high"


@pytest.mark.parametrize(
    ("divergence", "agreement", "expected"),
    [
        (0.0, 1.0, "lossless"), (0.001, 0.98, "lossless"), (0.0011, 1.0, "high"),
        (0.0, 0.979, "high"), (0.01, 0.94, "high"), (0.05, 0.99, "medium"),
        (0.0, 0.82, "medium"), (0.11, 1.0, "broken"), (0.0, 0.81, "broken"),
        (0.0, None, "lossless"),
    ],
)  # fmt: skip
def test_the_worse_of_two_figures_decides(
    divergence: float, agreement: float | None, expected: str
) -> None:
    assert verdict(Fidelity("q8_0", "q8_0", divergence, agreement)).name == expected


SHARES = st.floats(0, 1)
LOSSES = st.floats(0, 2)


@given(LOSSES, SHARES, LOSSES, SHARES, st.floats(0, 1))
def test_more_noise_never_makes_it_worse_and_more_loss_never_better(
    loss: float, same: float, noise: float, calm: float, more: float
) -> None:
    found = Fidelity("q4_0", "q4_0", loss, same, noise, calm)
    place = CLASSES.index(class_of(found))
    assert CLASSES.index(class_of(replace(found, noise=noise + more))) <= place
    assert CLASSES.index(class_of(replace(found, divergence=loss + more))) >= place
    assert VERDICTS.index(verdict(found).name) == place


@pytest.mark.parametrize(
    ("at", "noise_at", "known", "said"),
    [
        (12, None, True, ("1 of 2 answers part from f16's earlier than f16's own do, the first at "
         "token 12")),
        (12, 13, True, "the first at token 12"),
        (12, 12, True, "no earlier than f16's own"),
        (12, 5, True, "no earlier than f16's own"),
        (12, None, False, None),
        (None, 5, True, None),
    ],
)  # fmt: skip
def test_where_answers_part_is_judged_by_where_f16_parts_from_itself(
    at: int | None, noise_at: int | None, known: bool, said: str | None
) -> None:
    changed = replace(FINE, diverged_at=at, noise_at=noise_at, noise_known=known)
    same = replace(FINE, name="code", diverged_at=None, noise_known=known)
    found = verdict(SMOLLM2, [changed, same])
    assert found.name == "lossless"  # another text is no worse one
    last = str(found.why[-1])
    assert (said in last) if said else "f16" not in last


def test_an_empty_answer_is_broken() -> None:
    outcome = replace(FINE, empty=True)
    found = verdict(SMOLLM2, [outcome])
    assert found.name == "broken"
    assert "prose" in str(found.why[0])
    assert class_of(replace(SMOLLM2, broken=True)) == "low"
    assert verdict(SMOLLM2, [replace(outcome, base_empty=True)]).name == "lossless"


LOOP = replace(FINE, loop=Loop(10, 4))
OF_BOTH = replace(LOOP, base_loop=True)
OF_F16 = replace(FINE, base_loop=True)


@pytest.mark.parametrize(
    ("answers", "name"),
    [
        ([LOOP], "lossless"),  # chance
        ([LOOP, LOOP], "broken"),
        ([OF_BOTH, OF_BOTH], "lossless"),
        ([LOOP, OF_BOTH, OF_BOTH], "lossless"),
        ([LOOP, LOOP, OF_BOTH], "broken"),
        ([LOOP, LOOP, OF_F16], "lossless"),  # what f16 has elsewhere is as much chance
    ],
)
def test_loops_decide_when_they_are_more_than_chance(answers: list[Outcome], name: str) -> None:
    found = verdict(SMOLLM2, answers)
    assert found.name == name
    told = [str(each) for each in found.why if "repeats the same" in str(each)]
    assert len(told) == answers.count(LOOP)


def test_a_lost_needle_is_medium_at_best() -> None:
    lost = replace(FINE, name="needle-50", right=False, base_right=True)
    assert verdict(SMOLLM2, [lost]).name == "medium"
    assert verdict(SMOLLM2, [replace(lost, base_right=False)]).name == "lossless"
    assert verdict(replace(SMOLLM2, divergence=3.0), [lost]).name == "broken"


def test_the_planner_takes_the_same_view() -> None:
    grades = Grades.measured([SMOLLM2, Fidelity("q4_0", "q4_0", 0.0573, 0.86, 0.00391, 0.957)])
    assert grades.of("q8_0", "q8_0") == "lossless"
    assert grades.of("q4_0", "q4_0") == "medium"
    assert grades.basis("q4_0", "q4_0") == "measured"


def row(type_k: str, type_v: str, **figures: object) -> Measurement:
    return Measurement(
        "fidelity", 1.0, Machine("m", "Linux x86_64", "cpu", 2, 1 << 30), EngineSeen("embedded"),
        ModelSeen("a", "llama", 1, 1, "f"), {"type_k": type_k, "type_v": type_v, "n_ubatch": 512},
        {"metric": "fidelity"}, figures={"kl_mean_error": 0.001, "noise_kl_mean": 0.004} | figures,
    )  # fmt: skip


def test_k_against_v() -> None:
    rows = [
        row("q4_0", "f16", kl_mean=0.0502), row("f16", "q4_0", kl_mean=0.0114),
        row("q8_0", "f16", kl_mean=0.0047), row("f16", "q8_0", kl_mean=0.0042),
        row("q5_0", "f16", kl_mean=0.02), row("q4_0", "q4_0", kl_mean=0.057),
    ]  # fmt: skip
    found = {each.type: each for each in sensitivity(rows)}
    assert set(found) == {"q4_0", "q8_0"}
    assert found["q4_0"].resolved
    assert found["q4_0"].ratio == pytest.approx((0.0502 - 0.004) / (0.0114 - 0.004))
    assert "K more than V" in str(found["q4_0"].sentence)
    assert not found["q8_0"].resolved
    assert "noise" in str(found["q8_0"].sentence)


def test_k_and_v_that_cannot_be_told_apart_cost_about_the_same() -> None:
    """Gemma 3 270M with llama-perplexity, as measured: all of it is close to the noise."""
    noise = {"noise_kl_mean": 0.009239}
    small = [
        row("q8_0", "f16", kl_mean=0.010152, kl_mean_error=0.000262, **noise),
        row("f16", "q8_0", kl_mean=0.009418, kl_mean_error=0.000192, **noise),
    ]
    assert [each.resolved for each in sensitivity(small)] == [False]
    near = [
        row("q5_0", "f16", kl_mean=0.0145, kl_mean_error=0.001, **noise),
        row("f16", "q5_0", kl_mean=0.0114, kl_mean_error=0.001, **noise),
    ]
    (found,) = sensitivity(near)
    assert found.resolved
    assert "about the same" in str(found.sentence)  # 2.4 times, and within the errors


def test_settings_that_differ_in_more_are_not_compared() -> None:
    one, other = row("q4_0", "f16", kl_mean=0.05), row("f16", "q4_0", kl_mean=0.01)
    other = replace(other, settings={**other.settings, "n_ubatch": 128})
    assert sensitivity([one, other]) == []
    assert sensitivity([replace(one, state="failed"), row("f16", "q4_0", kl_mean=0.01)]) == []


def test_quick_but_broken() -> None:
    rows = [row("q4_0", "q4_0", kl_mean=1.0, verdict="broken"), row("q8_0", "q8_0", kl_mean=0.004)]
    speeds = {("f16", "f16"): 100.0, ("q4_0", "q4_0"): 120.0, ("q8_0", "q8_0"): 120.0}
    assert [str(each) for each in quick_but_broken(rows, speeds)] == [
        "q4_0/q4_0 is quick (120.0 tokens/s) and broken: do not use it"
    ]
    assert quick_but_broken(rows, speeds | {("q4_0", "q4_0"): 50.0}) == []
    assert quick_but_broken(rows, {}) == []
