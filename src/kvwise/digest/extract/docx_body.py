"""The text of one part of a DOCX file, out of the events of its XML.

As a reader sees it: a row of a table is a line, a text box follows the paragraph that it hangs on,
and so do the notes that it refers to; what was deleted or moved away under change tracking, and
what is hidden, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvwise.digest.extract import Piece

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from kvwise.digest.extract.docx_numbers import Numbers

_SPACES = {
    "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}": "",
    "{http://purl.oclc.org/ooxml/wordprocessingml/main}": "",
    "{http://schemas.openxmlformats.org/officeDocument/2006/math}": "m:",
    "{http://purl.oclc.org/ooxml/officeDocument/math}": "m:",
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}": "mc:",
}
"""Namespaces of both kinds of OOXML, transitional and strict."""
_LEFT_OUT = {"del", "moveFrom", "mc:Fallback", "rt"}
"""Deleted, moved away, what older programs show in place of what is there too, readings above."""
_WHITE = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_OFF = {"0", "false", "off"}
_NO_NOTES = {"separator", "continuationSeparator", "continuationNotice"}
_NOTES = {"footnote", "endnote"}
_MOST_DIGITS = 9


def name_of(element: Element) -> str:
    """`p` of WordprocessingML, `m:t` of a formula; empty for anything else."""
    space, close, name = str(element.tag).partition("}")
    prefix = _SPACES.get(space + close)
    return "" if prefix is None else prefix + name


def value_of(element: Element, name: str = "val") -> str:
    """An attribute, of either kind of OOXML."""
    for space, prefix in _SPACES.items():
        found = element.get(space + name) if not prefix else None
        if found is not None:
            return found
    return ""


def whole(text: str) -> int | None:
    """A number that a file names; None for what is none, and for one that no document counts to."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


@dataclass(slots=True)
class _Paragraph:
    """Words so far; `level` of a heading; what may number it. What hangs on it comes behind it.
    `joined` = its end was deleted: the next one goes on where it ends."""

    words: list[str] = field(default_factory=list)
    level: int = 0
    style: str = ""
    numbering: str | None = None
    numbering_level: int | None = None
    behind: list[tuple[str, int]] = field(default_factory=list)
    joined: bool = False


@dataclass(slots=True)
class _Row:
    cells: list[str] = field(default_factory=list)
    level: int = 0
    deleted: bool = False


class Body:
    """Takes event after event. `notes` are the texts of the footnotes and endnotes; those of the
    part itself are in `own_notes` afterwards."""

    def __init__(
        self, styles: Mapping[str, int], notes: Mapping[tuple[str, str], str] | None = None,
        numbers: Numbers | None = None,
    ) -> None:  # fmt: skip
        self.own_notes: dict[tuple[str, str], str] = {}
        self._styles, self._notes, self._numbered = styles, notes or {}, numbers
        self._path: list[str] = []
        self._left_out = 0
        self._hidden = False  # of a run
        self._paragraphs: list[_Paragraph] = []
        self._rows: list[_Row] = []
        self._boxes: list[list[tuple[str, int]]] = []  # cells, text boxes, notes: innermost last
        self._carried: list[str] = []
        self._numbers = 0

    def take(self, event: str, element: Element) -> Iterator[Piece]:
        """What is finished by it."""
        name = name_of(element)
        if event == "start":
            self._start(name)
            self._path.append(name)
            return
        self._path.pop()
        if name in _LEFT_OUT or name.endswith("Change"):
            self._left_out -= 1
        elif not self._left_out:
            yield from self._end(name, element)
        if name in ("p", "tr", "tbl"):
            element.clear()

    def _above(self, *names: str) -> bool:
        return tuple(self._path[-len(names) :]) == names

    # -- what begins ---------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        if name in ("del", "moveFrom") and self._above("pPr", "rPr") and self._paragraphs:
            self._paragraphs[-1].joined = True
        elif name == "del" and self._above("trPr") and self._rows:
            self._rows[-1].deleted = True
        if name in _LEFT_OUT or name.endswith("Change"):
            self._left_out += 1
        if self._left_out:
            return
        if name == "p":
            self._paragraphs.append(_Paragraph(words=self._carried))
            self._carried = []
        elif name == "r":
            self._hidden = False
        elif name == "tr":
            self._rows.append(_Row())
        elif name in ("tc", "txbxContent") or name in _NOTES:
            self._boxes.append([])

    # -- what ends -----------------------------------------------------------------------------

    def _end(self, name: str, element: Element) -> Iterator[Piece]:
        if name in ("t", "m:t") or name in _WHITE:
            self._word(name, element)
        elif name in ("footnoteReference", "endnoteReference"):
            self._refer(name.removesuffix("Reference"), value_of(element, "id"))
        elif name in ("vanish", "pStyle", "outlineLvl", "numId", "ilvl"):
            self._property(name, value_of(element))
        elif name in ("p", "body"):
            yield from self._text(name)
        elif name in ("tc", "tr", "tbl"):
            yield from self._table(name)
        elif name == "txbxContent" or name in _NOTES:
            self._apart(name, element)

    def _text(self, name: str) -> Iterator[Piece]:
        if name == "p":
            yield from self._paragraph(self._paragraphs.pop())
        elif self._carried:  # the end of the last paragraph was deleted
            yield from self._paragraph(_Paragraph(self._carried))

    def _table(self, name: str) -> Iterator[Piece]:
        if name == "tc":
            self._cell(self._boxes.pop())
        elif name == "tr":
            yield from self._row(self._rows.pop())
        elif not self._boxes:
            yield Piece("\n")

    def _apart(self, name: str, element: Element) -> None:
        """A text box goes behind its paragraph, a note to where it is referred to."""
        box = self._boxes.pop()
        if name == "txbxContent":
            if self._paragraphs:
                self._paragraphs[-1].behind += box
        elif value_of(element, "type") not in _NO_NOTES:
            self.own_notes[name, value_of(element, "id")] = " ".join(text for text, _ in box)

    def _word(self, name: str, element: Element) -> None:
        if self._hidden or not self._paragraphs:
            return
        if name in _WHITE:
            if self._above("r"):  # not a stop of a tabulator
                self._paragraphs[-1].words.append(_WHITE[name])
        else:
            self._paragraphs[-1].words.append((element.text or "").replace("\u00ad", ""))

    def _refer(self, kind: str, number: str) -> None:
        text = self._notes.get((kind, number))
        if text and self._paragraphs and not self._hidden:
            self._numbers += 1
            self._paragraphs[-1].words.append(f" [{self._numbers}]")
            self._paragraphs[-1].behind.append((f"[{self._numbers}] {text}", 0))

    def _property(self, name: str, value: str) -> None:
        if name == "vanish":
            if self._above("r", "rPr"):
                self._hidden = value not in _OFF
        elif self._paragraphs and self._above("pPr", "numPr"):
            self._number(name, value)
        elif not self._paragraphs or not self._above("pPr"):
            return
        elif name == "pStyle":
            self._paragraphs[-1].style = value
            self._paragraphs[-1].level = self._styles.get(value, 0)
        elif (level := whole(value)) is not None:
            self._paragraphs[-1].level = level + 1 if level < 9 else 0

    def _number(self, name: str, value: str) -> None:
        if name == "numId":
            self._paragraphs[-1].numbering = value
        elif (level := whole(value)) is not None:
            self._paragraphs[-1].numbering_level = level

    def _label(self, found: _Paragraph) -> str:
        """What Word counts and shows before it."""
        if self._numbered is None:
            return ""
        label = self._numbered.label(found.style, found.numbering, found.numbering_level)
        return f"{label} " if label else ""

    def _paragraph(self, found: _Paragraph) -> Iterator[Piece]:
        if found.joined:
            self._carried = found.words
            for text, level in found.behind:
                yield from self._add(text, level)
            return
        label, text = self._label(found), "".join(found.words).strip()
        if text:
            yield from self._add(label + text, found.level)
        for text, level in found.behind:
            yield from self._add(text, level)

    def _add(self, text: str, level: int) -> Iterator[Piece]:
        """To the cell, box or note that is open, else to the text."""
        if self._boxes:
            self._boxes[-1].append((text, level))
        elif level:
            yield Piece(f"{text}\n\n", (level, " ".join(text.split())))
        else:
            yield Piece(f"{text}\n\n")

    def _cell(self, blocks: list[tuple[str, int]]) -> None:
        if self._rows:
            row = self._rows[-1]
            row.cells.append(" ".join(" ".join(text for text, _ in blocks).split()))
            row.level = row.level or (blocks[0][1] if len(blocks) == 1 else 0)

    def _row(self, row: _Row) -> Iterator[Piece]:
        filled = [cell for cell in row.cells if cell]
        if row.deleted or not filled:
            return
        line = " | ".join(row.cells).rstrip(" |")
        level = row.level if len(filled) == 1 else 0
        if self._boxes:
            self._boxes[-1].append((line, level))
        else:
            yield Piece(f"{line}\n", (level, line) if level else None)
