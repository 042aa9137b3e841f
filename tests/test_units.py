"""Sizes and counts: exact, forgiving about spelling, never a guess."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.errors import KvwiseError, UsageError
from kvwise.units import GIB, KIB, MIB, mib, pad, parse_count, parse_size, show


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1024", 1024),
        ("6GiB", 6 * GIB),
        ("6 gb", 6 * GIB),
        ("6G", 6 * GIB),
        ("6144MiB", 6 * GIB),
        ("0.5 GiB", GIB // 2),
        ("6,5G", 13 * GIB // 2),
        ("1T", 1024 * GIB),
        ("300k", 300 * KIB),
        (" 8GiB ", 8 * GIB),
        ("0", 0),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "-1G", "6XB", "6 Gi B", "1e9", "6,144MiB", "0x10", "6GiB!", "٦GiB", "9" * 400],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "count"), [("32k", 32768), ("1M", 1 << 20), ("0", 0), ("1.5k", 1536)]
)
def test_counts(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "k", "1.5", "4.096", "1.0", "4,096", "-1", "1e4", "1G"])
def test_what_is_no_count(text: str) -> None:
    """A bare fraction is none: `4.096` is four thousand to half of the world."""
    with pytest.raises(UsageError):
        parse_count(text)


@given(st.integers(0, 10**15 - 1), st.sampled_from(["", "k", "M", "GiB", "tb"]))
def test_a_size_is_exact(number: int, unit: str) -> None:
    factor = {"": 1, "k": KIB, "M": MIB, "GiB": GIB, "tb": 1024 * GIB}[unit]
    assert parse_size(f"{number}{unit}") == number * factor


@given(st.integers(0, 999), st.integers(0, 999_999_999))
def test_a_fraction_is_rounded_to_the_nearest_byte(whole: int, fraction: int) -> None:
    text = f"{whole}.{fraction:09d}"
    exact = Fraction(text) * GIB
    assert abs(parse_size(f"{text}GiB") - exact) <= Fraction(1, 2)


@given(st.text())
def test_nothing_but_a_kvwise_error(text: str) -> None:
    for read in (parse_size, parse_count):
        with contextlib.suppress(KvwiseError):
            assert read(text) >= 0


@given(st.integers(0, 1 << 62), st.integers(1, 1 << 20))
def test_pad_is_the_next_multiple(value: int, multiple: int) -> None:
    padded = pad(value, multiple)
    assert padded % multiple == 0
    assert 0 <= padded - value < multiple


def test_shown_as_people_read_it() -> None:
    assert mib(319_553_536) == "304.75 MiB"
    assert show(-512 * MIB) == "-512.0 MiB"
    assert show(10_000 * MIB) == "9.77 GiB"
    assert show(9_999 * MIB) == "9,999.0 MiB"
    assert show(1536) == "1.5 KiB"
    assert show(7) == "7 B"
