"""The numbers of lists in DOCX files, which stand in no text of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kvwise.digest.extract import prepare
from kvwise.digest.extract.docx_numbers import inherited, numbers

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def _text(path: Path) -> str:
    about, _ = prepare(path, path.parent / "text", path.name)
    return about.read(0, about.path.stat().st_size)


def _numbered(rows: Sequence[tuple[str, str | None, int]], numbering: str) -> list[str]:
    """Labels of paragraphs of (style, list, level), as Word shows them."""
    root = ET.fromstring(f"<w:numbering xmlns:w={_W!r}>{numbering}</w:numbering>")  # noqa: S314 (our own)
    found = numbers(root, None)
    return [found.label(*row) for row in rows]


_LEVELS = """<w:abstractNum w:abstractNumId="7">
<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="upperRoman"/><w:lvlText w:val="%1."/></w:lvl>
<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1.%2"/></w:lvl>
<w:lvl w:ilvl="2"><w:start w:val="3"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%3)"/>
<w:pStyle w:val="Deep"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="8"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/>
<w:lvlText w:val="\uf0b7"/></w:lvl></w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>
<w:num w:numId="2"><w:abstractNumId w:val="7"/></w:num>
<w:num w:numId="3"><w:abstractNumId w:val="7"/>
<w:lvlOverride w:ilvl="0"><w:startOverride w:val="9"/></w:lvlOverride></w:num>
<w:num w:numId="4"><w:abstractNumId w:val="8"/></w:num>"""


def test_docx_numbers_are_counted_as_word_does() -> None:
    rows: list[tuple[str, str | None, int]] = [
        ("", "1", 0), ("", "1", 1), ("", "1", 1), ("", "1", 2), ("", "1", 2), ("", "1", 0),
        ("", "1", 1), ("", "2", 0), ("", "3", 0), ("", "3", 0), ("", "1", 0), ("", "4", 0),
        ("", "0", 0), ("", None, 0), ("", "99", 0), ("", "1", 8),
    ]  # fmt: skip
    assert _numbered(rows, _LEVELS) == [
        "I.", "I.1", "I.2", "c)", "d)", "II.", "II.1", "III.", "IX.", "X.", "IV.", "\u2022",
        "", "", "", "",
    ]  # fmt: skip


def test_docx_lists_of_a_real_writer_have_their_numbers(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    document = docx.Document()
    for text, style in (("One", "List Number"), ("Two", "List Number"), ("Dot", "List Bullet")):
        document.add_paragraph(text, style=style)
    document.add_paragraph("Plain")
    document.save(str(tmp_path / "a.docx"))
    assert _text(tmp_path / "a.docx").split("\n\n")[:4] == [
        "1. One", "2. Two", "\u2022 Dot", "Plain",
    ]  # fmt: skip


@pytest.mark.parametrize("place", ['w:ilvl="0"', '"1"', '"%1."'])
def test_docx_numbers_beyond_all_counting_are_passed_over(place: str) -> None:
    """Numbers of 5000 digits, which no integer is made of, and a text of as many places."""
    list_of = """<w:abstractNum w:abstractNumId="7"><w:lvl w:ilvl="0"><w:start w:val="1"/>
<w:lvlText w:val="%1."/></w:lvl></w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="7"/><w:lvlOverride w:ilvl="0">
<w:startOverride w:val="1"/></w:lvlOverride></w:num>"""
    huge = {"%1.": "%1" * 5000}.get(place.strip('"'), "9" * 5000)
    changed = f'w:ilvl="{huge}"' if place.startswith("w:") else f'"{huge}"'
    (label,) = _numbered([("", "1", 0)], list_of.replace(place, changed))
    assert len(label) < 256


def test_styles_in_a_long_chain_or_a_ring_inherit() -> None:
    """Each is looked at once: 200,000 styles, each based on the next, take no time to speak of."""
    chain = {str(at): str(at + 1) for at in range(200_000)}
    assert inherited({"200000": 7}, chain)["0"] == 7
    own, parents = {"a": 1, "b": 2}, {"a": "b", "c": "b", "d": "c"}
    assert inherited(own, parents) == {"a": 1, "b": 2, "c": 2, "d": 2}
    assert inherited(dict[str, int](), {"a": "b", "b": "a", "c": "a"}) == {}
