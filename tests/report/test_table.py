"""The report of `kvwise table`."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

from kvwise.cli._main import run
from zoo_files import ZOO


@pytest.fixture
def model(tmp_path: Path) -> str:
    place = tmp_path / "qwen3-8b.json"
    place.write_bytes(gzip.decompress((ZOO / "models/qwen3-8b.json.gz").read_bytes()))
    return str(place)


def test_a_table_as_markdown_csv_json_and_page(model: str, tmp_path: Path) -> None:
    words = ["table", model, "--gpu", "GTX 1660 Ti", "--types", "f16,q8_0", "--contexts", "4k,32k"]
    made = {}
    for suffix in ("md", "csv", "json", "html"):
        place = tmp_path / f"a.{suffix}"
        assert run([*words, "--report", str(place), "-q"]) == 0
        assert run([*words, "--report", str(place), "-q"]) == 0
        made[suffix] = place.read_text("utf-8")
    assert not list(tmp_path.glob("*.bak"))
    assert "| f16/f16 |" in made["md"]
    assert "| 576.0 | (4,608.0) |" in made["md"]
    rows = list(csv.DictReader(io.StringIO(made["csv"])))
    assert [row["cache_bytes"] for row in rows][:2] == [str(576 << 20), str(4608 << 20)]
    assert json.loads(made["json"])["schema"] == "kvwise/table/1"
    assert made["html"].count("<svg") == 1


def test_a_wrong_name_is_refused_before_the_work(model: str, tmp_path: Path) -> None:
    assert run(["table", model, "--report", str(tmp_path / "a.pdf")]) == 2
