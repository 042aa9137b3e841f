"""Reports as files: formats, who owns a file, strangers' names, half-written files."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kvwise.errors import SourceError, UsageError
from kvwise.report import FORMATS, draw, results_report, write
from kvwise.results import from_json
from report_made import QWEN, bench, failed, speculation, tuning
from results_made import MACHINE

EVIL = "<script>alert(1)</script>&\"'|`*_[x](http://evil.example)\x1b[31m\u202e=cmd"


def every_kind() -> list:  # type: ignore[type-arg]
    return [*bench(), failed(), *speculation(), *tuning()]


def hostile() -> list:  # type: ignore[type-arg]
    model = replace(QWEN, name=EVIL, architecture=EVIL, path=EVIL)
    machine = replace(MACHINE, name=EVIL, cpu=EVIL)
    found = [replace(each, settings={**each.settings, "flash_attn": EVIL + each.settings["type_k"]})
             for each in bench(model, machine)]  # fmt: skip
    bad = replace(failed(model), machine=machine, findings=({"kind": EVIL, "cause": EVIL},))
    return [*found, bad]


class Page(HTMLParser):
    """Tags and addresses of a page; whether its tags are balanced."""

    VOID = frozenset({"meta", "input", "br", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            value or "" for name, value in attrs if name in ("href", "src", "xlink:href")
        ]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_needs_nothing_and_runs_nothing(tmp_path: Path) -> None:
    place = tmp_path / "a.html"
    write(results_report(hostile()), str(place), "en")
    text = place.read_text("utf-8")
    page = Page(text)
    assert "script" not in page.tags
    assert page.tags.count("svg") == 3
    assert all(link.startswith("#") for link in page.links)
    assert re.findall(r"(?:src|href)=\"http|url\((?!#)|@import", text) == []
    assert "\x1b" not in text
    assert "\u202e" not in re.sub(r"(?s)<svg.*?</svg>", "", text)
    assert "var(--blue)" in text
    assert "#0a0a01" not in text


def test_drawings_are_sound_xml_and_say_their_figures() -> None:
    report = results_report(every_kind())
    for picture in report.pictures:
        drawing = draw.svg(picture, "en")
        ET.fromstring(drawing)  # noqa: S314  (our own)
        assert 'role="img"' in drawing
    assert "<title>q8_0/q8_0 -fa on: 32.2" in draw.svg(report.pictures[0], "en")


def test_markdown_leaves_names_as_they_are(tmp_path: Path) -> None:
    place = tmp_path / "a.md"
    write(results_report(hostile()), str(place), "en")
    text = place.read_text("utf-8")
    assert "<script" not in text
    assert not re.search(r"(?<!\\)\]\(", text)
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = {len(re.split(r"(?<!\\)\|", row)) for row in rows}
    assert len(widths) == 2  # of the two tables, whatever stands in the names


def test_markdown_has_the_figures(tmp_path: Path) -> None:
    place = tmp_path / "a.md"
    write(results_report(every_kind()), str(place), "zh")
    text = place.read_text("utf-8")
    assert "-46.1 %" in text
    assert "438 ± 2" in text
    assert "Qwen3 8B Q4\\_K\\_M" in text


def test_csv_has_a_row_per_measurement_and_no_formula(tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    found = [*hostile(), replace(bench()[0], model=replace(QWEN, name="=1+1"))]
    write(results_report(found), str(place), "en")
    rows = list(csv.DictReader(io.StringIO(place.read_text("utf-8"))))
    assert len(rows) == len(found)
    assert rows[-1]["model"] == "'=1+1"
    assert float(rows[-1]["median"]) == 812.0
    assert rows[0]["figures.memory.predicted.0.context_bytes"] == str(576 << 20)


def test_json_can_be_read_back(tmp_path: Path) -> None:
    place = tmp_path / "a.json"
    found = every_kind()
    write(results_report(found, title="T"), str(place), "en")
    document = json.loads(place.read_text("utf-8"))
    assert (document["schema"], document["title"]) == ("kvwise/report/1", "T")
    assert [from_json(each) for each in document["results"]] == found


def test_a_picture_is_a_large_png_that_says_who_made_it(tmp_path: Path) -> None:
    language = "zh" if draw.has_chinese() else "en"
    place = tmp_path / "a.png"
    write(results_report(bench()), str(place), language)
    image = place.read_bytes()
    width, height = struct.unpack(">2I", image[16:24])
    assert width > 1500
    assert height > 1500
    assert draw.is_signed(image[:4096])
    assert FORMATS["png"].ours(image[:4096])


def test_without_a_chinese_font_a_picture_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw, "has_chinese", lambda: False)
    with pytest.raises(UsageError) as error:
        write(results_report(bench()), str(tmp_path / "a.png"), "zh")
    assert "fonts-noto-cjk" in str(error.value.hint)
    assert list(tmp_path.iterdir()) == []


def test_fonts_are_found_by_their_files(tmp_path: Path) -> None:
    assert not draw.has_chinese([str(tmp_path)])
    (tmp_path / "opentype").mkdir()
    (tmp_path / "opentype/NotoSansCJK-Regular.ttc").write_bytes(b"")
    assert draw.has_chinese([str(tmp_path)])


@pytest.mark.parametrize("suffix", ["html", "md", "csv", "json"])
def test_our_own_file_is_replaced_and_a_strangers_is_kept(tmp_path: Path, suffix: str) -> None:
    place = tmp_path / f"a.{suffix}"
    report = results_report(bench()[:2])
    assert write(report, str(place), "en") is None
    assert write(report, str(place), "en") is None
    place.write_text("my notes", "utf-8")
    backup = write(report, str(place), "en")
    assert backup is not None
    assert backup.read_text("utf-8") == "my notes"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "a.md"
    write(results_report(bench()), str(place), "en")
    before = place.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SourceError, match="No space left"):
        write(results_report(bench()[:1]), str(place), "en")
    assert place.read_bytes() == before
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.html.exe"])
def test_other_formats_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no format"):
        write(results_report(bench()), str(tmp_path / name), "en")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as error:
        draw.check()
    assert "kvwise[report]" in str(error.value.hint)


def test_samples_of_nothing_make_a_report(tmp_path: Path) -> None:
    idle = [
        replace(each, samples=tuple(replace(one, value=0.0) for one in each.samples))
        for each in bench()
    ]
    place = tmp_path / "a.html"
    write(results_report(idle), str(place), "en")
    assert place.stat().st_size > 1000
