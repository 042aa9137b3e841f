"""The arithmetic, against the plain computation over a whole vocabulary."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.quality.divergence import Position, divergence, percentile, position, summary

Logits = list[float]
VOCABULARY = st.integers(2, 60)


def logs_of(logits: Logits) -> Logits:
    most = max(logits)
    total = math.log(math.fsum(math.exp(each - most) for each in logits)) + most
    return [each - total for each in logits]


def whole(base: Logits, other: Logits) -> float:
    """KL over every token."""
    pairs = zip(logs_of(base), logs_of(other), strict=True)
    return math.fsum(math.exp(one) * (one - two) for one, two in pairs)


def likeliest(logits: Logits, count: int) -> Position:
    rows = [{"id": name, "logprob": log} for name, log in enumerate(logs_of(logits))]
    rows.sort(key=lambda row: -row["logprob"])
    return position(rows[:count])


@st.composite
def two(draw: st.DrawFn) -> tuple[Logits, Logits]:
    size = draw(VOCABULARY)
    one = st.lists(st.floats(-12, 12), min_size=size, max_size=size)
    return draw(one), draw(one)


@given(two())
def test_with_every_token_it_is_the_divergence(pair: tuple[Logits, Logits]) -> None:
    base, other = pair
    got = divergence(likeliest(base, len(base)), likeliest(other, len(other)))
    assert got == pytest.approx(max(0.0, whole(base, other)), rel=1e-3, abs=1e-4)


@given(two(), st.integers(1, 60))
def test_with_fewer_it_is_never_more_and_never_negative(
    pair: tuple[Logits, Logits], count: int
) -> None:
    base, other = pair
    got = divergence(likeliest(base, count), likeliest(other, count))
    assert 0.0 <= got <= whole(base, other) + 1e-4


@given(st.lists(st.floats(-12, 12), min_size=2, max_size=60), st.integers(1, 60))
def test_of_a_distribution_from_itself_it_is_zero(logits: Logits, count: int) -> None:
    assert divergence(likeliest(logits, count), likeliest(logits, count)) == 0.0


def test_tokens_that_only_one_side_knows_count_together() -> None:
    """base: a 0.5, b 0.3, rest 0.2; other: a 0.25, c 0.5, rest 0.25. Known to both: a alone."""
    base = position([{"id": 1, "logprob": math.log(0.5)}, {"id": 2, "logprob": math.log(0.3)}])
    other = position([{"id": 3, "logprob": math.log(0.5)}, {"id": 1, "logprob": math.log(0.25)}])
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert divergence(base, other) == pytest.approx(expected, rel=1e-6)


def test_the_likeliest_comes_first_whatever_the_order() -> None:
    rows = [{"id": 7, "logprob": -2.0}, {"id": 9, "logprob": -0.2}, {"id": 8, "logprob": -0.2}]
    assert position(rows).top == 8  # of equals the lower number, on both sides


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"id": 1}],
        [{"id": 1, "logprob": None}],
        [{"id": 1, "logprob": float("nan")}],
        [{"id": 1, "logprob": 0.5}],
        [{"id": 1, "logprob": float("-inf")}],
    ],
)
def test_no_probabilities_are_no_position(rows: list[dict[str, float]]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        position(rows)


@given(st.lists(st.floats(0, 10), min_size=2, max_size=200), st.floats(0, 1))
def test_summary(values: list[float], share: float) -> None:
    same = round(share * len(values))
    got = summary(values, same)
    assert got.positions == len(values)
    assert got.kl_mean == pytest.approx(statistics.fmean(values))
    assert got.kl_median == pytest.approx(statistics.median(values))
    assert got.kl_max == max(values)
    slack = 1e-12
    assert min(values) - slack <= got.kl_median <= got.kl_p99 + slack <= got.kl_max + 2 * slack
    assert got.same_top == same / len(values)
    error = statistics.stdev(values) / math.sqrt(len(values))
    assert got.kl_mean_error == pytest.approx(error, rel=1e-6, abs=1e-12)


@given(st.lists(st.floats(-5, 5), min_size=5, max_size=60))
def test_percentiles_are_those_of_the_standard_library(values: list[float]) -> None:
    ordered = sorted(values)
    expected = statistics.quantiles(ordered, n=100, method="inclusive")
    for share in (0.01, 0.5, 0.9, 0.99):
        assert percentile(ordered, share) == pytest.approx(
            expected[round(share * 100) - 1], abs=1e-9
        )


def test_no_values_are_no_summary() -> None:
    with pytest.raises(ValueError, match="no positions"):
        summary([], 0)
