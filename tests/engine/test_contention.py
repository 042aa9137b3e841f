"""Other work is told from the measured program's own, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil

from kvwise.engine.contention import CONTENDED, THROTTLED, Load, Watch

SPIN = "import time\nend = time.monotonic() + {s}\nwhile time.monotonic() < end: pass"


def spin(seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SPIN.format(s=seconds)])


def test_a_stranger_counts_and_the_watched_process_does_not() -> None:
    """How much the two get depends on what else runs: their own clocks say how much it was."""
    mine, strange = spin(120), spin(120)
    used = [psutil.Process(each.pid) for each in (mine, strange)]
    try:
        both, one = Watch(mine.pid), Watch()
        began, before = time.monotonic(), [sum(each.cpu_times()[:2]) for each in used]
        while min(sum(e.cpu_times()[:2]) - b for e, b in zip(used, before, strict=True)) < 0.5:
            time.sleep(0.05)
        watched, unwatched = both.stop(), one.stop()
        took = [sum(e.cpu_times()[:2]) - b for e, b in zip(used, before, strict=True)]
        seconds = time.monotonic() - began
    finally:
        for each in (mine, strange):
            each.kill()
            each.wait()
    own, other = (each / seconds for each in took)  # cores
    assert watched.others > other / 2
    assert unwatched.others - watched.others > own / 2  # what the watched one took
    assert watched.cores == os.cpu_count()


def test_flags() -> None:
    assert Load(2.0, 1.9, 2, None).flags(2) == (CONTENDED,)
    assert Load(2.0, 0.1, 2, False).flags(2) == ()
    assert Load(2.0, 1.0, 8, False).flags(4) == ()  # there are cores left
    assert Load(0.05, 2.0, 2, True).flags(2) == (THROTTLED,)  # too short to say who took what
