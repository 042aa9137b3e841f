"""Signals that kvwise is given go on to the engine; the second one ends it at once."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from kvwise.engine.process import Child

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
TERM_AFTER_S, KILL_AFTER_S = 10.0, 20.0


class Signals:
    """`asked` is the first signal that came, None as long as none did."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self._since = 0.0
        self._times = 0
        self._pressed = False
        self._child: Child | None = None

    def watch(self, child: Child | None) -> None:
        """Signals are for this child from now on; one that came before it is passed on now."""
        self._child = child
        if child is not None and self.asked is not None:
            child.pass_on(self.asked)

    def press(self) -> None:
        """Insist when a child that was asked to end does not: SIGTERM, then SIGKILL."""
        child, waited = self._child, time.monotonic() - self._since
        if child is None or self.asked is None:
            return
        if waited > KILL_AFTER_S:
            child.kill()
        elif waited > TERM_AFTER_S and not self._pressed:
            self._pressed = True
            child.pass_on(signal.SIGTERM)

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Take the signals over, as llama-server does; a hang-up that was ignored when we started
        (nohup) stays ignored."""
        before: dict[int, Any] = {}
        for name in _NAMES:
            number = getattr(signal, name, None)
            ignored = name == "SIGHUP" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            if number is not None and not ignored:
                before[number] = signal.signal(number, self._take)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self._times += 1
        if self.asked is None:
            self.asked, self._since = number, time.monotonic()
        if self._child is None:
            return
        if self._times > 1:
            self._child.kill()
        else:
            self._child.pass_on(number)
