"""Host memory: containers bind, page cache does not count as taken."""

from __future__ import annotations

from pathlib import Path

import psutil

from kvwise.probe.host import _cgroup_room, host

MIB = 1024**2


def _group(folder: Path, limit: str, used: int, cache: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(limit)
    (folder / "memory.current").write_text(str(used))
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\n")


def test_this_machine_agrees_with_psutil() -> None:
    here = host()
    assert here.total_bytes == psutil.virtual_memory().total
    assert 0 < here.available_bytes <= here.total_bytes


def test_the_tightest_group_above_the_process_binds(tmp_path: Path) -> None:
    _group(tmp_path / "mount/a/b", "max", 10 * MIB, 0)
    _group(tmp_path / "mount/a", str(500 * MIB), 200 * MIB, 50 * MIB)
    _group(tmp_path / "mount", str(900 * MIB), 100 * MIB, 0)
    (tmp_path / "cgroup").write_text("0::/a/b\n")
    room = _cgroup_room(tmp_path / "cgroup", tmp_path / "mount")
    assert room == (500 * MIB, 350 * MIB)


def test_version_1_unlimited_is_no_limit(tmp_path: Path) -> None:
    folder = tmp_path / "mount/memory/x"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("9223372036854771712")
    (folder / "memory.usage_in_bytes").write_text("5")
    (tmp_path / "cgroup").write_text("5:cpuset:/\n4:memory:/x\n")
    assert _cgroup_room(tmp_path / "cgroup", tmp_path / "mount") is None


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    assert _cgroup_room(tmp_path / "nothing", tmp_path) is None
