"""The engine's output, passed on as it comes, beside being kept.

When kvwise made the engine print more than the user asked for (its memory lines need it), the
lines of the llama and ggml libraries at information level go to the kept log alone; everything
from a warning up, the server's own lines, and whatever has no level is passed on. On a terminal
the server's own information stays in the kept log too, so that what kvwise says can be found.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable
from enum import Enum

from kvwise.guard.keep import Keeper

_LEVEL = re.compile(rb"\d{1,6}\.\d\d\.\d{3}\.\d{3} ([IDWE]) ")
_TROUBLE = re.compile(
    rb"error|fail|warn|assert|exception|abort|terminat|refus|cannot|unable|invalid", re.IGNORECASE
)
_LIBRARY = re.compile(rb"\d{1,6}\.\d\d\.\d{3}\.\d{3} [ID] (?!srv |slot |que |main|cmn )")
_COLOURS = re.compile(rb"\x1b\[[0-9;]{0,16}m")


class Shown(Enum):
    """What of its stderr is passed on."""

    ALL = "all"
    OWN = "own"  # without the libraries' information
    TROUBLE = "trouble"  # warnings and errors


class Tee:
    """Takes pieces of stdout (1) and stderr (2) from two threads."""

    def __init__(
        self,
        keeper: Keeper,
        *,
        shown: Shown,
        hear: Callable[[bytes], None],
        to: tuple[int, int] = (1, 2),
    ) -> None:
        """`to` are the descriptors that its stdout and stderr go to, -1 = nowhere; `hear` gets
        every whole line of stderr."""
        self._keeper, self._hear = keeper, hear
        self._shown = shown
        self._shows = False  # whether the last line that has a level was passed on
        self._to = list(to)
        self._lock = threading.Lock()
        self._rest = b""
        self._open_line = False  # an unfinished line of the engine stands on stderr

    def __call__(self, stream: int, data: bytes) -> None:
        if stream == 1:
            self._put(0, data)
            return
        self._keeper.write(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[: 1 << 16]
        for line in lines:
            self._hear(line)
        if self._shown is Shown.ALL:
            self._put(1, data)
            self._open_line = not data.endswith(b"\n")
            return
        shown = [line for line in lines if self._is_shown(_COLOURS.sub(b"", line[:200]))]
        if shown:
            self._put(1, b"\n".join(shown) + b"\n")

    def _is_shown(self, line: bytes) -> bool:
        """A line without a level goes on what stands before it, and is shown where it may say why
        something ends: an assertion, an exception, or all that an old build prints."""
        if self._shown is Shown.OWN:
            return not _LIBRARY.match(line)
        level = _LEVEL.match(line)
        if level:
            self._shows = level[1] in b"WE"
            return self._shows
        return self._shows or bool(_TROUBLE.search(line))

    def finish(self) -> None:
        """The engine has ended: whatever is left of an unfinished line, and a line end."""
        if self._rest and self._shown is not Shown.ALL:
            self._put(1, self._rest + b"\n")
        elif self._open_line:
            self._put(1, b"\n")
        self._rest, self._open_line = b"", False

    def _put(self, number: int, data: bytes) -> None:
        """Write all of it; a reader that has gone away is not written to again."""
        with self._lock:
            descriptor = self._to[number]
            view = memoryview(data)
            while descriptor >= 0 and view:
                try:
                    view = view[os.write(descriptor, view) :]
                except BlockingIOError:  # someone made it so; llama-server would lose the line
                    time.sleep(0.01)
                except OSError:
                    self._to[number] = descriptor = -1


def same_place(descriptor: int) -> int:
    """The descriptor if it is open, else -1."""
    with contextlib.suppress(OSError):
        os.fstat(descriptor)
        return descriptor
    return -1
