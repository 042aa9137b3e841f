"""Numbers that vary: right for every n they claim to hold for, and never a plain number."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.memory.compute.affine import UNKNOWN, Affine, NotAffine, Variable

STEPS = st.integers(-50, 50).filter(bool)
STARTS = st.integers(-2000, 2000)
VALUES = st.integers(1, 60)
COMPARE = st.sampled_from(
    [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
)
ARITHMETIC = st.sampled_from([operator.add, operator.sub, operator.mul])


def at(number: Any, n: int) -> int:
    return number.at(n) if isinstance(number, Affine) else number


@given(STEPS, STARTS, STEPS, STARTS, COMPARE, VALUES)
def test_a_comparison_holds_for_just_the_values_it_admits(  # noqa: PLR0917
    step: int, start: int, step2: int, start2: int, compare: Callable[..., bool], now: int
) -> None:
    for other in (start2, None):
        n = Variable(now)
        left = Affine(step, start, n)
        right = Affine(step2, start2, n) if other is None else other
        found = compare(left, right)
        assert found == compare(at(left, now), at(right, now))
        assert n.admits(now)
        for value in range(1, 200):
            if n.admits(value):
                assert compare(at(left, value), at(right, value)) == found


@given(STEPS, STARTS, STARTS, COMPARE, VALUES)
def test_a_plain_number_may_stand_on_the_left(
    step: int, start: int, other: int, compare: Callable[..., bool], now: int
) -> None:
    number = Affine(step, start, Variable(now))
    assert compare(other, number) == compare(other, number.at(now))


@given(STEPS, STARTS, st.integers(-9, 9), ARITHMETIC, VALUES, st.booleans())
def test_arithmetic_is_that_of_the_numbers(  # noqa: PLR0917
    step: int, start: int, other: int, do: Callable[..., Any], now: int, swapped: bool
) -> None:
    number = Affine(step, start, Variable(3))
    made = do(other, number) if swapped else do(number, other)
    plain = do(other, number.at(now)) if swapped else do(number.at(now), other)
    assert at(made, now) == plain


@given(STEPS, STARTS, st.integers(1, 64), VALUES)
def test_a_division_is_exact_or_refused(step: int, start: int, by: int, now: int) -> None:
    number: Any = Affine(step, start, Variable(3))
    if step % by:
        with pytest.raises(NotAffine):
            number // by
        with pytest.raises(NotAffine):
            number % by
    else:
        assert at(number // by, now) == number.at(now) // by
        assert number % by == number.at(now) % by


def test_what_does_not_vary_any_more_is_a_plain_number() -> None:
    n = Variable(5)
    cells: Any = n.times(256)
    assert cells - cells == 0
    assert type(cells * 0) is int
    assert min(cells, 512) == 512
    assert (n.low, n.high) == (3, None)  # at 2 both are 512, and either may be taken


@pytest.mark.parametrize(
    "use",
    [int, range, hash, lambda x: x * x, lambda x: [0] * x, lambda x: x / 2, lambda x: 10 // x],
)
def test_nothing_takes_it_for_a_plain_number(use: Callable[[Any], object]) -> None:
    with pytest.raises((NotAffine, TypeError)):
        use(Variable(5).times(256))


@pytest.mark.parametrize(
    "use", [lambda x: x + 1, lambda x: 1 + x, lambda x: x > 0, lambda x: x == 1, bool, hash, int]
)
def test_an_unknown_figure_cannot_be_looked_at(use: Callable[[Any], object]) -> None:
    with pytest.raises((NotAffine, TypeError)):
        use(UNKNOWN)
