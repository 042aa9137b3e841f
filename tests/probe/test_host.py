"""Host memory: containers bind, page cache does not count as taken."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kvwise.probe.host import (
    Limit,
    Mount,
    _mounts,
    cgroup_limits,
    commit_of,
    host,
    limits,
    memory_of,
)

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


def _tightest(membership: Path, mounts: list[Mount]) -> Limit | None:
    return min(cgroup_limits(membership, mounts), key=lambda each: each.room_bytes, default=None)


def test_the_tightest_group_above_the_process_binds(tmp_path: Path) -> None:
    _group(tmp_path / "mount/a/b", "max", 10 * MIB, 0)
    _group(tmp_path / "mount/a", str(500 * MIB), 200 * MIB, 50 * MIB)
    _group(tmp_path / "mount", str(900 * MIB), 100 * MIB, 0)
    (tmp_path / "cgroup").write_text("0::/a/b\n")
    found = _tightest(tmp_path / "cgroup", [Mount(2, "/", tmp_path / "mount")])
    assert found == Limit("cgroup memory.max", 500 * MIB, 350 * MIB)


def test_being_slowed_down_is_a_limit_too(tmp_path: Path) -> None:
    _group(tmp_path / "mount", str(900 * MIB), 100 * MIB, 0)
    (tmp_path / "mount/memory.high").write_text(str(300 * MIB))
    (tmp_path / "cgroup").write_text("0::/\n")
    found = _tightest(tmp_path / "cgroup", [Mount(2, "/", tmp_path / "mount")])
    assert found == Limit("cgroup memory.high", 300 * MIB, 200 * MIB)


def test_a_container_sees_its_own_group_at_the_top(tmp_path: Path) -> None:
    """Without a namespace of its own the path is the host's and does not exist inside."""
    _group(tmp_path / "mount", str(400 * MIB), 100 * MIB, 0)
    (tmp_path / "cgroup").write_text("0::/system.slice/docker-1234.scope\n")
    found = _tightest(tmp_path / "cgroup", [Mount(2, "/", tmp_path / "mount")])
    assert found is not None
    assert found.room_bytes == 300 * MIB


def test_a_path_outside_the_namespace(tmp_path: Path) -> None:
    _group(tmp_path / "mount", str(400 * MIB), 100 * MIB, 0)
    (tmp_path / "cgroup").write_text("0::/../../other\n")
    found = _tightest(tmp_path / "cgroup", [Mount(2, "/", tmp_path / "mount")])
    assert found is not None
    assert found.limit_bytes == 400 * MIB


def test_a_mounted_branch_begins_at_its_top(tmp_path: Path) -> None:
    _group(tmp_path / "mount/inner", str(200 * MIB), 50 * MIB, 0)
    (tmp_path / "cgroup").write_text("0::/docker/abc/inner\n")
    found = _tightest(tmp_path / "cgroup", [Mount(2, "/docker/abc", tmp_path / "mount")])
    assert found is not None
    assert found.limit_bytes == 200 * MIB


def test_version_1(tmp_path: Path) -> None:
    folder = tmp_path / "memory/x"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text(str(600 * MIB))
    (folder / "memory.usage_in_bytes").write_text(str(300 * MIB))
    (folder / "memory.stat").write_text(f"inactive_file 5\ntotal_inactive_file {100 * MIB}\n")
    (tmp_path / "cgroup").write_text("5:cpuset:/\n4:cpu,memory:/x\n0::/\n")
    found = _tightest(tmp_path / "cgroup", [Mount(1, "/", tmp_path / "memory")])
    assert found == Limit("cgroup memory.limit_in_bytes", 600 * MIB, 400 * MIB)


def test_version_1_unlimited_is_no_limit(tmp_path: Path) -> None:
    folder = tmp_path / "memory/x"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("9223372036854771712")
    (folder / "memory.usage_in_bytes").write_text("5")
    (tmp_path / "cgroup").write_text("5:cpuset:/\n4:memory:/x\n")
    assert cgroup_limits(tmp_path / "cgroup", [Mount(1, "/", tmp_path / "memory")]) == []


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    assert cgroup_limits(tmp_path / "nothing", [Mount(2, "/", tmp_path)]) == []


def test_mounts_are_read_from_the_kernels_table(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "25 30 0:23 / /proc rw,nosuid shared:14 - proc proc rw\n"
        "30 25 0:26 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "31 25 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\nbroken\n"
    )
    assert _mounts(table) == [
        Mount(1, "/box", Path("/sys/fs/cgroup/memory")),
        Mount(2, "/", Path("/sys/fs/cgroup/unified")),
    ]
    assert [mount.version for mount in _mounts(tmp_path / "none")] == [2, 1]


def test_an_address_space_limit_binds(tmp_path: Path) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "from kvwise.probe.host import host, limits\n"
        "print(host().limit_bytes, host().usable_bytes <= 2**30, limits()[-1].name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(2**30), "True", "RLIMIT_AS"]


def test_the_commit_limit_of_windows_is_read_from_its_structure() -> None:
    status = struct.pack("<2I7Q", 64, 40, 16 * MIB, 9 * MIB, 24 * MIB, 11 * MIB, 1, 1, 0)
    assert commit_of(status) == Limit("commit", 24 * MIB, 11 * MIB)


def test_limits_of_this_process_can_be_read() -> None:
    assert all(each.room_bytes <= each.limit_bytes for each in limits())


@pytest.mark.parametrize(
    ("limit", "binds"),
    [
        (b"max", False), (b"", False), (b"\n", False), (b"-1", False), (b"1e9", False),
        (b"0x10", False), (b"9" * 5000, False), (b"\xff\xfe", False), (b"12 34", False),
        ("１２".encode(), False), (b"9223372036854771712", False), (b"18446744073709551615", False),
        (b"0", True), (b" 104857600 \n", True),
    ],
)  # fmt: skip
def test_limits_that_are_none(tmp_path: Path, limit: bytes, binds: bool) -> None:
    _group(tmp_path / "mount", "max", 1, 0)
    (tmp_path / "mount/memory.max").write_bytes(limit)
    (tmp_path / "cgroup").write_text("0::/\n")
    found = cgroup_limits(tmp_path / "cgroup", [Mount(2, "/", tmp_path / "mount")])
    assert bool(found) == binds


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\x00\xff", b"inactive_file\n", b"inactive_file -7\n", b"inactive_file many\n", b"anon",
     b"inactive_file 1 2\n"],
)  # fmt: skip
def test_garbage_beside_a_limit_frees_nothing(tmp_path: Path, garbage: bytes) -> None:
    _group(tmp_path / "mount", str(400 * MIB), 100 * MIB, 0)
    (tmp_path / "mount/memory.stat").write_bytes(garbage)
    (tmp_path / "cgroup").write_bytes(b"\xff\xff\n0::/\n::\n5\n")
    found = _tightest(tmp_path / "cgroup", [Mount(2, "/", tmp_path / "mount")])
    assert found == Limit("cgroup memory.max", 400 * MIB, 300 * MIB)


def test_more_used_than_allowed_leaves_nothing(tmp_path: Path) -> None:
    _group(tmp_path / "mount", str(100 * MIB), 300 * MIB, 900 * MIB)
    (tmp_path / "cgroup").write_text("0::/\n")
    found = _tightest(tmp_path / "cgroup", [Mount(2, "/", tmp_path / "mount")])
    assert found == Limit("cgroup memory.max", 100 * MIB, 100 * MIB)  # all of it is page cache
    (tmp_path / "mount/memory.stat").write_text("inactive_file 0\n")
    found = _tightest(tmp_path / "cgroup", [Mount(2, "/", tmp_path / "mount")])
    assert found == Limit("cgroup memory.max", 100 * MIB, 0)


def test_a_mount_with_a_space_in_its_path(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(r"30 25 0:26 / /a\040b\134c rw - cgroup2 x rw" + "\n")
    assert _mounts(tmp_path / "mountinfo") == [Mount(2, "/", Path("/a b\\c"))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("MemTotal: 10 kB\nMemAvailable: 4 kB", (10 * 1024, 4 * 1024)),
        ("MemTotal: 10 kB\nMemAvailable: 40 kB", (10 * 1024, 10 * 1024)),  # some containers
        ("MemTotal: 10 kB", None), ("MemTotal:\nMemAvailable: 4 kB", None), ("", None),
        ("MemTotal: 0 kB\nMemAvailable: 0 kB", None), ("MemTotal: a\nMemAvailable: b", None),
        ("MemTotal: 10 kB\nMemAvailable: -4 kB", None),
    ],
)  # fmt: skip
def test_the_kernels_own_figures(text: str, found: tuple[int, int] | None) -> None:
    assert memory_of(text.splitlines()) == found
