"""A log in a file, as far as the disk takes it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import IO, Self


class KeptLog:
    """Writing it never fails: the engine must be heard even where no more can be kept, or it would
    wait for us forever."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] | None = None
        with contextlib.suppress(OSError):
            self._file = path.open("wb", buffering=0)

    def write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write(data)
        except OSError:
            self.close()

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
