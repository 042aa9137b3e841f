"""The sections that a summary says it is of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvwise.digest.chunker import Rules
from kvwise.digest.extract import Marks, headings, prepare
from kvwise.digest.place import TEXTS
from kvwise.digest.refine.generator import Answer, Generator
from kvwise.digest.refine.summarize import Summarizer
from kvwise.digest.shelf import RUNNING, Document, Shelf, key_of

from .plain import cut

_PAGE = """# One

%s

## Small

Two words.

# Last

End.
"""


class _Words:
    """A generator that counts words and says how many it was given."""

    context = 4096

    def __init__(self, path: Path) -> None:
        self.model = SimpleNamespace(called="words", path=str(path))

    def tokens(self, text: str) -> int:
        return len(text.split())

    def room(self, _instruction: str, _answer: int) -> int:
        return 60

    def prompt(self, instruction: str, text: str) -> list[int]:
        return [len(instruction), *map(len, text.split())]

    def write(self, prompt: Sequence[int], _most: int) -> Answer:
        return Answer(f"{len(prompt)} words", len(prompt), 2, cut=False)


@pytest.mark.parametrize("words", [20, 90])
def test_a_tiny_section_is_named_too(tmp_path: Path, words: int) -> None:
    path = tmp_path / "page.md"
    path.write_text(_PAGE % ("Some text of the first. " * (words // 5)))
    with Shelf(tmp_path) as shelf:
        document = _kept(shelf, path, tmp_path / TEXTS)
        tree = Summarizer(shelf, cast("Generator", _Words(path))).summarize(document)
    assert tree.top.sections == ("One", "One > Small", "Last")
    assert {name for node in tree.nodes for name in node.sections} == set(tree.top.sections)
    assert all(set(node.sections) <= set(tree.top.sections) for node in tree.nodes)


def _kept(shelf: Shelf, path: Path, folder: Path) -> Document:
    text, marks_file = prepare(path, folder, "page.md")
    shelf.agree({"a": 1})
    shelf.begin(Document("page.md", str(path), "markdown", "s", RUNNING, None, "utf-8", 0))
    marks: Any = Marks(marks_file)
    for chunk in cut(text.path, Rules(40), headings=headings(marks_file)):
        key = key_of(chunk.ids or ())
        shelf.keep("page.md", chunk, marks.of(chunk.start, chunk.end), key, b"\0" * 4)
    marks.close()
    found = shelf.document("page.md")
    assert found is not None
    return found
