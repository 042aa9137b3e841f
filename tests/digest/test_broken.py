"""Databases that are broken, old or new, and documents with headings that are gone on with."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from kvwise.digest.engines import floats_to_bytes
from kvwise.digest.forecast import Forecast
from kvwise.digest.shelf import NAME, Shelf
from kvwise.errors import EngineError, KvwiseError

from .plain import Words, cut
from .test_again import Counting, _prose, _run


def _shelf(folder: Path) -> Path:
    with Shelf(folder) as shelf:
        shelf.agree({"a": 1})
    return folder / NAME


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"garbage " * 300)
    with pytest.raises(KvwiseError) as told:
        Shelf(tmp_path)
    assert "--out" in str(told.value.hint)


def test_a_database_with_broken_pages(tmp_path: Path) -> None:
    path = _shelf(tmp_path)
    data = bytearray(path.read_bytes())
    data[4096:] = random.Random(0).randbytes(len(data) - 4096)
    path.write_bytes(data)
    for name in ("-wal", "-shm"):
        path.with_name(NAME + name).unlink(missing_ok=True)
    with pytest.raises(KvwiseError), Shelf(tmp_path) as shelf:
        shelf.about()


def test_a_database_of_a_newer_kvwise_and_of_another_program(tmp_path: Path) -> None:
    path = _shelf(tmp_path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(KvwiseError, match="newer kvwise"):
        Shelf(tmp_path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 1")
        db.execute("PRAGMA application_id = 7")
    with pytest.raises(KvwiseError, match="another program"):
        Shelf(tmp_path)


def test_a_database_between_two_versions_is_told(tmp_path: Path) -> None:
    path = _shelf(tmp_path)
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE chunk DROP COLUMN shared")
    with pytest.raises(KvwiseError, match="another version of kvwise") as told:
        Shelf(tmp_path)
    assert "--out" in str(told.value.hint)


def test_a_database_of_an_older_kvwise_is_taken_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _shelf(tmp_path)
    more = (*(Shelf.migrations or ()), ("ALTER TABLE document ADD COLUMN more TEXT",))
    monkeypatch.setattr(Shelf, "migrations", more)
    with Shelf(tmp_path) as shelf:
        assert shelf.about() == {"a": 1}
        assert "more" in [row["name"] for row in shelf.rows("PRAGMA table_info(document)")]


def test_what_somebody_changed_in_it(tmp_path: Path) -> None:
    path = _shelf(tmp_path)
    with Shelf(tmp_path) as shelf:
        shelf.keep_unit("a", "summary", {"text": "short", "cut": False})
        like = {"text": "", "cut": False}
        assert shelf.unit("a", like) == {"text": "short", "cut": False}
        for odd in ("{", "7", "[]", '{"text": 1, "cut": false}', '{"text": "short"}', "null"):
            with shelf.transaction() as db:
                db.execute("UPDATE unit SET result = ?", (odd,))
            assert shelf.unit("a", like) is None  # it is made again
    with sqlite3.connect(path) as db:
        db.execute("UPDATE about SET value = '{'")
    with Shelf(tmp_path) as shelf, pytest.raises(KvwiseError, match="is damaged"):
        shelf.about()


def test_a_vector_that_is_gone(tmp_path: Path) -> None:
    _shelf(tmp_path)
    with Shelf(tmp_path) as shelf, pytest.raises(KeyError):
        shelf.vector("nothing")


@pytest.mark.parametrize("overlap", [0, 12])
def test_headings_are_the_same_borders_after_an_interruption(tmp_path: Path, overlap: int) -> None:
    document, dice = tmp_path / "a.md", random.Random(9)
    parts = [f"# {n}\n\n{_prose(n, dice.randint(1, 12))}\n\n" for n in range(30)]
    document.write_text("".join(parts))
    _, whole = _run(tmp_path / "whole", document, Counting(), overlap)
    for stop in (5, 9):
        with pytest.raises(EngineError):
            _run(tmp_path / "out", document, Counting(stop), overlap)
    _, rows = _run(tmp_path / "out", document, Counting(), overlap)
    assert rows == whole
    starts = {start for start, _, _ in rows}
    ahead, at = 0, 0
    for part in parts:
        ahead += at in starts
        at += len(part.encode())
    assert ahead >= 12 or overlap  # many chunks begin with a heading
    document.write_text("".join(parts[:15]) + "A new sentence. " + "".join(parts[15:]))
    summary, _ = _run(tmp_path / "out", document, Counting(), overlap)
    assert summary.embedded <= 4


def test_a_forecast_from_the_first_chunks(tmp_path: Path) -> None:
    from kvwise.digest.chunker import Rules

    path = tmp_path / "a.txt"
    path.write_text("Some words are here. " * 4000)
    chunks = cut(path, Rules(50), Words())
    size = path.stat().st_size
    ahead = Forecast.of(chunks[:16], size, size, 0)
    assert abs(ahead.chunks - len(chunks)) <= 0.05 * len(chunks)
    assert abs(ahead.tokens - sum(each.tokens for each in chunks)) <= 0.05 * ahead.tokens
    assert ahead.seconds(None) is None
    assert ahead.seconds(100) == ahead.tokens / 100
    assert Forecast.of([], 0, 0, 0).seconds(10) == 0
    half = Forecast.of(chunks[:16], size, size, ahead.chunks // 2)
    assert half.tokens <= 0.55 * ahead.tokens


def test_vectors_are_kept_as_they_are(tmp_path: Path) -> None:
    assert floats_to_bytes([1.0]) == b"\x00\x00\x80?"
