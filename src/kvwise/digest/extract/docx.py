"""DOCX: paragraphs, their numbers, tables, notes, headers, text boxes, as a reader sees them.

Each part of the packed file is read as a stream of XML: a library that builds the whole tree needs
many times the file's size; a paragraph, and the notes, are all that has to be in memory.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvwise.digest.extract import Piece
from kvwise.digest.extract.docx_body import Body, name_of, value_of, whole
from kvwise.digest.extract.docx_numbers import inherited, numbers
from kvwise.errors import SourceError
from kvwise.units import show

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_ROOT = "_rels/.rels"
_BODY = "word/document.xml"
_LEVEL = re.compile(r"heading\s*(\d)", re.IGNORECASE)
_MOST, _MOST_OF_TREE = 1 << 31, 1 << 24  # unpacked bytes of a part; elements take ten times as much
_SMALL, _SMALL_TREE = 1 << 26, 1 << 20  # that any ratio is fine for
_RATIO = 200


def pieces(path: Path, _encoding: str | None) -> Iterator[Piece]:
    """Headers, the text with its notes, footers. Raises SourceError."""
    try:
        from defusedxml import DefusedXmlException  # noqa: PLC0415
        from defusedxml import ElementTree as ET  # noqa: PLC0415, N817
    except ImportError:
        raise SourceError(
            "{path}: DOCX files need a reader", path=str(path), hint="pip install 'kvwise[digest]'"
        ) from None
    try:
        with zipfile.ZipFile(path) as packed:
            yield from _Package(packed, path, ET).pieces()
    except (zipfile.BadZipFile, zlib.error, ET.ParseError, DefusedXmlException, LookupError,
            ValueError, RuntimeError, OSError, EOFError) as error:  # fmt: skip
        raise SourceError(
            "{path} is no sound DOCX file: {why}", path=str(path), why=str(error)
        ) from error


@dataclass(frozen=True, slots=True)
class _Package:
    """The parts of a file, found by what they are for: their names are free."""

    packed: zipfile.ZipFile
    path: Path
    xml: Any  # defusedxml.ElementTree

    def pieces(self) -> Iterator[Piece]:
        main = next(iter(self._related("", _ROOT, "officeDocument")), _BODY)
        folder, file = posixpath.split(main)
        rels = posixpath.join(folder, "_rels", f"{file}.rels")

        def parts(kind: str) -> list[str]:
            return self._related(folder, rels, kind)

        styles = next(map(self._styles, parts("styles")), {})
        notes: dict[tuple[str, str], str] = {}
        for kind in ("footnotes", "endnotes"):
            for name in parts(kind):
                body = Body(styles)
                for _ in self._read(name, body):
                    pass
                notes |= body.own_notes
        yield from self._beside(parts("header"), styles)
        counted = numbers(
            *(next(map(self._small, parts(kind)), None) for kind in ("numbering", "styles"))
        )
        yield from self._read(main, Body(styles, notes, counted))
        yield from self._beside(parts("footer"), styles)

    def _beside(self, names: list[str], styles: dict[str, int]) -> Iterator[Piece]:
        """What stands on every page, once; page numbers alone are none of it."""
        said = (
            piece.text.strip() for name in sorted(names) for piece in self._read(name, Body(styles))
        )
        for text in dict.fromkeys(said):
            if any(char.isalpha() for char in text):
                yield Piece(f"{text}\n\n")

    def _read(self, name: str, body: Body) -> Iterator[Piece]:
        self._check_size(name)
        with self.packed.open(name) as file:
            for event, element in self.xml.iterparse(file, ("start", "end")):
                yield from body.take(event, element)

    def _check_size(self, name: str, most: int = _MOST, small: int = _SMALL) -> None:
        """Of a part that is read as a stream, or with the limits of one that becomes a tree."""
        about = self.packed.getinfo(name)
        if about.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"{name} is packed in a way that no program packs it")
        if about.file_size > max(small, _RATIO * about.compress_size):
            raise SourceError(
                "{path} unpacks to {times} times its size: no real text does", path=str(self.path),
                times=about.file_size // max(1, about.compress_size),
            )  # fmt: skip
        if about.file_size > most:
            raise SourceError("{path}: {part} unpacks to more than {most}", path=str(self.path),
                              part=name, most=show(most))  # fmt: skip

    def _small(self, name: str) -> Element | None:
        """A part of which a tree is made; None where there is none, or no sound one."""
        try:
            self._check_size(name, _MOST_OF_TREE, _SMALL_TREE)
            root: Element = self.xml.fromstring(self.packed.read(name))
        except (LookupError, self.xml.ParseError):
            return None
        return root

    def _related(self, folder: str, rels: str, kind: str) -> list[str]:
        """Names of the parts that stand in this relation to another."""
        root = self._small(rels)
        found = []
        for each in root if root is not None else ():
            target = each.get("Target", "")
            if each.get("Type", "").endswith(f"/{kind}") and each.get("TargetMode") != "External":
                inside = target.lstrip("/") if target.startswith("/") else f"{folder}/{target}"
                found.append(posixpath.normpath(inside).lstrip("/"))
        return [name for name in found if name in self.packed.namelist()]

    def _styles(self, name: str) -> dict[str, int]:
        """Style id -> heading level: by the name that all languages of Word keep, by its outline
        level, or by the style that it is based on."""
        root = self._small(name)
        levels: dict[str, int] = {}
        parents: dict[str, str] = {}
        for style in root.iter() if root is not None else ():
            if name_of(style) != "style":
                continue
            ours = value_of(style, "styleId")
            for each in style.iter():
                _style_says(name_of(each), value_of(each), ours, levels, parents)
        return {style: level for style, level in inherited(levels, parents).items() if level}


def _style_says(
    what: str, value: str, ours: str, levels: dict[str, int], parents: dict[str, str]
) -> None:
    if what == "name":
        match = _LEVEL.match(value)
        if match or value.lower() == "title":
            levels[ours] = int(match[1]) if match else 1
    elif what == "outlineLvl" and (level := whole(value)) is not None:
        levels.setdefault(ours, level + 1 if level < 9 else 0)
    elif what == "basedOn":
        parents[ours] = value
