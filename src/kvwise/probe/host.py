"""The machine's own memory: what is there, what is available, and the limit that binds.

The engine reports total memory as free and does not see cgroup limits, so a container is
killed after a "successful fit" (engine-facts.md 0.6): both are read here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kvwise.device import Host
from kvwise.units import KIB

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # cgroup v1 writes a huge number for "no limit"


def host() -> Host:
    """Total and available bytes of this machine; `limit_bytes` if a container or RLIMIT_AS binds.

    `available_bytes` already respects the limit.
    """
    total, available = _linux_memory() or _any_system_memory()
    limits = [room for room in (_cgroup_room(_CGROUP, _MOUNT), _address_space_room()) if room]
    if not limits:
        return Host(total, available)
    limit, room = min(limits, key=lambda each: each[1])
    return Host(total, min(available, room), min(limit, total))


def _linux_memory() -> tuple[int, int] | None:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    values = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    try:
        total, available = (int(values[name][0]) * KIB for name in ("MemTotal", "MemAvailable"))
    except (KeyError, ValueError, IndexError):
        return None
    return total, available


def _any_system_memory() -> tuple[int, int]:
    import psutil  # noqa: PLC0415  (not needed on Linux, where a size should start fast)

    memory = psutil.virtual_memory()
    return memory.total, memory.available


def _cgroup_room(membership: Path, mount: Path) -> tuple[int, int] | None:
    """(limit, what is left of it) of the tightest memory cgroup above this process."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    rooms = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            rooms += _rooms(mount, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            rooms += _rooms(mount / "memory", path, *names)
    return min(rooms, key=lambda each: each[1], default=None)


def _rooms(root: Path, path: str, limit: str, used: str, cache: str) -> list[tuple[int, int]]:
    """One (limit, room) for each ancestor that has a limit; page cache can be taken back."""
    folder = root / path.lstrip("/")
    rooms = []
    for each in (folder, *folder.parents):
        most = _number(each / limit)
        if most is not None and most < _UNLIMITED:
            taken = (_number(each / used) or 0) - _statistic(each / "memory.stat", cache)
            rooms.append((most, max(0, most - max(0, taken))))
        if each == root:
            break
    return rooms


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # absent, or "max"
        return None


def _statistic(path: Path, name: str) -> int:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name + " ")), 0)


def _address_space_room() -> tuple[int, int] | None:
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415  (not on Windows)

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else (soft, soft)
