"""Files of others: read as they are, replaced at once, never lost."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kvwise.errors import SourceError
from kvwise.export import files


def test_a_change_leaves_numbered_backups(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.yaml"
    assert files.write(path, b"1") is None
    assert files.write(path, b"2") == path.with_name("a.yaml.bak")
    assert files.write(path, b"3") == path.with_name("a.yaml.bak2")
    assert [each.read_bytes() for each in sorted(path.parent.iterdir())] == [b"3", b"1", b"2"]


def test_mode_and_link_stay(tmp_path: Path) -> None:
    real = tmp_path / "real.sh"
    real.write_text("old")
    real.chmod(0o750)
    link = tmp_path / "link.sh"
    link.symlink_to(real)
    files.write(link, b"new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o750


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SourceError, match="No space left"):
        files.write(path, b"new")
    assert path.read_text() == "old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "a.bak"]


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for path, text in ((tmp_path, "is a folder"), (tmp_path / "latin", "is not UTF-8")):
        with pytest.raises(SourceError, match=text):
            files.read(path)
    assert files.read(tmp_path / "none") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_a_device_or_a_pipe_is_never_replaced(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(SourceError, match="no ordinary file"):
            files.check(path)
        with pytest.raises(SourceError, match="no ordinary file"):
            files.write(path, b"new")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "pipe"]


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_a_device_without_end_is_not_read_for_ever() -> None:
    with pytest.raises(SourceError, match="too large"):
        files.read(Path("/dev/zero"))


def test_line_ends_are_those_of_most_lines() -> None:
    for content, ends in ((b"a\r\nb\r\nc\n", "\r\n"), (b"a\nb\r\nc\n", "\n"), (b"a", "\n")):
        assert files.decode(content, "a").newline == ends


@hypothesis_settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\ufeff")),
       bom=st.booleans(), windows=st.booleans())  # fmt: skip
def test_marks_and_line_ends_stay(text: str, bom: bool, windows: bool) -> None:
    content = ("\ufeff" if bom else "") + (text.replace("\n", "\r\n") if windows else text)
    old = files.decode(content.encode(), "f")
    assert old.text == text
    assert files.encode(text, old) == content.encode()


def test_utf16_of_windows_tools_is_read() -> None:
    assert files.decode("a: ü\r\n".encode("utf-16"), "f").text == "a: ü\n"
