"""A document summarised from below: chunks, sections, the whole; each text says what it is from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from kvwise.digest.place import sections_of
from kvwise.digest.refine.generator import Generator, unit_key
from kvwise.digest.search import read, text_of
from kvwise.digest.session import fingerprint
from kvwise.digest.shelf import Document, Row, Shelf

SUMMARY_TOKENS = 192
_OF_TEXT = (
    "Summarise the following text in a few sentences. Keep names, numbers and results; add "
    "nothing. Write in the language of the text."
)
_OF_SUMMARIES = (
    "The following are summaries of consecutive parts of one text, in order. Write one summary of "
    "the whole in a few sentences. Keep names, numbers and results; add nothing. Write in the "
    "language of the text."
)


@dataclass(frozen=True, slots=True)
class Node:
    """A summary of the bytes `start` to `end` of a document, made from the nodes `of` (indices into
    the list of all nodes; empty = from the text itself). `section` has most of it, `sections` are
    all that it is from. `cut` = it stopped at the token limit."""

    level: int
    start: int
    end: int
    section: str
    sections: tuple[str, ...]
    text: str
    of: tuple[int, ...]
    cut: bool


@dataclass(frozen=True, slots=True)
class Tree:
    """All summaries of a document, the last one of the whole."""

    document: str
    nodes: tuple[Node, ...]

    @property
    def top(self) -> Node:
        return self.nodes[-1]


Progress = Callable[[int, int | None], None]
"""Summaries made, bytes of the document behind them (None above the chunks)."""


class Summarizer:
    """Makes a tree; each summary is kept in the database as soon as it is there."""

    def __init__(
        self, shelf: Shelf, generator: Generator, tokens: int = SUMMARY_TOKENS,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self._shelf, self._generator, self._tokens = shelf, generator, tokens
        self._maker = fingerprint(generator.model)
        self._progress = progress or (lambda _number, _end: None)
        self._nodes: list[Node] = []
        self._sections: list[tuple[int, str]] = []

    def summarize(self, document: Document) -> Tree:
        """Every part of a text goes into exactly one summary; nothing is left out.

        Raises UsageError when the budget is too small, EngineError, SourceError.
        """
        self._nodes = []
        self._sections = sections_of(self._shelf.path.parent, document)
        room = self._generator.room(_OF_TEXT, self._tokens)
        rows = self._shelf.chunks(document.name)
        level = [
            number
            for _, mine in groupby(rows, key=lambda row: row.section)
            for number in self._of_rows(document, list(mine), room)
        ]
        while len(level) > 1:
            level = self._above(level)
        return Tree(document.name, tuple(self._nodes))

    def _of_rows(self, document: Document, rows: Sequence[Row], room: int) -> Iterator[int]:
        """Summaries of the consecutive chunks of a section, as many chunks in each as fit."""
        start, end, text = rows[0].start, rows[0].start, ""
        for row in rows:
            longer = read(self._shelf, document, start, row.end)
            if text and self._generator.tokens(longer) > room:
                yield self._node(0, (start, end, row.section), text, ())
                start, longer = row.start, text_of(self._shelf, row)
            text, end = longer, row.end
        yield self._node(0, (start, end, rows[0].section), text, ())

    def _above(self, level: Sequence[int]) -> list[int]:
        """One level of summaries of summaries."""
        room = self._generator.room(_OF_SUMMARIES, self._tokens)
        made: list[int] = []
        group: list[int] = []
        for number in level:
            more = [*group, number]
            if len(group) > 1 and self._generator.tokens(self._joined(more)) > room:
                made.append(self._of_group(group))
                more = [number]
            group = more
        made.append(self._of_group(group) if len(group) > 1 else group[0])
        return made

    def _joined(self, group: Sequence[int]) -> str:
        return "\n\n".join(self._nodes[number].text for number in group)

    def _of_group(self, group: Sequence[int]) -> int:
        nodes = [self._nodes[number] for number in group]
        level = max(node.level for node in nodes) + 1
        sections = {node.section for node in nodes}
        section = sections.pop() if len(sections) == 1 else ""
        place = (nodes[0].start, nodes[-1].end, section)
        return self._node(level, place, self._joined(group), tuple(group))

    def _node(self, level: int, place: tuple[int, int, str], text: str, of: tuple[int, ...]) -> int:
        prompt = self._generator.prompt(_OF_SUMMARIES if of else _OF_TEXT, text)
        key = unit_key("summary", self._maker, prompt, self._tokens)
        kept = self._shelf.unit(key, {"text": "", "cut": False})
        if kept is None:
            answer = self._generator.write(prompt, self._tokens)
            kept = {"text": answer.text, "cut": answer.cut}
            self._shelf.keep_unit(key, "summary", kept)
        self._nodes.append(
            Node(level, *place, self._of_bytes(*place), str(kept["text"]), of, bool(kept["cut"]))
        )
        self._progress(len(self._nodes), None if of else place[1])
        return len(self._nodes) - 1

    def _of_bytes(self, start: int, end: int, section: str) -> tuple[str, ...]:
        """All sections of a stretch of text, however little of it they have."""
        inside = [
            name
            for (at, name), (until, _) in pairwise([*self._sections, (end, "")])
            if at < end and until > start
        ]
        return tuple(dict.fromkeys(inside)) or ((section,) if section else ())
