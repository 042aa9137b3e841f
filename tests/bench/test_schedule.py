"""Rounds over all settings, and how often a start is worth its cost."""

from __future__ import annotations

import doctest

import pytest

from kvwise.bench import schedule
from kvwise.bench.cases import Case, Task
from kvwise.bench.ruled import Ruled
from kvwise.bench.schedule import all_units, first_units, times_of, visits
from kvwise.launch import Launch
from kvwise.text import phrase

TESTS = (Task("prompt", 8), Task("decode", 8), Task("prompt", 8, 64))


def ruled(*names: str) -> list[Ruled]:
    return [
        Ruled(Case(0, Launch(type_k=name), (("ctk", name),)), "server", TESTS) for name in names
    ]


def test_examples_of_the_docstrings() -> None:
    assert doctest.testmod(schedule).failed == 0


@pytest.mark.parametrize("repetitions", [1, 2, 5, 17])
@pytest.mark.parametrize("fixed", [0.0, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("measured", [0.001, 1.0, 20.0])
def test_starts_cost_at_most_an_eighth_more_or_are_two(
    repetitions: int, fixed: float, measured: float
) -> None:
    count = visits(repetitions, fixed, measured)
    assert 1 <= count <= repetitions
    one = fixed + repetitions * measured
    many = count * fixed + repetitions * measured
    assert many <= one * 1.125 + 1e-6 or (count == 2 and many <= one * 1.5 + 1e-6)


def test_repetitions_are_spread_whole() -> None:
    for repetitions in range(1, 12):
        for count in range(1, repetitions + 1):
            times = [times_of(visit, count, repetitions) for visit in range(count)]
            assert sum(times) == repetitions
            assert max(times) - min(times) <= 1


def test_every_round_goes_over_all_settings() -> None:
    settings = ruled("f16", "q8_0", "q4_0")
    counts = {(0, 0, "server"): 2, (0, 64, "server"): 1}
    units = all_units(settings, counts, 3)
    shallow = [(each.visit, each.ruled.case.label) for each in units if each.depth == 0]
    assert shallow[:3] == [(0, "ctk=f16"), (0, "ctk=q8_0"), (0, "ctk=q4_0")]
    for setting in settings:
        for depth in (0, 64):
            mine = [each for each in units if each.ruled is setting and each.depth == depth]
            assert sum(each.times for each in mine) == 3  # nothing is lost, nothing twice
    assert len({each.key for each in units}) == len(units)


def test_the_first_unit_of_a_depth_is_part_of_the_whole() -> None:
    settings = ruled("f16", "q8_0")
    first = first_units(settings)
    assert [(each.depth, each.times) for each in first] == [(0, 1), (64, 1)]
    for count in (1, 2, 3):
        counts = {(0, 0, "server"): count, (0, 64, "server"): count}
        units = {each.key: each for each in all_units(settings, counts, 5)}
        for each in first:
            assert units[each.key] == each


def test_settings_that_are_skipped_have_no_units() -> None:
    one, two = ruled("f16", "q8_0")
    skipped = Ruled(one.case, "server", TESTS, skipped=phrase("no"))
    units = all_units([skipped, two], {(0, 0, "server"): 1, (0, 64, "server"): 1}, 1)
    assert {each.ruled.case.label for each in units} == {"ctk=q8_0"}
