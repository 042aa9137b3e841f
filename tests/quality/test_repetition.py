"""Loops are found where there are some, and nowhere else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvwise.quality.repetition import LEAST, TIMES, Loop, loop

TOKENS = st.integers(0, 50_000)


@given(
    st.lists(TOKENS, max_size=40),
    st.lists(TOKENS, min_size=1, max_size=12, unique=True),
    st.integers(0, 11),
)
def test_a_planted_loop_is_found(head: list[int], piece: list[int], cut: int) -> None:
    times = max(TIMES, -(-LEAST // len(piece)))
    tokens = head + piece * times + piece[: cut % len(piece)]
    found = loop(tokens)
    assert found is not None
    assert found.start <= len(head)
    assert found.period <= len(piece)
    body = tokens[found.start :]
    assert all(one == other for one, other in zip(body, body[found.period :], strict=False))
    assert len(body) >= max(LEAST, TIMES * found.period)


@given(st.lists(TOKENS, max_size=200, unique=True))
def test_tokens_that_all_differ_are_no_loop(tokens: list[int]) -> None:
    assert loop(tokens) is None


@given(st.lists(TOKENS, min_size=20, max_size=60, unique=True))
def test_twice_is_no_loop(tokens: list[int]) -> None:
    assert loop(tokens * 2) is None


def test_the_shortest_period_and_the_first_token_are_told() -> None:
    assert loop([9, 9, 8, *[1, 2, 3] * 8, 1]) == Loop(3, 3)
    assert loop([5] * 24) == Loop(0, 1)


def test_a_short_row_of_one_token_is_no_loop() -> None:
    assert loop([1, 2, 3, *[0] * (LEAST - 1)]) is None


def test_a_loop_that_ended_is_no_loop() -> None:
    assert loop([1, 2, 3] * 20 + list(range(100, 140))) is None
