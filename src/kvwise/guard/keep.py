"""The log that is kept of a guarded server: everything the engine said, and what kvwise did.

One file per run in the state folder, the newest twenty of them; a file that grows too large goes
on in numbered parts, of which the first (it has the load) and the last two are kept. A disk that
is full ends the writing, never the server.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import IO

from kvwise.oserrors import reason_of
from kvwise.paths import state_dir
from kvwise.text import Phrase
from kvwise.units import MIB

RUNS_KEPT = 20
PART_BYTES = 32 * MIB
_LAST_PARTS = 2


def default_path() -> Path:
    """A new file's name: `STATE/runs/20260131-235959-4711.log`."""
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return state_dir() / "runs" / f"{stamp}-{os.getpid()}.log"


def thin_out(folder: Path, keep: int = RUNS_KEPT) -> None:
    """Remove the oldest runs with all their parts; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        firsts = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
        for path in firsts[: max(0, len(firsts) - keep)]:
            for part in (*folder.glob(f"{path.name}.*"), path):
                part.unlink(missing_ok=True)


class Keeper:
    """Writes one run's log. `path` None keeps nothing."""

    def __init__(self, path: Path | None, part_bytes: int = PART_BYTES) -> None:
        self.path = path
        self.failed: Phrase | str | None = None  # why writing ended
        self._part_bytes = part_bytes
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._written = 0
        self._part = 1
        self._parted = True  # a device or a pipe has no room of ours and gets no parts beside it
        if path is not None:
            self._guarded(self._open_first)

    def write(self, data: bytes) -> None:
        """The engine's own bytes."""
        with self._lock:
            if self._file is not None:
                self._guarded(lambda: self._append(data))

    def note(self, text: str) -> None:
        """What kvwise did, on lines of its own."""
        stamp = time.strftime("%H:%M:%S")
        self.write("".join(f"# kvwise {stamp} {line}\n" for line in text.splitlines()).encode())

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = None

    def _open_first(self) -> None:
        assert self.path is not None  # noqa: S101 (only called with one)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab", buffering=0)
        self._parted = self.path.is_file()
        self._written = self.path.stat().st_size

    def _append(self, data: bytes) -> None:
        assert self._file is not None  # noqa: S101 (asked before)
        if self._parted and self._written and self._written + len(data) > self._part_bytes:
            self._next_part()
        self._file.write(data)
        self._written += len(data)

    def _next_part(self) -> None:
        assert self._file is not None  # noqa: S101 (asked before)
        assert self.path is not None  # noqa: S101 (there is a file)
        self._file.close()
        self._part += 1
        self._file = self._named(self._part).open("wb", buffering=0)
        self._written = 0
        old = self._part - _LAST_PARTS
        if old > 1:
            self._named(old).unlink(missing_ok=True)

    def _named(self, part: int) -> Path:
        assert self.path is not None  # noqa: S101 (there is a file)
        return self.path.with_name(f"{self.path.name}.{part}")

    def _guarded(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]  # a function without arguments
        except OSError as error:
            self.failed = reason_of(error)
            self._file = None
