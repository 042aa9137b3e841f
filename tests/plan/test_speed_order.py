"""Speeds are ordered and bracketed as public measurements have them."""

from __future__ import annotations

import csv
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "benchmarks/speed/rows.csv"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("speed_order", ROOT / "benchmarks/speed_order.py")
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    sys.modules["speed_order"] = made
    spec.loader.exec_module(made)
    return made


def test_every_row_has_its_source() -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 40
    assert all(row["source"].startswith(("github.com/", "huggingface.co/")) for row in rows)
    assert {row["use"] for row in rows} == {"set", "check"}


@pytest.mark.parametrize(
    ("test", "use", "within", "order"),
    [("tg", "set", 0.90, 0.95), ("tg", "check", 0.90, 0.95), ("pp", "set", 0.90, 0.93)],
)
def test_measured_speeds_lie_in_the_range_and_in_order(
    bench: ModuleType, test: str, use: str, within: float, order: float
) -> None:
    rows = [row for row in bench.public(TABLE) if row.test == test and row.use == use]
    assert sum(row.inside for row in rows) >= within * len(rows)
    right, clear = bench.ordered(rows)
    assert right >= order * clear
    pairs = [(row.measured, row.predicted.middle) for row in rows]
    assert bench.spearman(pairs) > 0.9


def test_rank_correlation_of_known_values(bench: ModuleType) -> None:
    up = [(1.0, 2.0), (2.0, 4.0), (3.0, 8.0)]
    assert bench.spearman(up) == pytest.approx(1)
    assert bench.spearman([(a, -b) for a, b in up]) == pytest.approx(-1)
    assert bench.spearman([(1, 1), (2, 1), (3, 2)]) == pytest.approx(0.8660, abs=1e-4)
