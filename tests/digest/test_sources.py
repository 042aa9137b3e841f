"""Files, folders and names as they come."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvwise.digest.chunker import Rules
from kvwise.digest.outputs import can_write, document_json, pooled, write_chunks, write_vectors
from kvwise.digest.run import Digest, Summary
from kvwise.digest.search import text_of
from kvwise.digest.shelf import Shelf
from kvwise.digest.sources import OTHER, sources
from kvwise.digest.stations import Stations
from kvwise.errors import SourceError

from .plain import Words
from .test_again import Counting


def _digest(shelf: Shelf, words: list[str]) -> Summary:
    shelf.agree({})
    folder = shelf.path.parent
    stations = Stations([Counting()])
    run = Digest(shelf, folder / "text", Words(), Rules(64), stations)
    return run.run(sources(words, folder))


def test_a_folder_without_hidden_files_loops_and_pipes(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    (folder / ".git").mkdir(parents=True)
    (folder / "deep").mkdir()
    for name in (".git/a.txt", ".hidden.txt", "b.txt", "deep/c.md", "image.png"):
        (folder / name).write_text("Words. ")
    (folder / "deep" / "up").symlink_to(folder, target_is_directory=True)
    (folder / "loop.txt").symlink_to("loop.txt")
    os.mkfifo(folder / "pipe.txt")
    found = sources([str(folder)], tmp_path)
    assert [source.name for source in found] == ["docs/b.txt", "docs/deep/c.md"]
    for name in ("loop.txt", "pipe.txt", "nowhere.txt"):
        with pytest.raises(SourceError):
            sources([str(folder / name)], tmp_path)


def test_the_same_name_in_two_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(f"In {name}. ")
    words = [str(tmp_path / name / "a.txt") for name in ("one", "two", "one")]
    found = sources(words, tmp_path)
    assert len({source.name for source in found}) == len(found) == 2
    with Shelf(tmp_path / "out") as shelf:
        _digest(shelf, words)
        texts = {text_of(shelf, row) for row in shelf.chunks()}
    assert texts == {"In one. ", "In two. "}


@pytest.mark.parametrize("name", [b"\xff\xfe.txt", b"a\nb.txt", b"x" * 250 + b".txt", b"-.txt"])
def test_odd_file_names(tmp_path: Path, name: bytes) -> None:
    path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))  # noqa: PTH118
    path.write_text("Words here.")
    with Shelf(tmp_path / "out") as shelf:
        summary = _digest(shelf, [str(path)])
        (row,) = shelf.chunks()
        assert text_of(shelf, row) == "Words here."
        document_json(shelf, {})
    assert summary.chunks == 1
    outside = [each for each in tmp_path.iterdir() if each.name != "out"]
    assert outside == [path]


def test_nothing_in_a_document(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    with Shelf(tmp_path / "out") as shelf:
        assert _digest(shelf, [str(tmp_path / "empty.txt")]).chunks == 0
        assert pooled(shelf, "empty.txt") is None
        if can_write():
            assert write_vectors(shelf, tmp_path) == (0, 0)
            write_chunks(shelf, tmp_path)
        assert document_json(shelf, {})["documents"][0]["chunks"] == 0


def test_a_document_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("# One\n" + "Some words here. " * 9000 + "\n# Two\nEnd. ")

    class Shrinking(Counting):
        def embed(self, batch: object) -> list[bytes]:
            os.truncate(path, 500)
            return super().embed(batch)  # type: ignore[arg-type]

    with Shelf(tmp_path / "out") as shelf:
        shelf.agree({})
        folder = shelf.path.parent
        run = Digest(shelf, folder / "text", Words(), Rules(64), Stations([Shrinking()]))
        run.run(sources([str(path)], folder))
        summary = _digest(shelf, [str(path)])  # it is seen as changed, and what is there now counts
        rows = list(shelf.chunks())
    assert rows[-1].end == 500
    assert summary.chunks == len(rows)


def test_what_is_left_out_of_a_folder_is_told(tmp_path: Path) -> None:
    root = tmp_path / "docs"
    for name in ("a.md", ".b.md", "c.png", "LICENSE", ".git/d.md", "e.digest/text/f.txt",
                 "e.digest/digest.db", "g/h.txt"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("Words. ")
    (root / "loop").symlink_to(root)
    (root / "lost.txt").symlink_to(root / "nothing")
    (root / "round.txt").symlink_to(root / "round.txt")
    os.mkfifo(root / "pipe.txt")
    told: dict[str, str] = {}
    found = sources([str(root)], tmp_path / "out", lambda name, why: told.update({name: str(why)}))
    assert [each.name for each in found] == ["docs/a.md", "docs/g/h.txt"]
    assert told == {
        "docs/.b.md": "hidden", "docs/.git": "hidden", "docs/c.png": str(OTHER),
        "docs/LICENSE": str(OTHER),
        "docs/e.digest": "the folder of a digest", "docs/loop": "a link to a folder",
        "docs/lost.txt": "no ordinary file", "docs/round.txt": "no ordinary file",
        "docs/pipe.txt": "no ordinary file",
    }  # fmt: skip
    assert "name the file on the line" in str(OTHER)
    assert [each.name for each in sources([str(root / "LICENSE")], tmp_path / "out")] == ["LICENSE"]
