"""Signs of life of a process: what it printed, read, filled and computed, and how long ago."""

from __future__ import annotations

import time

from kvwise.engine.limits import Limits
from kvwise.engine.usage import Busy, process_of, usage
from kvwise.units import MIB

BUSY_SHARE = 0.05
"""A process that takes less of one core than this does nothing."""


class Vitals:
    """Sampled now and then by whoever watches it."""

    def __init__(self, pid: int) -> None:
        self.peak_rss_bytes = 0
        self._process = process_of(pid)
        self._busy = Busy()
        self._moved = (0, 0)  # resident bytes, bytes read, when it last got on
        self._last_sign = time.monotonic()

    def printed(self) -> None:
        """It wrote something."""
        self._last_sign = time.monotonic()

    def sample(self) -> None:
        """Look at it."""
        rss, moved = usage(self._process)
        self._busy.look(self._process)
        self.peak_rss_bytes = max(self.peak_rss_bytes, rss)
        if moved > self._moved[1] or rss > self._moved[0] + MIB:
            self._moved = (rss, moved)
            self._last_sign = time.monotonic()

    @property
    def silence_s(self) -> float:
        """Seconds since it printed, read from disk or filled memory."""
        return time.monotonic() - self._last_sign

    @property
    def working(self) -> bool:
        """Did it compute, fill memory or print within the last seconds?"""
        return self._busy.latest >= BUSY_SHARE or self.silence_s < Busy.WINDOW_S

    def too_silent(self, limits: Limits) -> bool:
        """Longer than it may be: one that only computes has `busy_s`."""
        allowed = limits.silence_s
        if allowed is not None and limits.busy_s is not None and self._busy.latest >= BUSY_SHARE:
            allowed = max(allowed, limits.busy_s)
        return allowed is not None and self.silence_s > allowed
