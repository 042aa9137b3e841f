"""Positions in a file; answers without probabilities."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.errors import EngineError
from kvwise.quality.divergence import Position
from kvwise.quality.forced import Kept, compare

ROWS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(-50, 0, width=32)), max_size=9)


def made(rows: list[tuple[int, float]]) -> Position:
    return Position(array("i", [name for name, _ in rows]), array("f", [log for _, log in rows]))


@given(st.lists(ROWS, max_size=6))
def test_what_is_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, found: list[list[tuple[int, float]]]
) -> None:
    kept = Kept(tmp_path_factory.mktemp("kept") / "base-x.positions")
    wanted = [made(rows) for rows in found]
    kept.write(wanted)
    assert kept.read() == wanted
    assert [path.name for path in kept.path.parent.iterdir()] == ["base-x.positions"]


def test_a_file_that_is_not_whole_is_none(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "base.positions")
    assert kept.read() is None
    kept.write([made([(1, -0.5), (2, -1.0)])] * 3)
    whole = kept.path.read_bytes()
    for size in range(len(whole)):
        kept.path.write_bytes(whole[:size])
        assert kept.read() is None
    kept.path.write_bytes(whole + b"x")
    assert kept.read() is None
    kept.path.write_bytes(b'{"kind": "kvwise-positions-1", "sizes": [-1]}\n')
    assert kept.read() is None


def test_another_number_of_positions_is_an_error() -> None:
    base = [made([(1, -0.1)]), made([(2, -0.2)])]
    assert compare(base, iter(base)) == ([0.0, 0.0], 2)
    for found in (base[:1], base * 2):
        with pytest.raises(EngineError, match="positions"):
            compare(base, iter(found))
