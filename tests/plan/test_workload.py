"""What the ranges of the roofline tell apart decides; what they do not is left to the bytes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kvwise.plan.goal import Goal
from kvwise.plan.speed import Range, Speed
from kvwise.plan.workload import clearly_faster, took


@dataclass(frozen=True)
class One:
    slot_tokens: int
    speed: Speed
    quality: str = "high"


def speed(decode: tuple[float, float], prompt: tuple[float, float], depth: int = 4096) -> Speed:
    return Speed(decode=Range(*decode), prompt=Range(*prompt), depth=depth)


SLOW = One(16384, speed((4, 8), (100, 200)))
FAST = One(16384, speed((20, 40), (900, 1500)))
LIKE = One(16384, speed((7, 14), (150, 300)))


def test_the_time_of_a_request_is_its_prompt_and_its_answer() -> None:
    found = took(SLOW.speed, Goal("document", prompt_tokens=1000, predict_tokens=100))
    assert found is not None
    assert (found.least, found.most) == (1000 / 200 + 100 / 8, 1000 / 100 + 100 / 4)
    assert took(Speed(), Goal()) is None


def test_only_what_is_faster_at_its_worst_is_clearly_faster() -> None:
    assert clearly_faster(Goal("chat"), SLOW, [LIKE, FAST]) == 1
    assert clearly_faster(Goal("chat"), SLOW, [LIKE]) is None
    assert clearly_faster(Goal("chat"), FAST, [SLOW, LIKE]) is None


def test_a_short_prompt_and_a_long_answer_weigh_as_they_are() -> None:
    reads = One(16384, speed((4, 8), (5000, 9000)))
    writes = One(16384, speed((30, 60), (100, 200)))
    long_prompt = Goal("document", prompt_tokens=8000, predict_tokens=10)
    long_answer = Goal("document", prompt_tokens=10, predict_tokens=2000)
    assert clearly_faster(long_prompt, writes, [reads]) == 0
    assert clearly_faster(long_prompt, reads, [writes]) is None
    assert clearly_faster(long_answer, reads, [writes]) == 0


@pytest.mark.parametrize("purpose", ["max-context", "min-memory"])
def test_goals_that_do_not_ask_for_speed_are_left_alone(purpose: str) -> None:
    assert clearly_faster(Goal(purpose), SLOW, [FAST]) is None


def test_what_is_too_short_for_the_goal_is_no_choice() -> None:
    short = One(4096, FAST.speed)
    assert clearly_faster(Goal("chat"), SLOW, [short]) is None
    assert clearly_faster(Goal("chat"), One(4096, SLOW.speed), [short]) == 0
