"""Which documents a command line means: files, folders, standard input."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvwise.digest.extract import FORMATS, shown
from kvwise.digest.shelf import NAME
from kvwise.errors import SourceError, UsageError
from kvwise.oserrors import reason_of
from kvwise.text import Phrase, phrase

STDIN = "-"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A document: `name` within the digest, `path` of its file, `size` in bytes."""

    name: str
    path: Path
    size: int

    def stamp(self) -> str:
        """What tells it from a changed one. Raises SourceError."""
        try:
            return stamp_of(self.path)
        except OSError as error:
            raise SourceError(
                "{path} cannot be read: {why}", path=str(self.path), why=reason_of(error)
            ) from error


def stamp_of(path: Path) -> str:
    """A hash of all bytes of a file. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()[:32]


Leave = Callable[[str, Phrase], object]
"""Hears of what is left out of a folder, and why."""
HIDDEN, LINK, NOWHERE = phrase("hidden"), phrase("a link to a folder"), phrase("no ordinary file")
OURS = phrase("the folder of a digest")
OTHER = phrase(
    "the name has no ending of a document ({known}); if it is text, name the file on the line",
    known=" ".join(sorted(FORMATS)),
)


def sources(
    words: Sequence[str], folder: Path, leave: Leave = lambda _name, _why: None
) -> list[Source]:
    """The documents in the order named; a folder's files by name, without what is hidden, links to
    other folders, and what a digest wrote. Standard input is kept in `folder`, because it cannot be
    read twice. Raises SourceError, UsageError."""
    found: list[Source] = []
    for word in words:
        if word == STDIN:
            found.append(_from_stdin(folder))
            continue
        path = Path(word)
        if path.is_dir():
            inside = list(_inside(path, path.resolve().name or "root", leave))
            if not inside:
                raise SourceError(
                    "{path} has no document in it", path=word, known=" ".join(sorted(FORMATS)),
                    hint="file names must end with one of {known}",
                )  # fmt: skip
            found += inside
        else:
            found.append(Source(shown(path.name), path, _size(path)))
    return _told_apart(found)


def _inside(root: Path, label: str, leave: Leave) -> Iterator[Source]:
    def called(path: Path) -> str:
        return shown(f"{label}/{path.relative_to(root).as_posix()}")

    def unreadable(error: OSError) -> None:
        why = phrase("{reason}", reason=reason_of(error))
        leave(shown(str(error.filename)), why)

    for folder, folders, files in os.walk(root, onerror=unreadable):
        taken = []
        for name in sorted(folders):
            why = _no_folder(Path(folder) / name)
            if why is None:
                taken.append(name)
            else:
                leave(called(Path(folder) / name), why)
        folders[:] = taken
        for name in sorted(files):
            path = Path(folder) / name
            why = _no_document(path)
            if why is None:
                yield Source(called(path), path, _size(path))
            else:
                leave(called(path), why)


def _no_folder(path: Path) -> Phrase | None:
    """Why a folder is not looked into."""
    if path.name.startswith("."):
        return HIDDEN
    if path.is_symlink():  # it may lead back to where it is
        return LINK
    return OURS if (path / NAME).is_file() else None


def _no_document(path: Path) -> Phrase | None:
    """Why a file of a folder is left out."""
    if path.name.startswith("."):
        return HIDDEN
    if path.suffix.lower() not in FORMATS:
        return OTHER
    return None if path.is_file() else NOWHERE


def _size(path: Path) -> int:
    try:
        state = path.stat()
    except FileNotFoundError as error:
        raise SourceError(
            "no file {path}", path=str(path), hint="check the name and the folder"
        ) from error
    except OSError as error:
        raise SourceError(
            "{path} cannot be read: {why}", path=str(path), why=reason_of(error)
        ) from error
    if not path.is_file():
        raise SourceError("{path} is no file", path=str(path), hint="pipes go to - (stdin)")
    return state.st_size


def _from_stdin(folder: Path) -> Source:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- means standard input, and nothing is piped in")
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / "stdin.input", folder / "stdin.part"
    with part.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file, _BLOCK)
    part.replace(target)
    return Source("stdin", target, target.stat().st_size)


def _told_apart(found: Sequence[Source]) -> list[Source]:
    """The same file once; files of the same name with more of their path."""
    unique: dict[Path, Source] = {}
    for source in found:
        unique.setdefault(source.path.resolve(), source)
    names = [source.name for source in unique.values()]
    return [
        source
        if names.count(source.name) == 1
        else Source(shown(path.as_posix().lstrip("/")), source.path, source.size)
        for path, source in unique.items()
    ]
