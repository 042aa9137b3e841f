"""Files of other programs: read whole, changed as text, written at once with a backup beside."""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kvwise.errors import SourceError
from kvwise.oserrors import reason_of

_MOST = 4 * 1024 * 1024
_BACKUPS = 1000
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Old:
    """A file as it is: its text with plain line ends, and how it was written."""

    text: str
    newline: str = "\n"
    bom: bool = False


def read(path: Path) -> Old | None:
    """The file, None if there is none. Raises SourceError if it cannot be read as text."""
    try:
        if path.is_dir():
            raise SourceError("{path} is a folder", path=str(path))
        if path.stat().st_size > _MOST:
            raise SourceError("{path} is too large for a settings file", path=str(path))
        with path.open("rb") as file:
            content = file.read(_MOST + 1)
        if len(content) > _MOST:  # a device that never ends
            raise SourceError("{path} is too large for a settings file", path=str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError("{path}: {reason}", path=str(path),
                          reason=reason_of(error)) from None  # fmt: skip
    return decode(content, str(path))


def check(path: Path) -> None:
    """Raises SourceError for what must never be replaced by a file: a device, a pipe, a socket."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise SourceError("{path} is no ordinary file", path=str(path),
                          hint="leave --out away to write to standard output")  # fmt: skip


def decode(content: bytes, name: str) -> Old:
    """Bytes as text: UTF-8, or UTF-16 as Windows tools write it. Raises SourceError."""
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        text = content.decode(encoding)
    except ValueError:
        raise SourceError("{path} is not UTF-8 text", path=name) from None
    bom = text.startswith(_BOM)
    newline = "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"
    return Old(text.removeprefix(_BOM).replace("\r\n", "\n"), newline, bom)


def encode(text: str, old: Old | None, *, encoding: str = "utf-8", newline: str = "\n") -> bytes:
    """The bytes of a new file, or of one that replaces `old` and looks like it."""
    bom = encoding == "utf-8-sig" or bool(old and old.bom)
    ends = old.newline if old and old.text else newline
    return ((_BOM if bom else "") + text.replace("\n", ends)).encode("utf-8")


def diff(path: Path, old: str | None, new: str) -> str:
    """What would change, as `diff -u` shows it; empty if nothing."""
    lines = difflib.unified_diff(
        (old or "").splitlines(keepends=True),
        new.splitlines(keepends=True),
        fromfile=str(path) if old is not None else os.devnull,
        tofile=str(path),
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def write(path: Path, content: bytes, *, backup: bool = True) -> Path | None:
    """Replace the file at once, and return the backup of what was there (None: nothing was, or
    none was wanted).

    A link stays a link: what it leads to is replaced. Raises SourceError.
    """
    path = Path(os.path.realpath(path))
    check(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        copy = _backup(path) if backup and path.exists() else None
        _replace(path, content)
    except OSError as error:
        raise SourceError("{path}: {reason}", path=str(path),
                          reason=reason_of(error)) from None  # fmt: skip
    return copy


def _backup(path: Path) -> Path:
    for number in range(1, _BACKUPS):
        copy = path.with_name(f"{path.name}.bak" if number == 1 else f"{path.name}.bak{number}")
        try:
            with copy.open("xb") as out, path.open("rb") as source:
                shutil.copyfileobj(source, out)
        except FileExistsError:
            continue
        shutil.copystat(path, copy)
        return copy
    raise SourceError("{path} has {count:,} backups already", path=str(path), count=_BACKUPS)


def _replace(path: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name[:60]}.", suffix=".new"
    )
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        if path.exists():
            shutil.copymode(path, name)
        else:
            mask = os.umask(0)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
