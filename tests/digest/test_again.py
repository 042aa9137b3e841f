"""A second run does again only what changed, wherever the first one stopped."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvwise.digest.chunker import Rules
from kvwise.digest.engines import floats_to_bytes
from kvwise.digest.run import Digest, Summary
from kvwise.digest.shelf import Shelf
from kvwise.digest.sources import sources
from kvwise.digest.stations import Stations
from kvwise.errors import EngineError, UsageError

from .plain import Words


class Counting:
    """An engine for tests of the bookkeeping: the vector of a chunk is its length. It fails when it
    has done `most` chunks."""

    name = "counting"

    def __init__(self, most: int = 1 << 30) -> None:
        self.done, self.most = 0, most

    def embed(self, batch: Sequence[Sequence[int]]) -> list[bytes]:
        if self.done + len(batch) > self.most:
            raise EngineError("enough")
        self.done += len(batch)
        return [floats_to_bytes([float(len(ids)), 1.0]) for ids in batch]

    def revive(self) -> bool:
        return False

    def close(self) -> None:
        pass


def _prose(seed: int, sentences: int = 240) -> str:
    dice = random.Random(seed)
    names = ["".join(dice.choices("abcdefgh", k=dice.randint(2, 8))) for _ in range(400)]
    made = []
    for _ in range(sentences):
        words = " ".join(dice.choices(names, k=dice.randint(3, 20)))
        made.append(f"{words.capitalize()}." + dice.choice([" ", " ", " ", "\n\n"]))
    return "".join(made)


def _run(
    folder: Path, document: Path, engine: Counting, overlap: int = 0
) -> tuple[Summary, list[tuple[int, int, int]]]:
    with Shelf(folder) as shelf:
        shelf.agree({"limit": 64, "overlap": overlap})
        rules = Rules(64, overlap=overlap)
        run = Digest(shelf, folder / "text", Words(), rules, Stations([engine]))
        done = run.run(sources([str(document)], folder))
        return done, [(row.start, row.end, row.tokens) for row in shelf.chunks()]


@pytest.mark.parametrize("overlap", [0, 12])
def test_an_interrupted_run_goes_on_and_repeats_nothing(tmp_path: Path, overlap: int) -> None:
    document = tmp_path / "a.txt"
    document.write_text(_prose(1))
    _, whole = _run(tmp_path / "whole", document, Counting(), overlap)
    total = 0
    for stop in (7, 1, 13):
        engine = Counting(stop)
        with pytest.raises(EngineError):
            _run(tmp_path / "out", document, engine, overlap)
        total += engine.done
    last = Counting()
    summary, rows = _run(tmp_path / "out", document, last, overlap)
    assert rows == whole
    assert total + last.done == len(whole) == summary.embedded + summary.kept


@pytest.mark.parametrize("overlap", [0, 12])
def test_only_changed_chunks_are_embedded_again(tmp_path: Path, overlap: int) -> None:
    document = tmp_path / "a.txt"
    text = _prose(2)
    document.write_text(text)
    _, before = _run(tmp_path / "out", document, Counting(), overlap)
    middle = text.index(". ", len(text) // 2) + 2
    document.write_text(text[:middle] + "A sentence more. " + text[middle:])
    summary, after = _run(tmp_path / "out", document, Counting(), overlap)
    assert 1 <= summary.embedded <= 4
    assert summary.kept >= len(before) - 4
    assert after[-1][1] == document.stat().st_size
    document.write_text(text[:middle] + text[middle + 1500 :] + "The end.")
    summary, after = _run(tmp_path / "out", document, Counting(), overlap)
    assert summary.embedded <= 6
    assert after[-1][1] == document.stat().st_size


def test_an_unchanged_document_is_left_alone(tmp_path: Path) -> None:
    document = tmp_path / "a.txt"
    document.write_text(_prose(3))
    _run(tmp_path / "out", document, Counting())
    engine = Counting()
    summary, _ = _run(tmp_path / "out", document, engine)
    assert engine.done == summary.embedded == 0


def test_the_same_text_twice_is_embedded_once(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(_prose(4))
    engine = Counting()
    summary, rows = _run(tmp_path / "out", folder, engine)
    assert summary.chunks == len(rows)
    assert engine.done <= len(rows) // 2 + 8  # a few of the second are cut before the first is done


def test_other_settings_are_told_and_not_mixed(tmp_path: Path) -> None:
    with Shelf(tmp_path) as shelf:
        shelf.agree({"chunk tokens": 64, "pooling": "mean"})
        shelf.agree({"chunk tokens": 64, "pooling": "mean"})
        with pytest.raises(UsageError) as told:
            shelf.agree({"chunk tokens": 128, "pooling": "mean"})
        assert "tokens of a chunk 64 -> 128" in str(told.value)
        shelf.agree({"chunk tokens": 128}, fresh=True)
        assert shelf.about() == {"chunk tokens": 128}


def test_a_document_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "good.txt").write_text(_prose(5, 50))
    (folder / "bad.pdf").write_bytes(b"%PDF-1.4 and nothing else")
    summary, rows = _run(tmp_path / "out", folder, Counting())
    assert rows
    assert [name for name, _ in summary.skipped] == ["docs/bad.pdf"]
