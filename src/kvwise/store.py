"""kvwise.db in the data folder: what was done and measured, on the disk after every change.

SQLite with a write-ahead log and full synchronisation: a process that is killed, or a machine that
loses power, loses no change that was finished. The tables grow by numbered migrations; a file of a
newer kvwise is left alone.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from kvwise import paths
from kvwise.errors import KvwiseError, UsageError
from kvwise.locks import SUFFIX, Broken, Held, Lock
from kvwise.oserrors import reason_for, reason_of
from kvwise.text import Phrase, phrase, template

NAME = "kvwise.db"
_APPLICATION = 0x6B767773  # "kvws": a database of somebody else is not touched
_BUSY_MS = 10_000
_ROOM = 1 << 17  # bytes that a database needs beside it to be written

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE job (
            id INTEGER PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL, key TEXT NOT NULL,
            about TEXT NOT NULL, state TEXT NOT NULL, notes TEXT NOT NULL, began REAL NOT NULL)""",
        "CREATE INDEX job_by_subject ON job (kind, subject, state)",
        """CREATE TABLE unit (
            job INTEGER NOT NULL REFERENCES job (id) ON DELETE CASCADE, key TEXT NOT NULL,
            result TEXT NOT NULL, seconds REAL NOT NULL, at REAL NOT NULL, PRIMARY KEY (job, key)
        ) WITHOUT ROWID""",
    ),
    (
        # the columns are for finding; the whole measurement stands in `document`
        """CREATE TABLE result (
            id INTEGER PRIMARY KEY, identity TEXT NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL,
            state TEXT NOT NULL, machine TEXT NOT NULL, engine TEXT NOT NULL, build TEXT NOT NULL,
            tool TEXT NOT NULL, model TEXT NOT NULL, model_name TEXT NOT NULL,
            document TEXT NOT NULL, UNIQUE (identity, at))""",
        "CREATE INDEX result_by_model ON result (model, machine, kind)",
    ),
    (
        # a hash of what was written: a row that somebody changed is told, not used
        "ALTER TABLE unit ADD COLUMN hash TEXT NOT NULL DEFAULT ''",
    ),
)
"""Number N takes a file from version N to N + 1. Never change one: add another."""


class StoreError(KvwiseError):
    """The database cannot be used."""


class Store:
    """The open database, for all threads of this process. Raises StoreError.

    A file that is there and cannot be written, because its disk is full or its folder is
    read-only, is read as it is: `read_only` says why, and only what writes raises.
    A subclass with migrations and an application number of its own is another kind of file.
    """

    hint: ClassVar[str] = "set KVWISE_HOME to another folder, or move the file away"
    hint_damaged: ClassVar[str] = template("--fresh measures again, or move the file away")
    migrations: ClassVar[tuple[tuple[str, ...], ...] | None] = None
    application: ClassVar[int] = _APPLICATION

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or paths.data_dir() / NAME
        self._lock = threading.RLock()
        self.read_only: Phrase | str = ""
        self._make(self.path.parent)
        with self._told():
            try:
                self._open(str(self.path), self._set_up)
            except sqlite3.OperationalError as error:
                if "locked" in str(error) or not _written(self.path):
                    raise
                self._open_as_it_is()
                self.read_only = _why_not(self.path) or reason_of(error)
            else:
                self.read_only = "" if _can_write(self.path) else _why_not(self.path)

    def _open(self, place: str, set_up: Callable[[], None]) -> None:
        self._db = sqlite3.connect(
            place, isolation_level=None, check_same_thread=False, timeout=_BUSY_MS / 1000,
            uri=place.startswith("file:"),
        )  # fmt: skip
        try:
            self._db.row_factory = sqlite3.Row
            set_up()
        except BaseException:
            self._db.close()
            raise

    def _open_as_it_is(self) -> None:
        """Read-only: beside the files of its log where they are, else without any."""
        uri = self.path.absolute().as_uri()
        try:
            self._open(f"{uri}?mode=ro", self._look)
        except sqlite3.OperationalError:
            if _written(_log_of(self.path)):
                self._open_copy()  # what stands in the log alone would not be seen
            else:
                self._open(f"{uri}?immutable=1", self._look)

    def _open_copy(self) -> None:
        """What file and log say together, in memory."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder) / NAME
                shutil.copyfile(self.path, place)
                shutil.copyfile(_log_of(self.path), _log_of(place))
                with closing(sqlite3.connect(place)) as there:
                    self._open(":memory:", lambda: self._fill(there))
        except OSError as error:
            raise self._unusable(self.path, reason_of(error)) from error

    def _fill(self, there: sqlite3.Connection) -> None:
        there.backup(self._db)
        self._look()

    def _look(self) -> None:
        """Of a file that cannot be brought to this version."""
        if self._check() < len(self._steps):
            raise StoreError(
                "{path} was written by an older kvwise and cannot be written now",
                path=str(self.path), hint=self.hint,
            )  # fmt: skip
        self._check_tables()

    def _set_up(self) -> None:
        self._check()
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            self._db.execute(f"PRAGMA {pragma}").fetchall()
        while self._pragma("user_version") < len(self._steps):
            with self.transaction() as db:
                version = self._check()  # another process may have come first
                for statement in self._steps[version] if version < len(self._steps) else ():
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {self.application}")
                db.execute(f"PRAGMA user_version = {min(version + 1, len(self._steps))}")
        self._check_tables()

    def _check(self) -> int:
        """The version of the file; raises StoreError for one that is not ours to change."""
        version, owner = self._pragma("user_version"), self._pragma("application_id")
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if owner != self.application and (owner or version or tables):
            raise StoreError("{path} is a database of another program", path=str(self.path))
        if not 0 <= version <= len(self._steps):
            raise StoreError(
                "{path} was written by a newer kvwise",
                path=str(self.path),
                hint="update kvwise, or use another folder",
            )
        return version

    def _check_tables(self) -> None:
        """Raises StoreError for tables that the migrations did not make, whatever the version says:
        a kvwise between two versions may have written them."""
        with closing(sqlite3.connect(":memory:")) as fresh:
            for statement in (statement for step in self._steps for statement in step):
                fresh.execute(statement)
            if _columns(fresh) != _columns(self._db):
                raise StoreError(
                    "{path} was written by another version of kvwise",
                    path=str(self.path), hint=self.hint,
                )  # fmt: skip

    @property
    def _steps(self) -> tuple[tuple[str, ...], ...]:
        return MIGRATIONS if self.migrations is None else self.migrations

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    # -- reading and writing -------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing; on the disk when the block ends. Blocks must not be nested."""
        if self.read_only:
            raise self._unusable(self.path, self.read_only)
        with self._lock, self._told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite ends some by itself, as on a full disk
                    self._db.execute("ROLLBACK")
                raise

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """What a SELECT finds."""
        with self._lock, self._told():
            return self._db.execute(sql, values).fetchall()

    def lock(self, name: str) -> Lock:
        """An exclusive lock until it is closed; the system takes it back when this process ends,
        however it ends. Raises UsageError when another process has it, StoreError."""
        path = self.path.parent / "locks" / f"{name}{SUFFIX}"
        try:
            return Lock(path, self.transaction)
        except Held:
            raise UsageError(
                "another process is working on this already", hint="wait for it, or stop it"
            ) from None
        except Broken as error:
            raise self._unusable(path, reason_of(error.__cause__ or error)) from error
        except OSError as error:
            raise self._unusable(path.parent, reason_of(error)) from error

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(folder, reason_of(error)) from error

    def _unusable(self, path: Path, why: Phrase | str) -> StoreError:
        full = why == reason_for(errno.ENOSPC) or "disk is full" in str(why)
        hint = "make room on its disk; what was done is kept" if full else self.hint
        return StoreError("{path} cannot be used: {why}", path=str(path), why=why, hint=hint)

    def damaged(self, what: str | Phrase) -> StoreError:
        """The error for a row that holds something else than what was written."""
        return StoreError(
            "{path} is damaged: {what}", path=str(self.path), what=what, hint=self.hint_damaged
        )

    @contextmanager
    def _told(self, path: Path | None = None) -> Iterator[None]:
        """SQLite's errors in our words."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._unusable(path or self.path, reason_of(error)) from error

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Twice does no harm."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def as_it_is(store: Store) -> Phrase:
    """What is said of one that is `read_only`."""
    return phrase(
        "{path} is only read, it cannot be written: {why}", path=str(store.path),
        why=store.read_only,
    )  # fmt: skip


def _written(path: Path) -> bool:
    """Whether there is a database in which something stands."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _log_of(path: Path) -> Path:
    """Where SQLite writes ahead of a database."""
    return path.with_name(f"{path.name}-wal")


def _can_write(path: Path) -> bool:
    """Whether a file that is there, or is none (in memory), can be changed."""
    return not path.exists() or os.access(path, os.W_OK)


def _why_not(path: Path) -> Phrase | str:
    """What keeps a database from being written, empty where it is not to be seen."""
    try:
        disk = os.statvfs(path) if hasattr(os, "statvfs") else None
        shut = not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
    except OSError:
        return ""
    if shut:
        whole = disk is not None and disk.f_flag & os.ST_RDONLY
        return reason_for(errno.EROFS if whole else errno.EACCES)
    full = disk is not None and disk.f_bavail * disk.f_frsize < _ROOM
    return reason_for(errno.ENOSPC) if full else ""


def _columns(db: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of all tables."""
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    about = "SELECT name FROM pragma_table_info(?)"
    return {name: [row[0] for row in db.execute(about, (name,))] for name in names}
