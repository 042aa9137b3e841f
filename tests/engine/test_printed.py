"""A printed size is a range of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.engine.printed import Printed, Total

MIB = 1024**2
BYTES = st.integers(0, 1 << 45)


@given(BYTES, st.sampled_from([2, 3, 4]))
def test_what_a_printf_of_the_bytes_gives_agrees_with_them(size: int, decimals: int) -> None:
    printed = Printed.parse(f"{size / 1024.0 / 1024.0:.{decimals}f}")
    assert printed.agrees(size)
    assert printed.difference(size) == 0
    assert str(printed) == f"{size / MIB:.{decimals}f}"


@given(BYTES, st.integers(1, 1 << 30))
def test_a_size_that_prints_differently_does_not_agree(size: int, more: int) -> None:
    printed = Printed.parse(f"{size / MIB:.2f}")
    other = size + more
    same = f"{other / MIB:.2f}" == f"{size / MIB:.2f}"
    tie = (other * 200) % MIB == 0  # half of a hundredth: either neighbour may be printed
    assert printed.agrees(other) == same or tie
    if not printed.agrees(other):
        assert printed.difference(other) > 0


@given(BYTES)
def test_a_whole_mib_column_is_cut_off_and_not_rounded(size: int) -> None:
    printed = Printed.parse(str(size // MIB), cut=True)
    assert printed.agrees(size)
    assert printed.low == size // MIB * MIB
    assert printed.high == (size // MIB + 1) * MIB - 1


@given(BYTES, BYTES)
def test_the_bounds_are_the_first_and_the_last_that_agree(size: int, decimals: int) -> None:
    printed = Printed.parse(f"{size / MIB:.2f}")
    assert printed.agrees(printed.low)
    assert printed.agrees(printed.high)
    assert not printed.agrees(printed.low - 1)
    assert not printed.agrees(printed.high + 1)
    assert printed.low <= printed.bytes <= printed.high


@given(st.lists(BYTES, min_size=1, max_size=5))
def test_a_total_agrees_with_the_sum_of_what_was_printed_in_parts(sizes: list[int]) -> None:
    total = Total(tuple(Printed.parse(f"{size / MIB:.2f}") for size in sizes))
    assert total.agrees(sum(sizes))
    assert not total.agrees(sum(sizes) + 6000 * len(sizes) * 2)


@pytest.mark.parametrize("text", ["", "nan", "inf", "1e3", "1.2.3", "-", "0x10", "1" * 17, "٣"])
def test_anything_but_a_plain_decimal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Printed.parse(text)


def test_known_figures() -> None:
    assert Printed.parse("92.10").agrees(96_571_392)
    assert Printed.parse("0.19").agrees(49152 * 4)
    assert not Printed.parse("0.19").agrees(49152 * 4 + 10_000)
    assert str(Printed.parse("-0.50")) == "-0.50"
    assert Printed.parse("18.0137").agrees(round(18.0137 * MIB))
