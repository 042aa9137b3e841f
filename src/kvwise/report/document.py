"""A report as values: facts, sections of sentences, tables and pictures; no format, no language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvwise.results.wording import visible
from kvwise.text import Phrase, say

Words = Phrase | str


@dataclass(frozen=True, slots=True)
class Heading:
    """A column of a grid; numbers stand to the right."""

    words: Words
    right: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; `strong` are the numbers of rows that stand out."""

    columns: tuple[Heading, ...]
    rows: tuple[tuple[Words, ...], ...]
    caption: Words = ""
    strong: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart: a Vega-Lite specification whose texts may be phrases. `says` tells those who cannot
    see it what it shows."""

    title: Words
    spec: Mapping[str, Any]
    says: Words
    caption: Words = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    """Remarks, each on its own."""

    items: tuple[Words, ...]


Block = Grid | Picture | Bullets


@dataclass(frozen=True, slots=True)
class Section:
    """A part with a title of its own."""

    title: Words
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """`facts` are pairs of a name and what it is (machine, engine...); `document` is the same as
    JSON, `csv` as rows for a spreadsheet."""

    title: Words
    facts: tuple[tuple[Words, Words], ...]
    sections: tuple[Section, ...]
    document: Mapping[str, Any] = field(default_factory=dict)
    csv: str = ""

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All of them, in order."""
        blocks = (block for section in self.sections for block in section.blocks)
        return tuple(block for block in blocks if isinstance(block, Picture))


def word(words: Words, language: str) -> str:
    """A phrase in the language, or a plain string (a name out of a file); characters that turn text
    around or steer a terminal are written as escapes."""
    return visible(say(words, language) if isinstance(words, Phrase) else words)


def worded(value: Any, language: str) -> Any:
    """A specification with its phrases in the language."""
    if isinstance(value, Phrase | str):
        return word(value, language)
    if isinstance(value, Mapping):
        return {name: worded(each, language) for name, each in value.items()}
    if isinstance(value, Sequence):
        return [worded(each, language) for each in value]
    return value
