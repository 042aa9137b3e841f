"""The only printer: answers on stdout, everything else on stderr; text, tables, bars, JSON.

Commands describe what to show (`Table`, `Bar`, phrases) and never format for a terminal.
A terminal gets sentences that are broken between words at its width, commands and files apart;
a pipe gets plain text, each line whole, because what reads it goes by lines. The terminal library
is imported only when a terminal needs it: it costs as much as all the rest of a start.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, TextIO

from kvwise.cli._shapes import (
    GLYPHS,
    STYLES,
    Bar,
    Cell,
    Progress,
    Spans,
    Table,
    Words,
    bar_cells,
    width_of,
)
from kvwise.errors import Ambiguous, KvwiseError, Refused
from kvwise.text import Phrase, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_SECONDS_BEFORE_A_BAR = 1.0
_SECONDS_BEFORE_A_LINE = 5.0
_SECONDS_BETWEEN_LINES = 30.0
_PIPE_COLUMNS = 100
_WIDEST_BAR = 100
_CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_FOLDED_COLUMN = 16  # words may be folded to this width, numbers never


def _nowhere() -> TextIO:
    """For a process that was started with its output closed."""
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123


def _says_width() -> bool:
    """False for COLUMNS=0, which some terminals set and the library would take at its word, and
    for a dumb terminal, which it takes for 80 columns whatever it says."""
    columns = os.environ.get("COLUMNS", "")
    if os.environ.get("TERM") in {"dumb", "unknown"}:
        return False
    return not columns.isdecimal() or int(columns) > 0


def visible(text: str) -> str:
    """Text whose control characters are written as escapes, line ends apart.

    Names come out of files of strangers: they must not steer the terminal or turn text around.
    """
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _after(label: str, text: str) -> str:
    """On one line; a colon as wide as a letter has its space in itself."""
    return f"{label}{'' if label.endswith('：') else ' '}{_one_line(text)}"


def _one_line(text: str) -> str:
    return visible(text).replace("\n", "\\n")


@dataclass(slots=True)
class Printer:
    """Where a command's answer goes, in which language and shape."""

    language: str = "en"
    json: bool = False
    color: str = "auto"
    debug: bool = False
    verbosity: int = 0
    out: TextIO = field(default_factory=lambda: sys.stdout or _nowhere())
    err: TextIO = field(default_factory=lambda: sys.stderr or _nowhere())
    _consoles: dict[int, Console] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stream in (self.out, self.err):
            if hasattr(stream, "reconfigure"):  # an old code page must not end in a traceback
                stream.reconfigure(errors="replace")

    # -- words ---------------------------------------------------------------

    def say(self, words: Words) -> str:
        """A phrase in the user's language; a plain string stays as it is."""
        return say(words, self.language) if isinstance(words, Phrase) else words

    def text(self, words: Words = "", style: str = "") -> None:
        """One paragraph of the answer; a command stays on one line, to be copied."""
        self._write(self.out, self.say(words), style, wrap=style != "command")

    def content(self, text: str) -> None:
        """The text of a file: to the byte in a pipe, harmless on a terminal."""
        if self._is_terminal(self.out):
            self._write(self.out, text.removesuffix("\n"), "command")
        else:
            self.out.write(text)

    def remark(self, words: Words, style: str = "dim") -> None:
        """Something beside the answer (stderr); nothing with -q."""
        if self.verbosity >= 0:
            self._write(self.err, self.say(words), style, wrap=True)

    def document(self, value: Mapping[str, object]) -> None:
        """The one JSON document of a run."""
        indent = 2 if self._is_terminal(self.out) else None
        self.out.write(self._json(value, indent) + "\n")

    def json_line(self, value: Mapping[str, object]) -> None:
        """One line of a JSON stream, at once: someone may be waiting for it."""
        self.out.write(self._json(value) + "\n")
        self.out.flush()

    def error_document(self, error: KvwiseError) -> dict[str, object]:
        """The JSON of a failure: `kvwise/refusal/1` or `kvwise/error/1`."""
        message = self.say(error.phrase)
        hint = self.say(error.hint) if error.hint else None
        if isinstance(error, Refused):
            return {
                "schema": "kvwise/refusal/1",
                "code": error.code,
                "message": message,
                "hint": hint,
            }
        failure: dict[str, object] = {"type": error.kind, "message": message, "hint": hint}
        if isinstance(error, Ambiguous):
            failure["candidates"] = list(error.candidates)
        return {"schema": "kvwise/error/1", "error": failure}

    def error(self, error: KvwiseError, extra: Mapping[str, object] | None = None) -> None:
        """A failure: one line and a hint on stderr, or JSON on stdout."""
        if self.json:
            self.document({**self.error_document(error), **(extra or {})})
            return
        label = self.say(Phrase("refused:" if isinstance(error, Refused) else "error:"))
        self._write(self.err, _after(label, self.say(error.phrase)), "bad", wrap=True)
        if error.hint:
            hint = _after(self.say(Phrase("hint:")), self.say(error.hint))
            self._write(self.err, hint, "", wrap=True)

    # -- tables and bars -----------------------------------------------------

    def table(self, table: Table) -> None:
        """A table: on a terminal as wide as it is, in a pipe as wide as needed."""
        if table.title:
            self.text(table.title, "title")
        if self._is_rich(self.out):
            self._rich_table(table)
        else:
            for line in self._plain_table(table):
                self.out.write(line + "\n")

    def bar(self, bar: Bar) -> None:
        """A name, its stacked bar as wide as the terminal, and under it what the parts are."""
        room = max(20, min(self.width, _WIDEST_BAR))
        cells = bar_cells([size for _, _, size in bar.parts], bar.capacity, room)
        row: Spans = []
        legend: list[Spans] = []
        used = room
        self._spans([(self.say(bar.label), "title")])
        for (style, words, _), count in zip(bar.parts, cells, strict=True):
            glyph, text = self._glyph(style), f" {self.say(words)}   "
            row.append((glyph * count, style))
            if used + 1 + width_of(text.rstrip()) > room:
                legend.append([])
                used = 0
            legend[-1] += [(glyph, style), (text, "")]
            used += 1 + width_of(text)
        for spans in (row, *legend):
            self._spans(spans)

    def bullets(self, items: Iterable[Words], style: str = "") -> None:
        """A list; on a terminal its lines hang behind the dash."""
        if not self._is_rich(self.out):
            for item in items:
                self._write(self.out, f"  - {_one_line(self.say(item))}", "")
            return
        from rich.table import Table as RichTable  # noqa: PLC0415

        grid = RichTable.grid(padding=(0, 1))
        grid.add_column(width=3, justify="right")
        grid.add_column(overflow="fold")
        for item in items:
            grid.add_row("-", self._rich_text(_one_line(self.say(item)), style))
        self._console(self.out).print(grid)

    @property
    def width(self) -> int:
        """Columns of the terminal (COLUMNS wins); a pipe has 100."""
        return self._columns(self.out)

    @staticmethod
    def _columns(stream: TextIO) -> int:
        columns = os.environ.get("COLUMNS", "")
        if columns.isdecimal() and int(columns) > 0:
            return int(columns)
        try:
            return os.get_terminal_size(stream.fileno()).columns or _PIPE_COLUMNS
        except (OSError, ValueError):  # not a terminal, or no file at all
            return _PIPE_COLUMNS

    # -- progress ------------------------------------------------------------

    @contextmanager
    def progress(self, words: Words, total: int) -> Iterator[Progress]:
        """A progress bar on stderr for work of `total` steps that takes over a second; in a pipe
        or a file a line now and then, so that nobody takes long work for one that hangs.

        Nothing with -q, or when KVWISE_NO_PROGRESS is set.
        """
        hidden = bool(os.environ.get("KVWISE_NO_PROGRESS")) or self.verbosity < 0
        if hidden:
            yield lambda done, words=None: None  # noqa: ARG005
            return
        if not self._is_terminal(self.err):
            yield self._lines(words, total)
            return
        from rich.progress import Progress as RichProgress  # noqa: PLC0415

        bar = RichProgress(console=self._console(self.err), transient=True)
        task = bar.add_task(self.say(words), total=total)
        begun = monotonic()

        def update(done: int, words: Words | None = None) -> None:
            if not bar.live.is_started and monotonic() - begun > _SECONDS_BEFORE_A_BAR:
                bar.start()
            bar.update(task, completed=done, description=self.say(words) if words else None)

        try:
            yield update
        finally:
            bar.stop()

    def _lines(self, words: Words, total: int) -> Progress:
        """Progress without a terminal: a first line soon, then one in half a minute at most."""
        last, due = words, monotonic() + _SECONDS_BEFORE_A_LINE

        def update(done: int, words: Words | None = None) -> None:
            nonlocal last, due
            last = last if words is None else words
            if monotonic() < due:
                return
            due = monotonic() + _SECONDS_BETWEEN_LINES
            share = f"{100 * done // max(total, 1)} %"
            self._write(self.err, f"{share:>5}  {_one_line(self.say(last))}", "")
            self.err.flush()

        return update

    @contextmanager
    def working(self, words: Words) -> Iterator[None]:
        """Says on a terminal what goes on while something of unknown length runs."""
        hidden = bool(os.environ.get("KVWISE_NO_PROGRESS")) or self.verbosity < 0
        if hidden or not self._is_terminal(self.err):
            yield
            return
        with self._console(self.err).status(self.say(words)):
            yield

    # -- questions -----------------------------------------------------------

    def choose(self, question: Words, names: Sequence[str]) -> str | None:
        """One of the names, asked on a terminal; None without one, with --json, or if none is
        chosen."""
        asks = sys.stdin is not None and sys.stdin.isatty() and self._is_terminal(self.err)
        if self.json or not asks:
            return None
        self._write(self.err, self.say(question), "title")
        for number, name in enumerate(names, 1):
            self.err.write(f"{number:>4}  {_one_line(name)}\n")
        while True:
            self.err.write(self.say(Phrase("which one? (1 to {most})", {"most": len(names)})) + " ")
            self.err.flush()
            answer = sys.stdin.readline()
            said = answer.strip()
            if not said:
                if not answer:  # the end of the input, and of the line that was begun
                    self.err.write("\n")
                return None
            if said.isdecimal() and 0 < int(said) <= len(names):
                return names[int(said) - 1]
            same = [name for name in names if name.lower() == said.strip('"').lower()]
            if same:
                return same[0]

    # -- inside --------------------------------------------------------------

    def _json(self, value: Mapping[str, object], indent: int | None = None) -> str:
        """JSON is UTF-8; what an old code page could not hold stays whole as escapes."""
        unicode = (self.out.encoding or "utf-8").lower().replace("-", "") == "utf8"
        return json.dumps(value, ensure_ascii=not unicode, indent=indent)

    @staticmethod
    def _is_terminal(stream: TextIO) -> bool:
        return stream.isatty()

    def _is_rich(self, stream: TextIO) -> bool:
        if self.color == "always" or (self.color == "auto" and os.environ.get("FORCE_COLOR")):
            return True
        return self._is_terminal(stream)

    def _console(self, stream: TextIO) -> Console:
        if id(stream) not in self._consoles:
            from rich.console import Console  # noqa: PLC0415

            self._consoles[id(stream)] = Console(
                file=stream,
                width=None if _says_width() else self._columns(stream),
                force_terminal=True if self.color == "always" else None,
                no_color=True if self.color == "never" else None,
                highlight=False,
                emoji=False,
                markup=False,
            )
        return self._consoles[id(stream)]

    def _write(self, stream: TextIO, text: str, style: str, *, wrap: bool = False) -> None:
        """Lines as they are, or on a terminal broken between words; never in a pipe, whose
        reader takes a line for a whole."""
        text = visible(text)
        columns = self._columns(stream) if wrap and self._is_terminal(stream) else 0
        wrap = columns > 0 and any(width_of(line) > columns for line in text.split("\n"))
        if wrap or (self._is_rich(stream) and style):
            said = self._rich_text(text, style)
            self._console(stream).print(said, soft_wrap=not wrap)
        else:
            stream.write(text + "\n")

    def _spans(self, spans: Spans) -> None:
        spans = [(_one_line(text), style) for text, style in spans]
        if not self._is_rich(self.out):
            self.out.write("".join(text for text, _ in spans).rstrip() + "\n")
            return
        from rich.text import Text  # noqa: PLC0415

        parts = [(text, STYLES.get(style, "")) for text, style in spans]
        self._console(self.out).print(Text.assemble(*parts))

    @staticmethod
    def _rich_text(text: str, style: str) -> Text:
        from rich.text import Text  # noqa: PLC0415

        return Text(text, STYLES.get(style, ""))

    def _glyph(self, style: str) -> str:
        fancy, plain = GLYPHS[style]
        if self._is_rich(self.out) and self.color != "never" and style not in {"left", "taken"}:
            console = self._console(self.out)
            fancy = "█" if console.color_system and not console.no_color else fancy
        try:
            fancy.encode(self.out.encoding or "utf-8")
        except (UnicodeEncodeError, LookupError):
            return plain
        return fancy

    def _cell(self, cell: Cell | Words) -> str:
        return _one_line(self.say(cell.words if isinstance(cell, Cell) else cell))

    def _plain_table(self, table: Table) -> Iterator[str]:
        lines = [[self.say(column.words) for column in table.columns]]
        lines += [[self._cell(cell) for cell in row] for row in table.rows]
        widths = [max(map(width_of, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = []
            for text, column, width in zip(line, table.columns, widths, strict=True):
                space = " " * (width - width_of(text))
                cells.append(space + text if column.right else text + space)
            yield "  ".join(cells).rstrip()

    def _rich_table(self, table: Table) -> None:
        from rich.table import Table as RichTable  # noqa: PLC0415

        grid = RichTable(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        rows = [[self._cell(cell) for cell in row] for row in table.rows]
        headings = [self.say(column.words) for column in table.columns]
        widths = [max(map(width_of, texts)) for texts in zip(headings, *rows, strict=True)]
        needed = [
            width if column.right else min(width, _FOLDED_COLUMN)
            for column, width in zip(table.columns, widths, strict=True)
        ]
        if sum(needed) + 2 * len(needed) > self.width:
            self._stacked(table, headings, rows)
            return
        for column, heading, width in zip(table.columns, headings, widths, strict=True):
            if column.right:  # a number must never be cut
                grid.add_column(heading, justify="right", no_wrap=True, min_width=width)
            else:
                grid.add_column(heading, overflow="fold")
        for row, texts in zip(table.rows, rows, strict=True):
            styles = [cell.style if isinstance(cell, Cell) else "" for cell in row]
            pairs = zip(texts, styles, strict=True)
            grid.add_row(*[self._rich_text(text, style) for text, style in pairs])
        self._console(self.out).print(grid)

    def _stacked(self, table: Table, headings: list[str], rows: list[list[str]]) -> None:
        """A table that is wider than the terminal: one line per cell."""
        indent = max(map(width_of, headings[1:]), default=0)
        for cells, texts in zip(table.rows, rows, strict=True):
            self._spans([(texts[0], "title"), (f"  {headings[0]}", "dim")])
            for heading, cell, text in zip(headings[1:], cells[1:], texts[1:], strict=True):
                style = cell.style if isinstance(cell, Cell) else ""
                gap = " " * (indent - width_of(heading))
                self._spans([(f"  {heading}{gap}  ", "dim"), (text, style)])
