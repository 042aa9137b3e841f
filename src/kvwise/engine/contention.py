"""What else ran while something was measured: processor time that was not the engine's.

A load average says too late and too little: the engine's own threads are in it. Here the busy time
of the whole machine is counted while the measurement runs, and what the engine and kvwise took is
subtracted. With as many busy threads as cores the engine's barriers spin and generation was
measured 50 times slower, so a measurement beside other work says nothing about the settings.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

CONTENDED, THROTTLED = "contended", "throttled"
"""Flags of a sample."""

_SPARE = 0.35
"""Cores that others may take before the engine's threads feel it: a desktop at rest takes less."""
_SHORT_S = 0.25
"""Clock ticks are 10 ms: a shorter measurement cannot tell who took what."""
_THROTTLE = "/sys/devices/system/cpu"


@dataclass(frozen=True, slots=True)
class Load:
    """`others` = cores that other programs kept busy, on average over `seconds`; `throttled` = the
    processor slowed itself down meanwhile (None = the system does not say)."""

    seconds: float
    others: float
    cores: int
    throttled: bool | None

    def flags(self, threads: int) -> tuple[str, ...]:
        """What makes a measurement with so many threads doubtful; empty = nothing seen."""
        found = []
        if self.seconds >= _SHORT_S and self.others > max(0, self.cores - threads) + _SPARE:
            found.append(CONTENDED)
        if self.throttled:
            found.append(THROTTLED)
        return tuple(found)


class Watch:
    """Counts from when it is made until `stop`; `pid` is the engine's process, if there is one."""

    def __init__(self, pid: int | None = None) -> None:
        self._pids = [os.getpid(), *([] if pid is None else [pid])]
        self._began, self._busy = time.monotonic(), _busy()
        self._own = {each: _taken(each) for each in self._pids}
        self._throttles = _throttles()

    def stop(self) -> Load:
        """The load since the start; the processes watched must still be there to be subtracted."""
        seconds = max(time.monotonic() - self._began, 1e-6)
        own = sum(max(0.0, _taken(each) - self._own[each]) for each in self._pids)
        others = max(0.0, _busy() - self._busy - own) / seconds
        now = _throttles()
        throttled = None if now is None or self._throttles is None else now > self._throttles
        return Load(seconds, others, os.cpu_count() or 1, throttled)


def _busy() -> float:
    """Seconds that all cores together were not idle, other machines of the same host included."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # in user already
    return float(sum(times) - idle - guests)


def _taken(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _throttles() -> int | None:
    """How often the processor was slowed down for its heat; None where Linux does not count it."""
    found = list(Path(_THROTTLE).glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
    try:
        return sum(int(each.read_text("ascii")) for each in found) if found else None
    except (OSError, ValueError):
        return None
