"""Folders for the time that one process needs them: gone with its end, or at the next one's start.

Nothing that a process does can remove its folder after `kill -9`, so the next that needs one
removes what it finds and nobody holds. Who holds a folder has its lock file locked (a system of
POSIX: it goes with the process, whatever became of it) or open (Windows: it cannot be deleted).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_PREFIX = "kvwise-scratch-"
_LOCK = "held"


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder of one's own, removed afterwards."""
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # of another user, or just removed by another process
            _remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with _held(folder):
            inside = folder / "files"
            inside.mkdir()
            yield inside
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Locked before the lock file has its name: one that is there was held from the first moment,
    and a folder that has none yet is left alone."""
    first = folder / "lock"
    with first.open("wb") as lock:
        _lock(lock)
        if os.name == "posix":
            first.rename(folder / _LOCK)
            yield
            return
    with (folder / _LOCK).open("wb"):  # Windows renames no open file
        yield


def _remove_if_left(folder: Path) -> None:
    """Raises OSError where someone holds it."""
    with (folder / _LOCK).open("rb") as lock:
        _lock(lock)
        if os.name == "posix":
            shutil.rmtree(folder, ignore_errors=True)
            return
    (folder / _LOCK).unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _lock(file: IO[bytes]) -> None:
    """Raises OSError where another has it."""
    try:
        import fcntl  # noqa: PLC0415
    except ImportError:  # Windows
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
