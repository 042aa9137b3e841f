"""One child process, kept in hand: started, heard, watched, ended, never left behind.

A child gets its own session (Ctrl-C in the terminal is ours to handle), dies with kvwise, is the
first to go when memory runs out, and never sees LLAMA_ARG_* of the user's shell. Its stderr is the
engine's log: it is kept in a file, read into events as it comes, and its silence is noticed.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kvwise.engine import events as ev
from kvwise.engine.kept_log import KeptLog
from kvwise.engine.limits import Limits, clean_environment
from kvwise.engine.loaded import Collector, Loaded
from kvwise.engine.log import Reader
from kvwise.engine.outcome import Ending, Outcome, ending_of
from kvwise.engine.spawned import KILL, Spawned
from kvwise.engine.usage import Lines
from kvwise.engine.vitals import Vitals

__all__ = ["Child", "Limits", "clean_environment"]

TICK_S = 0.05
IDLE_TICK_S = 0.2
TAIL_LINES = 200
GRACE_S = 5.0
_MOST_FAILURES = 100  # kept of a child that runs on
_MOST_ANSWERS = 1000  # lines of stdout kept for whoever asks


class Child:
    """A running process. `loaded` is what its log said so far, `outcome` how it ended."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        log: Path | None = None,
        limits: Limits | None = None,
        environment: Mapping[str, str] | None = None,
        on_record: Callable[[ev.Record], None] | None = None,
        on_output: Callable[[int, bytes], None] | None = None,
        ends_with_stdin: bool = False,
    ) -> None:
        """`on_output` hears every piece of its stdout (1) and stderr (2), from two threads."""
        self.argv = tuple(argv)
        self.log = log
        self.limits = limits or Limits()
        self.answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()  # lines of its stdout
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.outcome: Outcome | None = None
        self._on_record = on_record
        self._on_output = on_output
        self._ends_with_stdin = ends_with_stdin
        self._collector = Collector()
        self._changed = threading.Condition()
        self._verdict: tuple[Ending, dict[str, object]] | None = None
        self._ready, self._keep = False, True
        self._started = time.monotonic()
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        self._process = Spawned(argv, self.limits, clean_environment(environment))
        self._vitals = Vitals(self._process.pid)
        self._readers = [
            threading.Thread(target=self._hear, name="kvwise-log", daemon=True),
            threading.Thread(target=self._listen, name="kvwise-answers", daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        threading.Thread(target=self._watch, name="kvwise-watch", daemon=True).start()

    # -- what others ask ----------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def loaded(self) -> Loaded:
        """What its log says so far."""
        return self._collector.loaded

    @property
    def alive(self) -> bool:
        return self.outcome is None

    @property
    def working(self) -> bool:
        """Did it compute, fill memory or print within the last seconds?"""
        return self._vitals.working

    @property
    def peak_rss_bytes(self) -> int:
        """The most memory that it held."""
        return self._vitals.peak_rss_bytes

    def mark_ready(self, *, keep: bool = True) -> None:
        """It serves now: an exit is no refusal any more, and silence is normal.

        Without `keep`, `loaded` takes in only failures from now on, and not without end: for a
        child that may run for months.
        """
        self._ready, self._keep = True, keep

    def wait_until(self, test: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until `test()` holds (checked at each log line), it ended, or time is up."""
        with self._changed:
            self._changed.wait_for(lambda: test() or not self.alive, timeout_s)
            return test()

    def wait(self, timeout_s: float | None = None) -> Outcome | None:
        """Wait for its end."""
        self.wait_until(lambda: not self.alive, timeout_s)
        return self.outcome

    def pass_on(self, number: int) -> None:
        """Give it a signal that we were given; one that ends with its stdin gets that instead,
        once it is ready (before that it may not read)."""
        if self._ends_with_stdin and self._ready and number != KILL:
            self.close_input()
        else:
            self._process.signal(number)

    def close_input(self) -> None:
        """Close its stdin."""
        self._process.close_input()

    def stop(self, grace_s: float = GRACE_S) -> Outcome:
        """Ask it to end (stdin closed, then SIGTERM), then insist. Returns how it ended."""
        self._end(Ending.STOPPED)
        self.close_input()
        if not (self._ends_with_stdin and self.wait(grace_s)):
            self._process.signal(signal.SIGTERM)
        if not self.wait(grace_s):
            self.kill()
        outcome = self.wait()
        assert outcome is not None  # noqa: S101 (wait without a time limit)
        return outcome

    def kill(self, ending: Ending = Ending.STOPPED, **facts: object) -> None:
        """End it and everything it started, at once."""
        self._end(ending, **facts)
        self._process.signal(KILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()
            self.wait(GRACE_S)

    # -- threads ------------------------------------------------------------------------------

    def _hear(self) -> None:
        """stderr -> log file, tail and events."""
        reader, split = Reader(), Lines()
        stream = self._process.stderr
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(KeptLog(self.log)) if self.log else None
            while data := os.read(stream.fileno(), 1 << 16):
                if file:
                    file.write(data)
                if self._on_output:
                    self._on_output(2, data)
                self._take(split.feed(data), reader.feed(data))
            self._take(split.close(), reader.close())

    def _take(self, lines: list[str], records: list[ev.Record]) -> None:
        with self._changed:
            self._vitals.printed()
            self.tail.extend(lines)
            for record in records:
                if self._keeps(record):
                    self._collector.add(record)
                if self._on_record:
                    self._on_record(record)
            self._changed.notify_all()

    def _keeps(self, record: ev.Record) -> bool:
        failed = isinstance(record.event, ev.Failure)
        return self._keep or (failed and len(self.loaded.failures) < _MOST_FAILURES)

    def _listen(self) -> None:
        """stdout -> lines for whoever asks."""
        stream = self._process.stdout
        split = Lines()
        while data := os.read(stream.fileno(), 1 << 16):
            if self._on_output:
                self._on_output(1, data)
            for line in split.feed(data):
                if self.answers.qsize() < _MOST_ANSWERS:
                    self.answers.put(line)
            with self._changed:
                self._changed.notify_all()
        for line in split.close():
            self.answers.put(line)
        self.answers.put(None)
        with self._changed:
            self._changed.notify_all()

    def _watch(self) -> None:
        """Memory, silence and the end."""
        while not self._process.dead():
            self._sample()
            time.sleep(TICK_S if not self._ready else IDLE_TICK_S)
        code = self._process.reap()
        for reader in self._readers:
            reader.join(GRACE_S)
        with self._changed:
            self.outcome = self._judge(code)
            self._changed.notify_all()

    def _sample(self) -> None:
        self._vitals.sample()
        limits = self.limits
        if not self._ready and self._vitals.too_silent(limits):
            self.kill(Ending.HUNG, silence_s=self._vitals.silence_s)
        if limits.memory_floor_bytes is not None:
            available = limits.available_bytes()
            if available < limits.memory_floor_bytes:
                self.kill(Ending.LOW_MEMORY, available_bytes=available)

    # -- the end ------------------------------------------------------------------------------

    def _end(self, ending: Ending, **facts: object) -> None:
        """Remember why we end it; the first reason counts."""
        if self._verdict is None and not self._process.dead():
            self._verdict = (ending, facts)

    def _judge(self, code: int) -> Outcome:
        failures = tuple(
            record.event.code
            for record in self.loaded.failures
            if isinstance(record.event, ev.Failure)
        )
        ending, facts = self._verdict or (ending_of(code, ready=self._ready), {})
        taken = self.loaded.failure("port_taken")
        if taken and self._verdict is None:
            ending, facts = Ending.PORT_TAKEN, {"port": int(taken.fields["port"])}
        return Outcome(
            ending=ending,
            code=code,
            pid=self.pid,
            seconds=time.monotonic() - self._started,
            ready=self._ready,
            said=self._said(),
            tail=tuple(self.tail),
            peak_rss_bytes=self.peak_rss_bytes,
            failures=failures,
            **facts,  # type: ignore[arg-type]  # fields of Outcome, named where they are known
        )

    def _said(self) -> str:
        if self.loaded.failures:
            return self.loaded.failures[0].text.strip()
        return next((line.strip() for line in reversed(self.tail) if line.strip()), "")
