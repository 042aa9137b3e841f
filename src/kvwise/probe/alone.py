"""One measuring probe at a time: two would take each other's memory and both find too little.

A lock on a file. The system gives it back when its holder ends, however it
ends, so that a killed probe blocks nobody.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from kvwise import paths
from kvwise.errors import EngineError

_NAME = "probe.lock"
_PAUSE_S = 0.1
PATIENCE_S = 180.0
"""A machine with several cards takes a while."""


@contextmanager
def alone(
    patience_s: float = PATIENCE_S, waiting: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Hold the lock; `waiting` is called once if another probe has it.

    Where no file can be made there is no lock either. Raises EngineError when the other one does
    not end in time.
    """
    file = _opened()
    if file is None:
        yield
        return
    with file:
        end, told = time.monotonic() + patience_s, False
        while not _taken(file):
            if time.monotonic() > end:
                raise EngineError(
                    "another kvwise probe is still running", hint="wait for it, or use --quick"
                )
            if not told:
                waiting()
                told = True
            time.sleep(_PAUSE_S)
        yield


def _opened() -> IO[bytes] | None:
    with suppress(OSError):
        folder = paths.state_dir()
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / _NAME).open("ab")
    return None


if sys.platform == "win32":
    import msvcrt

    def _taken(file: IO[bytes]) -> bool:
        file.seek(0)
        with suppress(OSError):
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            return True
        return False
else:
    import fcntl

    def _taken(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks: better two probes than none
            return True
        return True
