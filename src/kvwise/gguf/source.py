"""Where bytes come from: anything with a size that can be read at an offset.

`open_file` is the door to this machine's files; the others are `remote.py`, `hub.py` and
`ollama.py`. A source knows nothing of GGUF.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from kvwise.errors import SourceError
from kvwise.gguf.lies import EmptyFile, plain
from kvwise.oserrors import reason_of
from kvwise.text import phrase


class Source(Protocol):
    """Bytes that can be read at an offset. `etag` changes when the bytes do."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def etag(self) -> str: ...

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`; fewer only at the end. Raises SourceError."""

    def sibling(self, name: str) -> Source:
        """The file of this name beside this one. Raises SourceMissing."""

    def close(self) -> None: ...


class SourceMissing(SourceError):
    """There is nothing of this name."""


class SourceChanged(SourceError):
    """The bytes changed while they were read."""


class FileSource:
    """A regular file. Opened once; everything is read through that one descriptor."""

    __slots__ = ("_fd", "etag", "name", "size")

    def __init__(self, path: str) -> None:
        self.name = path
        self._fd = _open_regular(path)
        status = os.fstat(self._fd)
        self.size = status.st_size
        self.etag = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"

    def read(self, offset: int, length: int) -> bytes:
        try:
            if hasattr(os, "pread"):
                return os.pread(self._fd, length, offset)
            os.lseek(self._fd, offset, os.SEEK_SET)
            return os.read(self._fd, length)
        except OSError as error:
            raise _cannot_read(self.name, error) from error

    def sibling(self, name: str) -> FileSource:
        return FileSource(str(Path(self.name).parent / name))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class BytesSource:
    """Bytes in memory, with others beside them by name (what was sent to us, tests, fuzzing)."""

    __slots__ = ("_beside", "_data", "etag", "name", "size")

    def __init__(
        self, data: bytes, name: str = "memory", beside: Mapping[str, bytes] | None = None
    ) -> None:
        self._data = data
        self._beside = beside or {}
        self.name = name
        self.size = len(data)
        self.etag = ""

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]

    def sibling(self, name: str) -> BytesSource:
        if name not in self._beside:
            raise SourceMissing("no file {path}", path=name)
        return BytesSource(self._beside[name], name, self._beside)

    def close(self) -> None:
        """Nothing to give back."""


def open_file(path: str) -> FileSource:
    """A file of this machine.

    Raises SourceMissing, SourceError (folder, FIFO, device, symlink loop, no permission) and
    EmptyFile. Never waits: a FIFO is recognised before it is opened.
    """
    source = FileSource(path)
    if source.size == 0:
        source.close()
        raise EmptyFile("{path} is empty", path=plain(path), hint="download it again")
    return source


def _open_regular(path: str) -> int:
    # Asked before and after opening: opening a FIFO or a device can block or have effects, and
    # the name may be swapped in between (O_NONBLOCK covers that moment).
    flags = os.O_RDONLY
    for extra in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOCTTY"):
        flags |= getattr(os, extra, 0)
    try:
        _check_regular(path, os.stat(path))  # noqa: PTH116
        fd = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise _cannot_read(path, error) from error
    try:
        _check_regular(path, os.fstat(fd))
    except SourceError:
        os.close(fd)
        raise
    return fd


def _check_regular(path: str, status: os.stat_result) -> None:
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise SourceError("{path} is a folder", path=plain(path), hint="name the .gguf file in it")
    kinds = ((stat.S_ISFIFO, phrase("pipe")), (stat.S_ISSOCK, phrase("socket")))
    kind = next((word for test, word in kinds if test(mode)), phrase("device"))
    raise SourceError("{path} is a {kind}, not a file", path=plain(path), kind=kind)


def _cannot_read(path: str, error: OSError | ValueError) -> SourceError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return SourceMissing(
            "no file {path}", path=plain(path), hint="check the name and the folder"
        )
    if isinstance(error, ValueError):  # a NUL in the name
        return SourceMissing("no file {path}", path=plain(path))
    if isinstance(error, PermissionError):
        return SourceError("no permission to read {path}", path=plain(path))
    if error.errno == errno.ELOOP or getattr(error, "winerror", None) == 1921:
        return SourceError("{path} is a symlink that leads back to itself", path=plain(path))
    return SourceError("cannot read {path}: {why}", path=plain(path), why=reason_of(error))
