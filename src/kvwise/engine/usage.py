"""What a process takes: resident bytes, bytes read, its share of a core, and its lines."""

from __future__ import annotations

import contextlib
import time

import psutil


def process_of(pid: int) -> psutil.Process | None:
    """The process with that number; None when it is gone."""
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def usage(process: psutil.Process | None) -> tuple[int, int]:
    """Resident bytes, and bytes it has read from disk so far."""
    if process is None:
        return 0, 0
    try:
        rss = int(process.memory_info().rss)
        counters = process.io_counters() if hasattr(process, "io_counters") else None
    except psutil.Error:
        return 0, 0
    return rss, int(counters.read_bytes) if counters else 0


class Busy:
    """How much of one core a process takes: `latest` is its share in the last whole window."""

    WINDOW_S = 2.0

    def __init__(self) -> None:
        self._at, self._spent = time.monotonic(), 0.0
        self.latest = 1.0  # a process that has just started is busy

    def look(self, process: psutil.Process | None) -> None:
        """Take a sample, when a window is over; 0 when nobody can tell."""
        now = time.monotonic()
        if now - self._at < self.WINDOW_S:
            return
        spent = self._spent
        if process is not None:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                spent = times.user + times.system
        self.latest = (spent - self._spent) / (now - self._at)
        self._at, self._spent = now, spent


class Lines:
    """Bytes in any pieces -> whole lines of text."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: 1 << 20]
        return [line.decode("utf-8", "replace").rstrip("\r") for line in whole]

    def close(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return [rest.decode("utf-8", "replace")] if rest else []
