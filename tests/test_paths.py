"""Folders: all under KVWISE_HOME when that is set, the platform's own otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvwise import paths

FOLDERS = (paths.config_dir, paths.data_dir, paths.cache_dir, paths.state_dir)


def test_one_home_for_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path))
    found = [folder() for folder in FOLDERS]
    assert [each.parent for each in found] == [tmp_path] * 4
    assert len(set(found)) == 4


def test_without_a_home_the_platform_decides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KVWISE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in FOLDERS:
        assert "kvwise" in str(folder())


def test_asking_makes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "not yet"
    monkeypatch.setenv("KVWISE_HOME", str(home))
    for folder in FOLDERS:
        folder()
    assert not home.exists()
