"""Scratch folders: gone afterwards, also those of a process that was killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kvwise.engine.scratch import scratch

HOLD = """
import sys
from kvwise.engine.scratch import scratch
with scratch() as folder:
    (folder / "twin.gguf").write_bytes(b"x" * 1000)
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_folder_is_empty_at_first_and_gone_afterwards(tmp_path: Path) -> None:
    with scratch() as folder, scratch() as other:
        assert folder != other
        assert list(folder.iterdir()) == []
        (folder / "log").write_text("line")
    assert list(tmp_path.iterdir()) == []


def test_an_error_inside_removes_it_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="inside"), scratch():
        raise ValueError("inside")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_a_living_one_holds_stays(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        held = Path(process.stdout.readline().strip())
        with scratch():
            assert (held / "twin.gguf").exists()
        process.kill()
        process.wait()
        assert (held / "twin.gguf").exists()
    with scratch() as folder:
        assert not held.exists()
        assert [each.name for each in tmp_path.iterdir()] == [folder.parent.name]


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    foreign = tmp_path / "kvwise-scratch-mine"  # without a lock: it may be one that just begins
    foreign.mkdir()
    (foreign / "notes").write_text("keep")
    with scratch():
        assert (foreign / "notes").exists()
    assert (foreign / "notes").exists()
