"""The machine's own memory: what is there, what is available, and the limit that binds.

The engine reports total memory as free and does not see cgroup limits, so a container is
killed after a "successful fit" (engine-facts.md 0.6): both are read here.
"""

from __future__ import annotations

import ctypes
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kvwise.device import Host
from kvwise.probe.cores import cores
from kvwise.units import KIB

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/self/mountinfo")
_MOUNT = Path("/sys/fs/cgroup")
_DIGITS = re.compile(r"[0-9]{1,20}")
_UNLIMITED = 1 << 60  # cgroup v1 writes a huge number for "no limit"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on this process or those around it: its bytes, and what is left of them."""

    name: str
    limit_bytes: int
    room_bytes: int


def host() -> Host:
    """Total and available bytes of this machine; `limit_bytes` if a limit binds.

    `available_bytes` already respects the tightest limit.
    """
    total, available = _linux_memory() or _any_system_memory()
    tightest = min(limits(), key=lambda each: each.room_bytes, default=None)
    if tightest is None:
        return Host(total, available, cores=cores())
    room, limit = min(available, tightest.room_bytes), min(tightest.limit_bytes, total)
    counts = tightest.name == "RLIMIT_AS"
    return Host(total, room, limit, cores=cores(), counts_mapped=counts)


def limits() -> list[Limit]:
    """Every limit on memory that binds a process started here: cgroups, rlimits, commit."""
    return [*cgroup_limits(_CGROUP, _mounts(_MOUNTS)), *process_limits(), *_commit_limit()]


def _linux_memory() -> tuple[int, int] | None:
    return memory_of(_lines(_MEMINFO))


def memory_of(lines: Sequence[str]) -> tuple[int, int] | None:
    """(total, available) bytes out of /proc/meminfo, None if it does not say both."""
    values = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    try:
        total, available = (int(values[name][0]) * KIB for name in ("MemTotal", "MemAvailable"))
    except (KeyError, ValueError, IndexError):
        return None
    return (total, min(total, available)) if available >= 0 < total else None


def _lines(path: Path) -> list[str]:
    """A file of the kernel's, none if it cannot be read; what is no text does not stop us."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _any_system_memory() -> tuple[int, int]:
    import psutil  # noqa: PLC0415  (not needed on Linux, where a size should start fast)

    memory = psutil.virtual_memory()
    return memory.total, memory.available


# -- control groups ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a hierarchy of groups is seen: its version, the group at its top, the folder."""

    version: int
    top: str
    folder: Path


_FILES = {  # limit files, usage, page cache that can be taken back
    1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
    2: (("memory.max", "memory.high"), "memory.current", "inactive_file"),
}


def _mounts(table: Path) -> list[Mount]:
    """The hierarchies that count memory (proc_pid_mountinfo(5)); the usual places without it."""
    found = []
    for line in _lines(table):
        before, _, after = line.partition(" - ")
        head, tail = before.split(), after.split()
        if len(head) < 5 or len(tail) < 3:
            continue
        if tail[0] == "cgroup2":
            found.append(Mount(2, _plain(head[3]), Path(_plain(head[4]))))
        elif tail[0] == "cgroup" and "memory" in tail[2].split(","):
            found.append(Mount(1, _plain(head[3]), Path(_plain(head[4]))))
    return found or [Mount(2, "/", _MOUNT), Mount(1, "/", _MOUNT / "memory")]


def _plain(text: str) -> str:
    """A path of the table: a space, a tab, a line end and a backslash are octal there."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def cgroup_limits(membership: Path, mounts: list[Mount]) -> list[Limit]:
    """The limits of the memory cgroups around a process (`membership` is its /proc/PID/cgroup).

    Every group up to the top binds; in a container the own path may not be visible, and then the
    top of the mount is the container's.
    """
    found: list[Limit] = []
    for line in _lines(membership):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        version = 2 if not controllers else 1 if "memory" in controllers.split(",") else 0
        for mount in mounts:
            if mount.version == version:
                found += _group_limits(mount, path)
    return found


def _group_limits(mount: Mount, path: str) -> Iterator[Limit]:
    files, used, cache = _FILES[mount.version]
    for folder in _groups(mount, path):
        for name in files:
            most = _number(folder / name)
            if most is not None and most < _UNLIMITED:
                taken = (_number(folder / used) or 0) - _statistic(folder / "memory.stat", cache)
                yield Limit(f"cgroup {name}", most, max(0, most - max(0, taken)))


def _groups(mount: Mount, path: str) -> list[Path]:
    """Folders from the process's own group up to the top that is mounted."""
    own = PurePosixPath(path)
    if mount.top != "/" and own.is_relative_to(mount.top):
        own = "/" / own.relative_to(mount.top)
    parts = [part for part in own.parts if part not in ("/", "..")]
    return [mount.folder.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _number(path: Path) -> int | None:
    """Bytes; None for a file that is absent or says no number of them ("max")."""
    return _bytes("".join(_lines(path)))


def _bytes(text: str) -> int | None:
    return int(text) if _DIGITS.fullmatch(text.strip()) else None


def _statistic(path: Path, name: str) -> int:
    rows = (line.split() for line in _lines(path))
    return next((_bytes(row[1]) or 0 for row in rows if len(row) == 2 and row[0] == name), 0)


# -- one process -------------------------------------------------------------------


def process_limits() -> Iterator[Limit]:
    """Limits that a child of ours inherits; what is left of them is all, for a new process."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415  (not on Windows)

        for name in ("RLIMIT_AS", "RLIMIT_DATA"):  # the kernel enforces no RLIMIT_RSS
            soft, _ = resource.getrlimit(getattr(resource, name))
            if soft != resource.RLIM_INFINITY:
                yield Limit(name, soft, soft)


def _commit_limit() -> list[Limit]:
    """Windows grants no more than RAM and page file together; GPU memory counts there as well."""
    if sys.platform == "win32":
        raw = ctypes.create_string_buffer(struct.pack("<I", 64), 64)
        if ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(raw):
            return [commit_of(raw.raw)]
    return []


def commit_of(status: bytes) -> Limit:
    """The commit limit in a MEMORYSTATUSEX."""
    most, left = struct.unpack_from("<2Q", status, 24)
    return Limit("commit", most, left)
