"""The kept log: rotated, bounded, and never in the server's way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvwise.guard.keep import Keeper, default_path, thin_out


def test_the_first_part_and_the_last_two_are_kept(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "run.log", part_bytes=100)
    for number in range(50):
        keeper.write(f"line {number:02}".encode().ljust(20, b".") + b"\n")
    keeper.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == "run.log"
    assert len(names) == 3
    assert (tmp_path / "run.log").read_bytes().startswith(b"line 00")
    newest = max(tmp_path.glob("run.log.*"), key=lambda path: int(path.suffix[1:]))
    assert b"line 49" in newest.read_bytes()
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())


def test_only_the_newest_runs_stay_with_all_their_parts(tmp_path: Path) -> None:
    for number in range(6):
        for name in (f"{number}.log", f"{number}.log.2"):
            (tmp_path / name).write_text("x")
            os.utime(tmp_path / name, (number, number))
    (tmp_path / "notes.txt").write_text("mine")
    thin_out(tmp_path, keep=2)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["4.log", "4.log.2", "5.log", "5.log.2", "notes.txt"]


def test_a_log_that_cannot_be_written_ends_the_writing_only(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)  # a folder
    keeper.write(b"x")
    keeper.note("y")
    assert keeper.failed
    keeper = Keeper(Path("/dev/full")) if Path("/dev/full").exists() else keeper
    keeper.write(b"x" * 100)
    assert keeper.failed
    keeper.close()


def test_notes_stand_on_lines_of_their_own(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "a" / "run.log")
    keeper.note("one\ntwo")
    keeper.close()
    lines = (tmp_path / "a/run.log").read_text().splitlines()
    assert [line.split()[-1] for line in lines] == ["one", "two"]
    assert all(line.startswith("# kvwise ") for line in lines)


def test_each_run_has_a_file_of_its_own() -> None:
    assert default_path().name.endswith(f"-{os.getpid()}.log")


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="this system has no /dev/null")
def test_a_device_gets_no_parts(tmp_path: Path) -> None:
    link = tmp_path / "log"
    link.symlink_to("/dev/null")
    keeper = Keeper(link, part_bytes=100)
    for _ in range(10):
        keeper.write(b"x" * 60)
    keeper.close()
    assert keeper.failed is None
    assert [each.name for each in tmp_path.iterdir()] == ["log"]
