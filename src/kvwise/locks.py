"""Locks between processes: files beside the database that only exist while somebody holds them.

A lock is an exclusive transaction on a file of its own, so that the system takes it back however
its process ends. Files are made and removed only while the database itself is held, so that
nobody can have one open that another removes; what a killed process left goes when the next lock
is taken.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from kvwise.errors import KvwiseError

SUFFIX = ".lock"
Mutex = Callable[[], AbstractContextManager[object]]
"""Keeps every other process from making or removing lock files."""


class Held(Exception):
    """Another process has it."""


class Broken(Exception):
    """The file cannot be a lock; the cause says why."""


class Lock:
    """Held until it is closed. Raises Held, Broken, OSError, and what `mutex` raises."""

    def __init__(self, path: Path, mutex: Mutex) -> None:
        self.path, self._mutex = path, mutex
        with mutex():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _taken(path)
            _sweep(path)

    def close(self) -> None:
        """Let another process have it. Where the database cannot be held the file stays."""
        with contextlib.suppress(KvwiseError), self._mutex():
            self._file.close()
            _remove(self.path)
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _taken(path: Path) -> sqlite3.Connection:
    try:
        file = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise Broken from error
    try:
        file.execute("PRAGMA journal_mode = MEMORY")  # nothing is ever written
        file.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        file.close()
        raise (Held if "locked" in str(error) else Broken) from error
    return file


def _sweep(mine: Path) -> None:
    """Remove the files that nobody holds."""
    for path in mine.parent.glob(f"*{SUFFIX}"):
        if path != mine:
            with contextlib.suppress(Held, Broken):
                _taken(path).close()
                _remove(path)


def _remove(path: Path) -> None:
    """The file, what SQLite kept beside it in earlier versions, and the folder with the last."""
    with contextlib.suppress(OSError):
        path.unlink()
        path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        path.parent.rmdir()


__all__ = ["SUFFIX", "Broken", "Held", "Lock"]
