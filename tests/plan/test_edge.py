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
    st.lists(st.booleans(), min_size=2, max_size=300).filter(lambda fits: len(fits) > 1),
    st.integers(0, 299),
)
def test_a_guess_changes_how_many_questions_never_that_it_is_an_edge(
    fits: list[bool], guess: int
) -> None:
    fits[0], fits[-1] = True, False
    found = edge(lambda at: 1 if fits[at] else -1, 0, len(fits) - 1, min(guess, len(fits) - 1))
    assert fits[found]
    assert not fits[found + 1]


@given(st.integers(2, 10_000), st.integers(0, 10_000))
def test_a_right_guess_takes_two_questions(length: int, last: int) -> None:
    asked = []

    def slack(at: int) -> int:
        asked.append(at)
        return last - at

    last = min(last, length - 1)
    assert edge(slack, 0, length, last) == last
    assert len(asked) <= 2
