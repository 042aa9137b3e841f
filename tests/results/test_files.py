"""Files of results: whatever was kept comes back, and nothing else comes in."""

from __future__ import annotations

import csv
import io
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvwise.errors import UsageError
from kvwise.report import results_report
from kvwise.report.markdown import markdown
from kvwise.results import line, load, save
from kvwise.results.codec import MOST_LINE
from kvwise.results.files import HEAD, anonymous, cell, csv_text, json_lines, merge, read_lines
from kvwise.results.wording import outcome
from kvwise.store import Store
from results_made import measurement, measurements


def memory() -> Store:
    return Store(Path(":memory:"))


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(measurements, max_size=5))
def test_out_and_in_again_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, found: list[Any]
) -> None:
    place = tmp_path_factory.mktemp("files") / "a.jsonl"
    with memory() as first, memory() as second:
        save(first, *found)
        place.write_text(json_lines(load(first)), "utf-8")
        count, new = merge(second, [str(place)])
        assert count == new == len(load(first))
        assert list(map(line, load(second))) == list(map(line, load(first)))
        assert merge(second, [str(place), str(place)]) == (2 * count, 0)


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(measurements, min_size=1, max_size=4))
def test_any_measurement_can_be_shown(found: list[Any]) -> None:
    rows = list(csv.reader(io.StringIO(csv_text(found))))
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == len(found) + 1
    for language in ("en", "zh"):
        assert markdown(results_report(found), language).startswith("<!-- kvwise report -->")


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(measurements)
def test_without_names_it_is_the_same_measurement(found: Any) -> None:
    told = anonymous(found)
    assert told.identity == found.identity
    assert told.machine.name == ""
    assert "/" not in told.model.path
    assert "\\" not in told.engine.path


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200))
def test_other_bytes_are_refused_with_their_line(data: bytes) -> None:
    good = line(measurement()).encode() + b"\n"
    if not data.strip():
        return
    with pytest.raises(UsageError, match="line 2"):
        list(read_lines(BytesIO(good + b"x" + data.replace(b"\n", b" ")), "a"))


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    class Endless(BytesIO):
        asked = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None
            assert 0 < size <= MOST_LINE + 1
            self.asked += 1
            return b"x" * size

    file = Endless()
    with pytest.raises(UsageError, match="longer than any result"):
        list(read_lines(file, "a"))
    assert file.asked == 1


@pytest.mark.parametrize("text", ["=1+1", "+1", "-cmd", "@x"])
def test_a_spreadsheet_runs_no_name_of_a_stranger(text: str) -> None:
    assert cell(text) == f"'{text}"
    assert cell(f"\t{text}") == f"\\t{text}"


def test_plain_values_stay_what_they_are() -> None:
    assert [cell(value) for value in (None, True, -1.5, 3, "a=b")] == ["", "true", -1.5, 3, "a=b"]
    assert csv_text([]).startswith(HEAD)


def test_why_it_failed_is_shown_and_leaves_with_the_folders() -> None:
    why = "the engine aborted: /home/me/x.cpp:1"
    found = measurement(state="failed", samples=(), findings=(), figures={"error": why})
    assert str(outcome(found)) == "failed: the engine aborted: /home/me/x.cpp:1"
    assert str(outcome(anonymous(found))) == "failed"
