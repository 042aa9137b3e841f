"""The text of real files of each format, and what hostile ones get."""

from __future__ import annotations

import io
import random
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from kvwise.digest.extract import Marks, empty_pages, file_stem, headings, prepare
from kvwise.errors import SourceError

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def _text(path: Path, encoding: str | None = None) -> str:
    about, _ = prepare(path, path.parent / "text", path.name, encoding)
    return about.read(about.start, about.path.stat().st_size)


def _sections(path: Path) -> list[str]:
    about, marks_file = prepare(path, path.parent / "text", path.name)
    marks = Marks(marks_file)
    size = about.path.stat().st_size
    starts = [*headings(marks_file), size]
    found = [
        marks.of(start, end).section for start, end in pairwise(starts)
    ]  # fmt: skip
    marks.close()
    return found


def _html(tmp_path: Path, page: str, encoding: str = "utf-8") -> Path:
    path = tmp_path / "page.html"
    path.write_bytes(page.encode(encoding))
    return path


# -- HTML ------------------------------------------------------------------------------------------


def test_html_shows_what_a_reader_sees(tmp_path: Path) -> None:
    page = """<!DOCTYPE html><html><head><title>Hidden</title><style>p {}</style>
    <body><nav>Menu</nav><h1>Big &amp; <em>bold</em></h1><p>Tom &lt;3 caf&eacute; &#x263A;
    and   more</p><script>if (a < b) alert("no")</script><pre>  kept
      as is</pre><table><tr><td>a<table><tr><td>inner</td></tr></table></td><td>b</td></tr></table>
    <h2>Next</h2><p>End<br>line</body></html>"""
    path = _html(tmp_path, page)
    text = _text(path)
    assert "Tom <3 caf\u00e9 \u263a and more" in text
    assert "  kept\n      as is" in text
    for word in ("inner", "b", "End\nline"):
        assert word in text
    for word in ("Hidden", "Menu", "alert", "p {}"):
        assert word not in text
    assert _sections(path) == ["Big & bold", "Big & bold > Next"]


def test_html_says_its_encoding(tmp_path: Path) -> None:
    words = "\u4eca\u5929\u5929\u6c14\u5f88\u597d"
    page = f'<meta http-equiv="Content-Type" content="text/html; charset=gb18030"><p>{words}</p>'
    assert words in _text(_html(tmp_path, page, "gb18030"))
    wrong = f'<meta charset="utf-16"><p>{words}</p>'
    assert words in _text(_html(tmp_path, wrong))
    unknown = f'<meta charset="klingon"><p>{words}</p>'
    assert words in _text(_html(tmp_path, unknown))


@pytest.mark.parametrize(
    ("page", "encoding", "text"),
    [
        ('<?xml version="1.0" encoding="gb2312"?><p>\u4eca\u5929\u9555</p>', "gb18030",
         "\u4eca\u5929\u9555"),
        ('<meta charset="iso-8859-1"><p>5 \u20ac \u201cnow\u201d</p>', "cp1252",
         "5 \u20ac \u201cnow\u201d"),
    ],
)  # fmt: skip
def test_html_is_decoded_as_browsers_do(
    tmp_path: Path, page: str, encoding: str, text: str
) -> None:
    assert _text(_html(tmp_path, page, encoding)).strip() == text


def test_html_that_is_not_displayed_is_not_read(tmp_path: Path) -> None:
    page = """<div hidden><div>no</div>no</div><p style="color:red;display: none">no</p>
    <dialog>no</dialog><dialog open>yes</dialog><ruby>\u6f22<rp>no</rp></ruby>Donau&shy;dampf
    <input hidden>end<iframe>no</iframe>"""
    text = _text(_html(tmp_path, page))
    assert "no" not in text.split()
    assert "nono" not in text
    for seen in ("yes", "\u6f22", "Donaudampf", "end"):
        assert seen in text


@pytest.mark.parametrize("page", ["", "<", "<!--", "<p", "&#xffffffff;", "</p></p>", "<h1><h2>x"])
def test_odd_html_is_read(tmp_path: Path, page: str) -> None:
    """Whatever is broken, the paragraph before it is kept."""
    assert "before" in _text(_html(tmp_path, f"<p>before</p>{page}"))


# -- Markdown --------------------------------------------------------------------------------------


_ODD = """---
title: x
# of the metadata
---
Underlined
==========

text <!-- # in a comment
# in it, too
--> more

- item
---

Second
---
```
# code
``` python
```
# Third #
> # quoted
"""


def test_markdown_headings_that_are_underlined(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(_ODD)
    assert _sections(path) == ["Underlined", "Underlined > Second", "Third"]
    path.write_text("---\n\n# After a rule\n")
    assert _sections(path) == ["After a rule"]


def test_markdown_headings_outside_of_code(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(
        b"\xef\xbb\xbf# One #\r\n\r\ntext\r\n```sh\r\n# no heading\r\n```\r\n## Two\r\n"
    )
    assert _sections(path) == ["One", "One > Two"]
    assert _text(path).startswith("# One #\r\n")


# -- DOCX ------------------------------------------------------------------------------------------


def test_docx_of_a_real_writer(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    document = docx.Document()
    document.add_heading("First", 1)
    document.add_paragraph("Some words\twith a tab.")
    document.add_heading("Inside", 2)
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    document.add_paragraph("\u4e2d\u6587\u3002")
    path = tmp_path / "a.docx"
    document.save(str(path))
    text = _text(path)
    for words in ("Some words\twith a tab.", "left", "right", "\u4e2d\u6587\u3002"):
        assert words in text
    assert _sections(path) == ["First", "First > Inside"]


def _packed(path: Path, body: bytes, more: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("word/document.xml", body)
        for name, data in (more or {}).items():
            packed.writestr(name, data)
    return path


def _body(inside: str, before: str = "") -> bytes:
    return (
        f'<?xml version="1.0"?>{before}<w:document xmlns:w="{_W}" xmlns:mc="http://schemas.'
        f'openxmlformats.org/markup-compatibility/2006"><w:body>{inside}</w:body></w:document>'
    ).encode()


def test_docx_says_nothing_twice(tmp_path: Path) -> None:
    box = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
    inside = (
        f"<w:p><mc:AlternateContent><mc:Choice>{box.format('new')}</mc:Choice>"
        f"<mc:Fallback>{box.format('old')}</mc:Fallback></mc:AlternateContent></w:p>"
    )
    text = _text(_packed(tmp_path / "a.docx", _body(inside)))
    assert "new" in text
    assert "old" not in text


def _p(text: str, more: str = "") -> str:
    return f"<w:p>{more}<w:r><w:t>{text}</w:t></w:r></w:p>"


def _read_docx(tmp_path: Path, inside: str, more: dict[str, bytes] | None = None) -> list[str]:
    """The lines that are not empty."""
    text = _text(_packed(tmp_path / "a.docx", _body(inside), more))
    return [line for line in text.splitlines() if line.strip()]


_DELETED = '<w:pPr><w:rPr><w:del w:id="1"/></w:rPr></w:pPr>'


@pytest.mark.parametrize(
    ("inside", "lines"),
    [
        (_p("kept<w:tab/>") + "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>",
         ["kept"]),
        (("<w:p><w:moveFrom><w:r><w:t>old place</w:t></w:r></w:moveFrom></w:p>"
         "<w:p><w:moveTo><w:r><w:t>new place</w:t></w:r></w:moveTo></w:p>"), ["new place"]),
        ("<w:p><w:ins><w:r><w:t>added</w:t></w:r></w:ins></w:p>", ["added"]),
        (_p("one ", _DELETED) + _p("line"), ["one line"]),
        (_p("last", _DELETED), ["last"]),
        (("<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r><w:r><w:t>seen</w:t></w:r>"
         "</w:p>"), ["seen"]),
        ('<w:p><w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>seen</w:t></w:r></w:p>', ["seen"]),
        (("<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r>"
         "</w:p>"), ["a\tb"]),
        ("<w:p><w:r><w:instrText>PAGE</w:instrText></w:r><w:r><w:t>field</w:t></w:r></w:p>",
         ["field"]),
        ((f"<w:tbl><w:tr><w:tc>{_p('a')}{_p('b')}</w:tc><w:tc>{_p('c')}</w:tc></w:tr><w:tr><w:trPr>"
         f"<w:del/></w:trPr><w:tc>{_p('gone')}</w:tc></w:tr></w:tbl>{_p('behind')}"),
         ["a b | c", "behind"]),
        ((f"<w:tbl><w:tr><w:tc><w:tbl><w:tr><w:tc>{_p('x')}</w:tc><w:tc>{_p('y')}</w:tc></w:tr>"
         f"</w:tbl></w:tc><w:tc>{_p('z')}</w:tc></w:tr></w:tbl>"), ["x | y | z"]),
        ((f"<w:p><w:r><w:t>anchor</w:t><w:txbxContent>{_p('box')}</w:txbxContent><w:t> goes on"
         "</w:t></w:r></w:p>"), ["anchor goes on", "box"]),
    ],
)  # fmt: skip
def test_docx_is_read_as_it_is_seen(tmp_path: Path, inside: str, lines: list[str]) -> None:
    assert _read_docx(tmp_path, inside) == lines


def test_docx_notes_headers_and_footers(tmp_path: Path) -> None:
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    rels = "".join(
        f'<Relationship Id="r{number}" Type="{kinds}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(
            [("footnotes", "footnotes.xml"), ("header", "/word/top.xml"), ("footer", "foot.xml"),
             ("header", "top2.xml"), ("header", "lost.xml"), ("styles", "styles.xml")]
        )
    )  # fmt: skip
    space = f'xmlns:w="{_W}"'
    parts = {
        "word/_rels/document.xml.rels": f"<Relationships>{rels}</Relationships>",
        "word/footnotes.xml": f'<w:footnotes {space}><w:footnote w:type="separator" w:id="0">'
        f'{_p("-")}</w:footnote><w:footnote w:id="2">{_p("The note.")}</w:footnote></w:footnotes>',
        "word/top.xml": f"<w:hdr {space}>{_p('Company')}</w:hdr>",
        "word/top2.xml": f"<w:hdr {space}>{_p('Company')}</w:hdr>",
        "word/foot.xml": f"<w:ftr {space}>{_p('17')}{_p('Confidential')}</w:ftr>",
        "word/styles.xml": f'<w:styles {space}><w:style w:styleId="A"><w:name w:val="heading 2"/>'
        '</w:style><w:style w:styleId="B"><w:name w:val="Mine"/><w:basedOn w:val="A"/></w:style>'
        "</w:styles>",
    }
    title = _p("Title", '<w:pPr><w:pStyle w:val="B"/><w:pPrChange><w:pPr><w:pStyle w:val="x"/>'
               "</w:pPr></w:pPrChange></w:pPr>")  # fmt: skip
    noted = '<w:p><w:r><w:t>Said</w:t><w:footnoteReference w:id="2"/></w:r></w:p>'
    more = {name: data.encode() for name, data in parts.items()}
    assert _read_docx(tmp_path, title + noted, more) == [
        "Company", "Title", "Said [1]", "[1] The note.", "Confidential",
    ]  # fmt: skip
    assert _sections(tmp_path / "a.docx") == ["Title"]


def test_docx_of_the_strict_kind_and_with_another_name_of_its_text(tmp_path: Path) -> None:
    strict = "http://purl.oclc.org/ooxml"
    path = tmp_path / "a.docx"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("_rels/.rels", '<Relationships><Relationship Target="word/document2.xml" '
                        f'Type="{strict}/officeDocument/relationships/officeDocument"/>'
                        "</Relationships>")  # fmt: skip
        body = _body(_p("strict")).decode().replace(_W, f"{strict}/wordprocessingml/main")
        packed.writestr("word/document2.xml", body)
    assert _text(path).strip() == "strict"


def test_a_pdf_of_which_some_pages_are_pictures_names_them(tmp_path: Path) -> None:
    fpdf = pytest.importorskip("fpdf")
    document = fpdf.FPDF()
    document.set_font("helvetica")
    for number in range(1, 8):
        document.add_page()
        if number in (1, 3, 7):
            document.cell(text=f"Page number {number}")
        else:
            document.rect(10, 10, 50, 50)
    document.output(str(tmp_path / "a.pdf"))
    text, marks = prepare(tmp_path / "a.pdf", tmp_path / "text", "a.pdf")
    assert empty_pages(marks, text.path.stat().st_size) == [2, 4, 5, 6]


@pytest.mark.parametrize(("name", "data"), [("a.rtf", b"{\\rtf1 words}"), ("a.odt", b"PK\x03\x04")])
def test_formats_that_are_not_read_are_told(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match="not read"):
        prepare(tmp_path / name, tmp_path / "text", name)


@pytest.mark.parametrize("name", ["a.docx", "a.html"])
def test_what_has_no_text_is_told(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.html":
        path.write_text("<html><body><div id=root></div><script>draw()</script></body></html>")
    else:
        _packed(path, _body("<w:p><w:r><w:drawing/></w:r></w:p>"))
    with pytest.raises(SourceError, match="no text in it"):
        _text(path)


def test_docx_bombs_are_refused(tmp_path: Path) -> None:
    laughs = (
        '<!DOCTYPE a [<!ENTITY a "ha">'
        + "".join(
            f'<!ENTITY {name} "{"&" + before + ";" * 1}{"&" + before + ";"}">'
            for before, name in zip("abcdefgh", "bcdefghi", strict=True)
        )
        + "]>"
    )
    path = _packed(tmp_path / "laughs.docx", _body("<w:p><w:r><w:t>&i;</w:t></w:r></w:p>", laughs))
    with pytest.raises(SourceError):
        _text(path)
    path = _packed(tmp_path / "zeros.docx", b"<a>" + b" " * (80 << 20))
    with pytest.raises(SourceError, match="times its size"):
        _text(path)


_RELS = "word/_rels/document.xml.rels"
_PARTS = ("styles", "numbering", "footnotes", "endnotes", "header", "footer")


@pytest.mark.parametrize("part", [*_PARTS, "_rels/.rels", _RELS])
def test_every_part_of_a_docx_is_checked_before_it_is_unpacked(tmp_path: Path, part: str) -> None:
    related = "".join(f'<Relationship Id="{each}" Type="x/{each}" Target="{each}.xml"/>'
                      for each in _PARTS)  # fmt: skip
    more = {_RELS: f"<Relationships>{related}</Relationships>".encode()}
    more[part if part.endswith(".rels") else f"word/{part}.xml"] = b"<a>" + b"<b/>" * (20 << 20)
    path = _packed(tmp_path / "a.docx", _body(_p("Some words.")), more)
    with pytest.raises(SourceError, match="times its size"):
        _text(path)


def test_a_part_of_a_docx_that_would_be_a_huge_tree_is_refused(tmp_path: Path) -> None:
    dice = random.Random(1)
    noise = "".join(f"<b c='{dice.getrandbits(64):x}'/>" for _ in range(800_000)).encode()
    more = {_RELS: b'<a><b Type="x/styles" Target="styles.xml"/></a>',
            "word/styles.xml": b"<a>" + noise + b"</a>"}  # fmt: skip
    path = _packed(tmp_path / "a.docx", _body(_p("Some words.")), more)
    with pytest.raises(SourceError, match=r"word/styles\.xml unpacks to more than 16\.0 MiB"):
        _text(path)


def test_a_docx_damaged_within_is_told(tmp_path: Path) -> None:
    """Packed bytes that cannot be unpacked, encodings that XML here has not, huge levels."""
    body = _body("<w:p><w:r><w:t>" + "Some words of a text. " * 50 + "</w:t></w:r></w:p>")
    path = _packed(tmp_path / "a.docx", body)
    packed = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as parts:
        about = parts.getinfo("word/document.xml")
    start = about.header_offset + 30 + len(about.filename)
    packed[start : start + about.compress_size] = b"\xff" * about.compress_size
    path.write_bytes(packed)
    bodies = [f"<?xml version='1.0' encoding='{name}'?><a/>" for name in ("klingon", "shift_jis")]
    others = [_packed(tmp_path / f"{n}.docx", one.encode()) for n, one in enumerate(bodies)]
    for each in (path, *others):
        with pytest.raises(SourceError, match="no sound DOCX"):
            _text(each)
    level = f'<w:pPr><w:outlineLvl w:val="{"9" * 5000}"/></w:pPr>'
    inside = f"<w:p>{level}<w:r><w:t>Words</w:t></w:r></w:p>"
    assert _read_docx(tmp_path, inside) == ["Words"]


def test_a_docx_cut_anywhere_is_told(tmp_path: Path) -> None:
    paragraphs = "".join(f"<w:p><w:r><w:t>{n}</w:t></w:r></w:p>" for n in range(50))
    whole = _packed(tmp_path / "a.docx", _body(paragraphs)).read_bytes()
    for end in range(4, len(whole) - 1, 7):
        path = tmp_path / "cut.docx"
        path.write_bytes(whole[:end])
        with pytest.raises(SourceError):
            _text(path)
    (tmp_path / "a.zip").write_bytes(whole)
    with pytest.raises(SourceError, match="packed"):
        _text(tmp_path / "a.zip")


# -- PDF -------------------------------------------------------------------------------------------


def _pdf(*pages: str) -> bytes:
    fpdf = pytest.importorskip("fpdf")
    made = fpdf.FPDF()
    made.set_font("Helvetica")
    for page in pages:
        made.add_page()
        made.multi_cell(0, 8, page)
    out = io.BytesIO()
    made.output(out)
    return out.getvalue()


def test_pdf_pages(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(_pdf("The first page speaks of bees.", "The second one of copper."))
    about, marks_file = prepare(path, tmp_path / "text", "a.pdf")
    text = about.path.read_text()
    assert text.index("bees") < text.index("copper")
    marks = Marks(marks_file)
    at = text.index("The second")
    assert marks.of(0, 10).page == 1
    assert marks.of(at, at + 5).page == 2
    marks.close()


def test_a_pdf_cut_anywhere_is_read_or_told(tmp_path: Path) -> None:
    whole = _pdf("Words " * 50)
    told = 0
    for end in range(5, len(whole), max(1, len(whole) // 25)):
        path = tmp_path / "cut.pdf"
        path.write_bytes(whole[:end])
        try:
            _text(path)
        except SourceError:
            told += 1
    assert told > 5


def test_a_pdf_without_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "scan.pdf"
    path.write_bytes(_pdf(""))
    with pytest.raises(SourceError, match="only pictures"):
        _text(path)


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["../../etc/x", "/etc/passwd", "..", "", "a" * 300, "a\nb\0c", "\udcff.txt", "\u4e2d.md"],
)
def test_no_name_leaves_the_folder(name: str) -> None:
    stem = file_stem(name)
    assert len(stem) < 120
    assert "/" not in stem
    assert not stem.startswith(".")
    assert stem.isascii()
    assert stem != file_stem(name + "x")
