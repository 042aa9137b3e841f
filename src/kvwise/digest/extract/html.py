"""HTML: what a reader sees, with its headings; scripts, styles and navigation left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from kvwise.digest.extract import Piece
from kvwise.digest.extract.encodings import text_of
from kvwise.errors import UsageError

_BLOCK = 1 << 16
_HEAD = 2048
_CHARSET = re.compile(
    rb"(?:charset\s*=\s*|^\s*<\?xml[^>]{0,80}encoding\s*=\s*)[\"']?\s*([A-Za-z0-9_.:-]+)",
    re.IGNORECASE,
)
_READ_AS = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030",
    "shift_jis": "cp932", "euc_kr": "cp949", "iso8859-9": "cp1254", "tis-620": "cp874",
}  # fmt: skip
"""As which encoding a browser reads a page that says another (encoding.spec.whatwg.org)."""
_UNSEEN = {
    "script", "style", "template", "noscript", "svg", "head", "nav", "iframe", "object", "audio",
    "video", "canvas", "datalist", "math", "rp",
}  # fmt: skip
_VOID = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track",
    "wbr",
}  # fmt: skip
_NO_DISPLAY = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_BREAKS = {
    "p", "div", "section", "article", "main", "ul", "ol", "table", "blockquote", "pre", "figure",
    "header", "footer", "aside", "dl", "form", "hr", "body",
}  # fmt: skip
_LINES = {"br", "li", "tr", "dt", "dd", "option", "caption"}
_LEVELS = {f"h{level}": level for level in range(1, 7)}
_SPACE = re.compile(r"[ \t\r\n\f]+")


class _Page(HTMLParser):
    """Collects pieces; blank lines between blocks, one space for any white space in them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Piece] = []
        self._unseen: list[str] = []
        self._kept = 0  # depth of <pre>, whose white space counts
        self._title: list[str] | None = None
        self._level = 0
        self._gap = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._unseen == ["head"] and (tag == "body" or tag in _BREAKS or tag in _LEVELS):
            self._unseen.clear()  # its end may be left out
        if tag in _UNSEEN or tag in self._unseen or (_hidden(tag, attrs) and tag not in _VOID):
            self._unseen.append(tag)
        elif tag in _LEVELS:
            self._break("\n\n")
            self._title, self._level = [], _LEVELS[tag]
        elif tag in _BREAKS:
            self._break("\n\n")
        elif tag in _LINES:
            self._break("\n")
        elif tag in ("td", "th"):
            self._break(" ")
        self._kept += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if self._unseen and tag in self._unseen:
            del self._unseen[len(self._unseen) - 1 - self._unseen[::-1].index(tag) :]
        elif tag in _LEVELS and self._title is not None:
            self._heading()
        elif tag in _BREAKS:
            self._break("\n\n")
        self._kept = max(0, self._kept - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        data = data.replace("\u00ad", "")  # seen only where a line is broken at it
        text = data if self._kept else _SPACE.sub(" ", data)
        if self._title is not None:
            self._title.append(text)
        elif text.strip():
            lead = " " if text[0] == " " and not self._gap else ""
            self._put(self._gap + lead + text.strip(" ") if not self._kept else self._gap + text)
            self._gap = " " if text[-1] == " " and not self._kept else ""
        elif text and not self._gap:
            self._gap = " "

    def _heading(self) -> None:
        title = _SPACE.sub(" ", "".join(self._title or ())).strip()
        self._title = None
        if title:
            self._put(self._gap)
            self.found.append(Piece(title, (self._level, title)))
            self._gap = "\n\n"

    def _break(self, gap: str) -> None:
        """At least this much space before what comes next."""
        if self.found and len(gap) >= len(self._gap) and self._gap != "\n\n":
            self._gap = gap

    def _put(self, text: str) -> None:
        if text and (self.found or text.strip()):
            self.found.append(Piece(text))

    def take(self) -> list[Piece]:
        """What there is by now; something stays so that the next knows that it is not the first."""
        found, self.found = self.found, self.found and [Piece("")]
        return found


def _hidden(tag: str, attrs: list[tuple[str, str | None]]) -> bool:
    named = dict(attrs)
    if tag == "dialog" and "open" not in named:
        return True
    return "hidden" in named or bool(_NO_DISPLAY.search(named.get("style") or ""))


def pieces(path: Path, encoding: str | None) -> Iterator[Piece]:
    """The text of a page, read as a stream. Raises SourceError."""
    about = text_of(path, encoding or _declared(path))
    page = _Page()
    with path.open(encoding=about.encoding, errors="replace", newline="") as file:
        while text := file.read(_BLOCK):
            page.feed(text.removeprefix("\ufeff"))
            yield from page.take()
        page.close()
    yield from page.take()
    yield Piece("\n")


def _declared(path: Path) -> str | None:
    """The encoding that the page says it has, if it exists."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return None
    found = _CHARSET.search(head)
    if not found:
        return None
    name = found[1].decode("ascii")
    if name.lower().startswith(("utf-16", "utf-32")):
        return None  # it could not be read if it were
    try:
        known = text_of(path, name).encoding
    except UsageError:
        return None
    return _READ_AS.get(known, known)
