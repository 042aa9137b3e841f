"""Who else computed: real processes, and figures of sources that say something odd."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

from kvwise.engine.watch import CONTENDED, THROTTLED, Share, Sources, Watch

SPIN = "import time\nend = time.monotonic() + {s}\nwhile time.monotonic() < end: pass"


def spin(seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", SPIN.format(s=seconds)])


def test_a_stranger_counts_and_the_engine_does_not() -> None:
    def others(follow: bool) -> float:
        child = spin(3)
        try:
            with Watch() as watch:
                watch.follow(child.pid if follow else None)
                began = time.monotonic()
                time.sleep(1.2)
                return watch.between(began, time.monotonic()).others
        finally:
            child.kill()
            child.wait()

    strange, mine = others(follow=False), others(follow=True)
    assert strange > 0.1
    assert mine < strange + 0.8  # whatever else runs on this machine


def made(steal: float, throttles: int, mhz: tuple[float, float] = (0.0, 0.0)) -> Sources:
    """A machine that a hypervisor takes `steal` cores from."""
    begun = time.monotonic()

    def cpu() -> SimpleNamespace:
        spent = time.monotonic() - begun
        return SimpleNamespace(user=spent, system=0.0, steal=steal * spent)

    looks = iter(range(10**6))
    return Sources(
        cpu=cpu,
        mine=lambda: SimpleNamespace(user=time.monotonic() - begun, system=0.0),
        limited=lambda: 0.0,
        throttles=lambda: throttles * next(looks),
        hot=lambda: False,
        mhz=lambda: mhz[time.monotonic() - begun > 0.1],
    )


def seen(sources: Sources) -> Share:
    with Watch(sources) as watch:
        time.sleep(0.2)
        began = time.monotonic()
        time.sleep(0.6)
        return watch.between(began, time.monotonic())


def test_what_a_hypervisor_takes_is_contention_even_with_cores_left() -> None:
    share = seen(made(steal=0.5, throttles=0))
    assert 0.3 < share.stolen < 0.7
    assert share.others < 0.1
    assert share.flags(free_cores=3) == (CONTENDED,)


def test_heat_is_noticed() -> None:
    assert seen(made(steal=0.0, throttles=1)).flags(0) == (THROTTLED,)
    assert seen(made(steal=0.0, throttles=0)).flags(0) == ()


def test_a_processor_that_slows_down_is_noticed() -> None:
    assert seen(made(0.0, 0, mhz=(4000.0, 2100.0))).throttled
    assert not seen(made(0.0, 0, mhz=(4000.0, 3800.0))).throttled
    assert not seen(made(0.0, 0, mhz=(800.0, 4000.0))).throttled  # it woke up


def test_others_may_use_what_the_engine_leaves() -> None:
    assert Share(others=1.1).flags(free_cores=1) == ()
    assert Share(others=1.3).flags(free_cores=1) == (CONTENDED,)
