"""A chunk says the section in which most of it lies, and the page on which it begins."""

from __future__ import annotations

import json
from pathlib import Path

from kvwise.digest.extract import Marks, Place, headings


def _marks(path: Path) -> Path:
    lines = [
        [0, [1, "One"], 1], [100, [2, "Inner"], None], [150, None, 2], [180, [1, "Two"], None],
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_section_of_most_of_a_chunk(tmp_path: Path) -> None:
    marks = Marks(_marks(tmp_path / "m"))
    assert marks.of(0, 90) == Place("One", 1)
    assert marks.of(80, 150) == Place("One > Inner", 1)  # 20 bytes of One, 50 of Inner
    assert marks.of(140, 230) == Place("Two", 1)
    assert marks.of(230, 900) == Place("Two", 2)
    marks.close()


def test_no_marks_and_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")
    assert Marks(tmp_path / "m").of(5, 90) == Place("", None)
    assert Marks(_marks(tmp_path / "n")).of(0, 0) == Place("One", 1)


def test_where_headings_start(tmp_path: Path) -> None:
    assert list(headings(_marks(tmp_path / "m"))) == [0, 100, 180]
