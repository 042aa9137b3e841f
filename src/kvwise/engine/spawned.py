"""One started process with pipes: its own session, tied to our life, known until it is reaped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from kvwise.engine import job
from kvwise.engine.limits import Limits

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)

_starter = ThreadPoolExecutor(1, thread_name_prefix="kvwise-starter")
"""Starts every child: the death of the starting thread is what a child is told of (launcher.py)."""


class Spawned:
    """A process and whatever it started. Raises OSError where it cannot be started."""

    def __init__(self, argv: Sequence[str], limits: Limits, environment: dict[str, str]) -> None:
        self._process = _starter.submit(_start, argv, limits, environment).result()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdout(self) -> IO[bytes]:
        return self._stream(self._process.stdout)

    @property
    def stderr(self) -> IO[bytes]:
        return self._stream(self._process.stderr)

    @staticmethod
    def _stream(stream: IO[bytes] | None) -> IO[bytes]:
        assert stream is not None  # noqa: S101 (asked for when it was started)
        return stream

    def close_input(self) -> None:
        """Close its stdin."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()

    def dead(self) -> bool:
        """Has it ended? Leaves it unreaped, so that its pid is not given to another process."""
        if hasattr(os, "waitid") and self._process.returncode is None:  # not on older macOS
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            try:
                return os.waitid(os.P_PID, self.pid, options) is not None
            except ChildProcessError:
                return True
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal to it and to all that it started, as long as it was not reaped."""
        if self._process.returncode is not None:
            return
        with contextlib.suppress(OSError):
            if os.name == "posix":
                os.killpg(self._process.pid, number)  # its own session: group id is its pid
            else:
                self._process.kill()

    def reap(self) -> int:
        """Wait for its end; what it started goes with it, while its group id is still its own."""
        self.signal(KILL)
        return self._process.wait()


def _start(
    argv: Sequence[str], limits: Limits, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    command = list(argv)
    if os.name == "posix":
        command = [
            sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py")), "become",
            str(os.getpid()), str(limits.oom_score), str(limits.address_space_bytes or 0),
            *command,
        ]  # fmt: skip
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        bufsize=0,
    )
    if os.name == "nt":
        job.tie(int(getattr(process, "_handle", 0)))
    return process
