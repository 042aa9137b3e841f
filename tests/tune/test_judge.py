"""A gain counts when it is larger than the spread and there in every round."""

from __future__ import annotations

from kvwise.tune.judge import Verdict, candidates, judge
from kvwise.tune.knobs import Point
from kvwise.tune.measure import Request, Taken

START: Point = (("t", 4),)
OTHER: Point = (("t", 2),)


def taken(seconds: float, *flags: str) -> Taken:
    return Taken(0.0, 1.0, seconds, 100.0, 10.0, flags)


def verdict(start: list[Taken], other: list[Taken]) -> Verdict:
    rounds = [{START: a, OTHER: b} for a, b in zip(start, other, strict=True)]
    return judge(candidates([START, OTHER], rounds), START)


def test_a_clear_gain_is_recommended() -> None:
    found = verdict([taken(10), taken(10.1)], [taken(8), taken(8.1)])
    assert found.best is not None and found.best.point == OTHER
    assert round(found.best.gain, 2) == 0.25


def test_a_gain_within_noise_is_not() -> None:
    assert verdict([taken(10), taken(11)], [taken(9.6), taken(9.9)]).best is None
    assert verdict([taken(10), taken(10)], [taken(9.9), taken(9.9)]).best is None  # below 2 %


def test_slower_in_one_round_is_not() -> None:
    assert verdict([taken(10), taken(10)], [taken(7), taken(10.2)]).best is None


def test_one_round_says_nothing() -> None:
    assert verdict([taken(10)], [taken(5)]).best is None


def test_disturbed_rounds_do_not_count_where_there_are_others() -> None:
    busy = [taken(10), taken(10.1), taken(10)]
    other = [taken(30, "contended"), taken(8), taken(8.1)]
    found = verdict(busy, other)
    assert found.best is not None and found.best.flagged == 1


def test_a_start_that_fails_leaves_nothing_to_compare() -> None:
    failed = Taken(0.0, 1.0, error="refused")
    assert verdict([failed, failed], [taken(8), taken(8)]).best is None


def test_a_request_is_measured_in_parts_and_weighed_whole() -> None:
    long = Request(8192, 256)
    read, made = long.tests
    assert (read.name, made.name) == ("pp2048", "tg64@d2048")
    assert long.seconds(1000, 50) == 8.192 + 5.12
    assert [task.name for task in Request(256, 32).tests] == ["pp256", "tg32"]
