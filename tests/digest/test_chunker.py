"""Chunks cover a text to the byte, never have too many tokens, and end where a reader would."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvwise.digest import borders
from kvwise.digest.chunker import Rules
from kvwise.errors import UsageError

from .plain import Words, cut

_TEXT = st.lists(
    st.sampled_from(
        ["one", "two words", "Dr. No came.", "Yes!", " ", "\n", "\n\n", "\r\n\r\n", "第一句。",
         "然后呢？", "a" * 70, "ein Satz. ", "…", "¿Qué?", "\t", "e.g. this", "x.y.z", "😀",
         "end.\u201d "]
    ),
    max_size=120,
).map("".join)  # fmt: skip


@given(
    text=_TEXT,
    limit=st.integers(4, 40),
    rest=st.tuples(
        st.integers(0, 2), st.integers(0, 18), st.sampled_from(("sentence", "paragraph", "none"))
    ),
)
@example(text="Dr. No came. ", limit=7, rest=(0, 3, "sentence"))
@settings(max_examples=150, deadline=None)
def test_chunks_cover_a_text(
    tmp_path_factory: pytest.TempPathFactory, text: str, limit: int, rest: tuple[int, int, str]
) -> None:
    special, overlap, name = rest
    if overlap >= (limit - special) / 2:
        with pytest.raises(UsageError):
            Rules(limit, special, overlap, name)
        return
    path = tmp_path_factory.mktemp("text") / "t.txt"
    data = text.encode()
    path.write_bytes(data)
    words = Words(special)
    dice = random.Random(text)
    places = {len(text[: dice.randint(1, len(text))].encode()) for _ in range(3) if text}
    chunks = cut(path, Rules(limit, special, overlap, name), words, headings=sorted(places))
    end = 0
    for number, chunk in enumerate(chunks):
        assert chunk.seq == number
        assert data[chunk.start : chunk.end].decode() == chunk.text
        assert chunk.start <= end < chunk.end  # nothing left out, something new in each
        assert chunk.tokens == len(words.ids(chunk.text)) <= limit
        if not overlap:
            assert chunk.start == end
        else:
            shared = data[chunk.start : end].decode()
            assert words.counts([shared])[0] <= overlap
        end = chunk.end
    assert end == len(data)


@pytest.mark.parametrize(
    ("tokens", "number"), [(100_000, 25), pytest.param(1_000_000, 245, marks=pytest.mark.slow)]
)
def test_chunks_of_4096_are_full(tmp_path: Path, tokens: int, number: int) -> None:
    path = tmp_path / "long.txt"
    path.write_text("word " * tokens)
    chunks = cut(path, Rules(4096, borders="none"))
    assert len(chunks) == number
    assert {chunk.tokens for chunk in chunks[:-1]} == {4096}
    assert sum(chunk.tokens for chunk in chunks) == tokens


def test_chunks_end_with_sentences_and_paragraphs(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    sentence = "Mr. Smith went to Washington in 1939. "
    path.write_text((sentence * 5 + "\n\n") * 20)
    for chunk in cut(path, Rules(30)):
        assert chunk.text.rstrip().endswith("1939.")
    for chunk in cut(path, Rules(100, borders="paragraph"))[:-1]:
        assert chunk.text.endswith("\n\n")


def test_chinese_ends_with_its_own_stops(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("今天天气很好。我们去公园吧！你想去吗？" * 40, encoding="gb18030")
    chunks = cut(path, Rules(30), encoding="gb18030")
    assert len(chunks) > 5
    assert all(chunk.text[-1] in "。！？" for chunk in chunks)
    data = path.read_bytes()
    assert all(data[c.start : c.end].decode("gb18030") == c.text for c in chunks)


def test_a_chunk_that_is_not_too_empty_ends_before_a_heading(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    text = "# One\n" + "A sentence here. " * 8 + "\n# Two\n" + "Another one. " * 30
    path.write_text(text)
    second = text.index("# Two")
    chunks = cut(path, Rules(60), headings=[0, second])
    assert chunks[0].end == second
    assert chunks[1].text.startswith("# Two")
    late = cut(path, Rules(120), headings=[0, second])  # a third of it is too little to end
    assert late[0].end > second
    assert cut(path, Rules(60, borders="none"), headings=[0, second])[0].end != second


def test_headings_are_found_in_any_encoding(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    text = "\u7b2c\u4e00\u3002" * 20 + "\n# \u4e8c\n" + "\u7b2c\u4e8c\u3002" * 20
    path.write_text(text, encoding="gb18030")
    heading = len(text[: text.index("#")].encode("gb18030"))
    chunks = cut(path, Rules(40), encoding="gb18030", headings=[heading])
    assert heading in [chunk.start for chunk in chunks]


def test_abbreviations_end_no_sentence() -> None:
    found = borders.segments("He met Dr. Jones. Then J. Smith left.", whole=True)
    assert [segment.length for segment in found] == [18, 19]


@pytest.mark.parametrize(
    ("limit", "special", "overlap"), [(2, 2, 0), (10, 0, 5), (10, 8, 1), (0, 0, 0)]
)
def test_rules_that_leave_no_room(limit: int, special: int, overlap: int) -> None:
    with pytest.raises(UsageError):
        Rules(limit, special, overlap)
