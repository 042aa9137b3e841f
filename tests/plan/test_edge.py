"""The edge is found exactly, in either direction, with few questions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvwise.plan.edge import edge


@given(st.integers(1, 10_000), st.integers(1, 1000), st.integers(0, 10**6), st.booleans())
def test_a_straight_line_takes_a_handful_of_questions(
    length: int, slope: int, room: int, backwards: bool
) -> None:
    asked = []

    def slack(at: int) -> int:
        asked.append(at)
        return room - slope * (length - at if backwards else at)

    last = room // slope
    if last >= length:
        return
    good, bad = (length, 0) if backwards else (0, length)
    assert edge(slack, good, bad) == (length - last if backwards else last)
    assert len(asked) <= 9


@given(st.lists(st.booleans(), min_size=2, max_size=300))
def test_any_curve_ends_beside_a_point_that_has_nothing_left(fits: list[bool]) -> None:
    fits[0], fits[-1] = True, False
    asked = 0

    def slack(at: int) -> int | None:
        nonlocal asked
        asked += 1
        return 1 if fits[at] else None if at % 2 else -1

    found = edge(slack, 0, len(fits) - 1)
    assert fits[found]
    assert not fits[found + 1]
    assert asked <= 3 * len(fits).bit_length() + 4


@given(
    st.lists(st.booleans(), min_size=2, max_size=300),
    st.lists(st.integers(-9, 9), min_size=300, max_size=300),
)
def test_a_rough_guess_changes_how_many_questions_never_that_it_is_an_edge(
    fits: list[bool], rough: list[int]
) -> None:
    fits[0], fits[-1] = True, False
    found = edge(lambda at: 1 if fits[at] else -1, 0, len(fits) - 1, lambda at: rough[at])
    assert fits[found]
    assert not fits[found + 1]


@given(st.integers(2, 10_000), st.integers(0, 10_000), st.booleans())
def test_a_right_guess_takes_two_questions(length: int, last: int, backwards: bool) -> None:
    asked = []
    last = min(last, length - 1)

    def curve(at: int) -> int:
        return last - (length - at if backwards else at)

    def slack(at: int) -> int:
        asked.append(at)
        return curve(at)

    good, bad = (length, 0) if backwards else (0, length)
    assert edge(slack, good, bad, curve) == (length - last if backwards else last)
    assert len(asked) <= 2


@given(st.integers(10, 10_000), st.integers(1, 9), st.integers(1, 10**6))
def test_a_guess_that_learns_is_followed(length: int, slope: int, room: int) -> None:
    """The first question tells what was wrong with the guess."""
    asked = []
    last = min(room // slope, length - 1)
    known = 0

    def slack(at: int) -> int:
        nonlocal known
        asked.append(at)
        known = 1
        return last - at

    def rough(at: int) -> int:
        return last - at + (0 if known else length // 3)

    assert edge(slack, 0, length, rough) == last
    assert len(asked) <= 3
