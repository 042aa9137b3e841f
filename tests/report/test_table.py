"""The report of `kvwise table`."""

from __future__ import annotations

import csv
import gzip
import html
import io
import json
import re
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
    assert "| 4,096 | 576.0 (" in made["md"]
    rows = list(csv.DictReader(io.StringIO(made["csv"])))
    assert [row["cache_bytes"] for row in rows][:2] == [str(576 << 20), str(4608 << 20)]
    assert json.loads(made["json"])["schema"] == "kvwise/table/1"
    assert made["html"].count("<svg") == 1


def rows_of(markdown: str) -> list[list[str]]:
    """The cells of every row of every table, without escapes."""
    rows = [line for line in markdown.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in row.replace("\\", "").split("|")[1:-1]] for row in rows]


GPUS = (["--gpu", "GTX 1660 Ti"], ["--gpu", "GTX 1660 Ti", "--gpu", "RTX 4060"], ["--cpu-only"])


@pytest.mark.parametrize("machines", GPUS, ids=["one", "two", "none"])
@pytest.mark.parametrize("suffix", ["md", "html"])
def test_a_report_has_all_that_the_terminal_shows(
    machines: list[str], suffix: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["table", model, *machines, "--types", "f16,q8_0/q4_0", "--contexts", "4k,64k"]
    words += ["--prompt-tokens", "3000", "--layers", "--past-training", "--format", "md"]
    place = tmp_path / f"a.{suffix}"
    assert run([*words, "--report", str(place), "-q"]) == 0
    shown, report = capsys.readouterr().out, html.unescape(place.read_text("utf-8"))
    if suffix == "html":
        report = re.sub(r"<t[hd]\b[^>]*>", "| ", re.sub(r"</tr>", " |\n", report))
        report = re.sub(r"<[^>]+>", "", report).replace("  |", " |")
    there = rows_of(report)
    missing = [row for row in rows_of(shown) if row not in there]
    shares = ["4,096", "65,536*"]  # of two machines, which the report has one by one
    assert [row[0] for row in missing] == (shares if len(machines) == 4 else [])
    notes = [line.removeprefix("- ") for line in shown.splitlines() if line.startswith("- ")]
    assert len(notes) >= 2
    assert all(note in report.replace("\\", "") for note in notes)


def test_a_wrong_name_is_refused_before_the_work(model: str, tmp_path: Path) -> None:
    assert run(["table", model, "--report", str(tmp_path / "a.pdf")]) == 2
