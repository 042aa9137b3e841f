"""What can be shown, as values: words, tables, stacked bars. Knows no terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kvwise.text import Phrase

Words = Phrase | str
Spans = list[tuple[str, str]]  # text and the name of its style

STYLES = {
    "title": "bold",
    "dim": "dim",
    "good": "bold green",
    "bad": "bold red",
    "warn": "yellow",
    "command": "cyan",
    "weights": "blue",
    "kv": "magenta",
    "compute": "yellow",
    "output": "cyan",
    "extra": "green",
    "overhead": "red",
    "left": "bright_black",
    "taken": "bright_black",
    "heat0": "white on red",
    "heat1": "black on dark_orange",
    "heat2": "black on yellow",
    "heat3": "black on green_yellow",
    "heat4": "black on green",
}
GLYPHS = {
    "weights": ("█", "#"), "kv": ("▓", "="), "compute": ("▒", "+"), "output": ("▞", "o"),
    "extra": ("▚", "x"),
    "overhead": ("░", "-"), "left": ("·", "."), "taken": ("╳", "X"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """Text of a table with a style name of STYLES."""

    words: Words
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading; numbers are right-aligned."""

    words: Words
    right: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of words under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | Words]]
    title: Words = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """One stacked bar: `parts` are (style, words, size); `capacity` is the size of the whole."""

    label: Words
    parts: Sequence[tuple[str, Words, int]]
    capacity: int


class Progress(Protocol):
    """Takes how much is done so far, and other words for what is being done."""

    def __call__(self, done: int, words: Words | None = None) -> None: ...


def width_of(text: str) -> int:
    """Terminal cells of a text: Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def bar_cells(sizes: Sequence[int], capacity: int, room: int) -> list[int]:
    """Whole cells for each part of a bar of `room` cells; a part that is not zero gets one.

    The largest part gives way when rounding would make the bar longer than its room.
    """
    whole = max(capacity, sum(sizes), 1)
    cells = [max(1, round(size * room / whole)) if size > 0 else 0 for size in sizes]
    while sum(cells) > room and max(cells) > 1:
        cells[cells.index(max(cells))] -= 1
    return cells
