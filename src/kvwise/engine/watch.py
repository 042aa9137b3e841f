"""Who else computed while a sample was taken.

A measurement on a machine that does something else measures that, too: with two threads on two
cores that others used, generation was measured fifty times slower. A thread keeps a line of time:
what all processors did, what the engine and we ourselves did of it, what a hypervisor or a limit
took away, and whether a processor or a GPU throttled. Samples are judged by their stretch of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

CONTENDED, THROTTLED = "contended", "throttled"
"""Flags of a sample."""

TICK_S = 0.1
SHORTEST_S = 0.5
"""Processor times are counted in hundredths of a second: a shorter stretch says little."""
ALLOWED_CORES = 0.2
"""What others may take of the cores that the engine needs: a quiet desktop takes less."""
_THERMAL = "/sys/devices/system/cpu"
_CGROUPS = ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat")
_SLOWED = 0.8
"""The fastest core runs below this share of what it was seen to run at: heat or a power limit."""
_FREQUENCIES = "/sys/devices/system/cpu"
_HOT = 0x8 | 0x20 | 0x40 | 0x80
"""nvml.h: hardware slowdown, thermal slowdown by software and hardware, power brake."""


@dataclass(frozen=True, slots=True)
class Share:
    """A stretch of time. `others` and `stolen` are cores (1.0 = one core all the time) that other
    processes kept busy and that a hypervisor or a limit took; `load` is the load average at its
    end, None where the system has none."""

    others: float = 0.0
    stolen: float = 0.0
    throttled: bool = False
    load: float | None = None

    def flags(self, free_cores: int) -> tuple[str, ...]:
        """Why a sample of this stretch is not to be trusted; `free_cores` the engine leaves."""
        taken = max(0.0, self.others - free_cores) + self.stolen
        found = [CONTENDED] if taken > ALLOWED_CORES else []
        return (*found, THROTTLED) if self.throttled else tuple(found)


@dataclass(frozen=True, slots=True)
class _Look:
    """Seconds since the start of the system, all but `at` and `hot`."""

    at: float
    busy: float
    stolen: float
    mine: float
    engine: float
    limited: float
    throttles: int
    hot: bool
    mhz: float


@dataclass(slots=True)
class Sources:
    """Where the figures come from; tests put their own in."""

    cpu: Callable[[], Any] = psutil.cpu_times
    mine: Callable[[], Any] = field(default_factory=lambda: psutil.Process().cpu_times)
    limited: Callable[[], float] = field(default_factory=lambda: _limited)
    throttles: Callable[[], int] = field(default_factory=lambda: _throttles)
    hot: Callable[[], bool] = field(default_factory=lambda: _Hot().__call__)
    mhz: Callable[[], float] = field(default_factory=lambda: _Clock().__call__)


class Watch:
    """Use as a context manager around everything that is measured; `follow` tells the engine's
    process, once it is there."""

    def __init__(self, sources: Sources | None = None) -> None:
        self._from = sources or Sources()
        self._engine: psutil.Process | None = None
        self._spent = 0.0
        self._looks: list[_Look] = []
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="kvwise-watch-load", daemon=True)

    def follow(self, pid: int | None) -> None:
        """The engine is process `pid` from now on; None = it has ended."""
        with self._lock:
            self._spent += _spent(self._engine)
            self._engine = None
            if pid is not None:
                with contextlib.suppress(psutil.Error):
                    self._engine = psutil.Process(pid)

    @property
    def watching(self) -> bool:
        """Has it been entered?"""
        return bool(self._looks)

    def between(self, start: float, end: float) -> Share:
        """What happened from `start` to `end` (of time.monotonic)."""
        self._look()
        missing = SHORTEST_S - (end - start)
        if missing > 0:
            start, end = start - missing / 2, end + missing / 2
        with self._lock:
            before = [look for look in self._looks if look.at <= start] or self._looks[:1]
            after = [look for look in self._looks if look.at >= end] or self._looks[-1:]
            during = [look for look in self._looks if start <= look.at <= end] or after[:1]
            slowed = max(look.mhz for look in during) < _SLOWED * max(
                look.mhz for look in self._looks
            )
        hot = slowed or any(look.hot for look in during)
        return _share(before[-1], after[0], hot=hot)

    def _run(self) -> None:
        while not self._over.wait(TICK_S):
            self._look()

    def _look(self) -> None:
        source = self._from
        cpu = source.cpu()
        with self._lock:
            engine = _spent(self._engine)
            look = _Look(
                at=time.monotonic(),
                busy=_busy(cpu),
                stolen=float(getattr(cpu, "steal", 0.0)),
                mine=_total(source.mine()),
                engine=max(self._spent + engine, self._looks[-1].engine if self._looks else 0.0),
                limited=source.limited(),
                throttles=source.throttles(),
                hot=source.hot(),
                mhz=source.mhz(),
            )
            self._looks.append(look)
            del self._looks[:-20_000]

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()


def _share(first: _Look, last: _Look, *, hot: bool) -> Share:
    seconds = max(last.at - first.at, 1e-3)
    ours = last.engine - first.engine + last.mine - first.mine
    others = max(0.0, last.busy - first.busy - ours) / seconds
    stolen = (last.stolen - first.stolen + last.limited - first.limited) / seconds
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return Share(others, max(0.0, stolen), last.throttles > first.throttles or hot, load)


def _busy(cpu: Any) -> float:
    """Seconds that processes of this system ran; waiting and stolen time are not theirs."""
    names = ("user", "nice", "system", "irq", "softirq", "interrupt", "dpc")
    return float(sum(getattr(cpu, name, 0.0) for name in names))


def _total(times: Any) -> float:
    return float(times.user + times.system)


def _spent(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    try:
        return _total(process.cpu_times())
    except psutil.Error:
        return 0.0


def _limited() -> float:
    """Seconds for which a group's limit kept its processes from running (cgroup)."""
    for path in _CGROUPS:
        with contextlib.suppress(OSError, ValueError):
            for line in Path(path).read_text("ascii").splitlines():
                name, _, value = line.partition(" ")
                if name == "throttled_usec":
                    return int(value) / 1e6
                if name == "throttled_time":
                    return int(value) / 1e9
    return 0.0


def _throttles() -> int:
    """How often processors have become too hot (Intel on Linux; elsewhere nobody tells)."""
    found = 0
    for path in Path(_THERMAL).glob("cpu*/thermal_throttle/*_throttle_count"):
        with contextlib.suppress(OSError, ValueError):
            found += int(path.read_text("ascii"))
    return found


class _Clock:
    """MHz of the fastest core, asked twice a second; 0 where Linux does not tell."""

    def __init__(self) -> None:
        self._next, self._last = 0.0, 0.0
        self._files = list(Path(_FREQUENCIES).glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))

    def __call__(self) -> float:
        now = time.monotonic()
        if self._files and now >= self._next:
            found = [0.0]
            for path in self._files:
                with contextlib.suppress(OSError, ValueError):
                    found.append(int(path.read_text("ascii")) / 1000)
            self._next, self._last = now + 0.5, max(found)
        return self._last


class _Hot:
    """Does an NVIDIA card throttle now? Asked twice a second; False where nobody tells."""

    def __init__(self) -> None:
        self._next, self._last = 0.0, False
        self._cards: list[Any] = []
        self._library: Any = None
        if Path("/dev/nvidiactl").exists() or os.name == "nt":
            self._open()

    def _open(self) -> None:
        try:
            name = "nvml.dll" if os.name == "nt" else "libnvidia-ml.so.1"
            library = ctypes.CDLL(name)
            count = ctypes.c_uint()
            if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
                return
            for number in range(count.value):
                handle = ctypes.c_void_p()
                if not library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
                    self._cards.append(handle)
            self._library = library
        except (OSError, AttributeError):
            self._cards = []

    def __call__(self) -> bool:
        now = time.monotonic()
        if self._cards and now >= self._next:
            self._next, self._last = now + 0.5, any(self._reasons(card) for card in self._cards)
        return self._last

    def _reasons(self, card: Any) -> int:
        found = ctypes.c_ulonglong()
        code = self._library.nvmlDeviceGetCurrentClocksThrottleReasons(card, ctypes.byref(found))
        return 0 if code else found.value & _HOT
