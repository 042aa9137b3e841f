"""kvwise.db in the data folder: what was done and measured, on the disk after every change.

SQLite with a write-ahead log and full synchronisation: a process that is killed, or a machine that
loses power, loses no change that was finished. The tables grow by numbered migrations; a file of a
newer kvwise is left alone.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from kvwise import paths
from kvwise.errors import KvwiseError, UsageError

NAME = "kvwise.db"
_APPLICATION = 0x6B767773  # "kvws": a database of somebody else is not touched
_BUSY_MS = 10_000

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
)
"""Number N takes a file from version N to N + 1. Never change one: add another."""


class StoreError(KvwiseError):
    """The database cannot be used."""


class Store:
    """The open database, for all threads of this process. Raises StoreError.

    A subclass with migrations and an application number of its own is another kind of file.
    """

    hint: ClassVar[str] = "set KVWISE_HOME to another folder, or move the file away"
    migrations: ClassVar[tuple[tuple[str, ...], ...] | None] = None
    application: ClassVar[int] = _APPLICATION

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or paths.data_dir() / NAME
        self._lock = threading.RLock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._told():
            self._db = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=_BUSY_MS / 1000
            )
        try:
            with self._told():
                self._set_up()
        except StoreError:
            self._db.close()
            raise

    def _set_up(self) -> None:
        self._db.row_factory = sqlite3.Row
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

    def _check(self) -> int:
        """The version of the file; raises StoreError for one that is not ours to change."""
        version, owner = self._pragma("user_version"), self._pragma("application_id")
        tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if owner != self.application and (owner or version or tables):
            raise StoreError("{path} is a database of another program", path=str(self.path))
        if version > len(self._steps):
            raise StoreError(
                "{path} was written by a newer kvwise",
                path=str(self.path),
                hint="update kvwise, or use another folder",
            )
        return version

    @property
    def _steps(self) -> tuple[tuple[str, ...], ...]:
        return MIGRATIONS if self.migrations is None else self.migrations

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    # -- reading and writing -------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing; on the disk when the block ends. Blocks must not be nested."""
        with self._lock, self._told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """What a SELECT finds."""
        with self._lock, self._told():
            return self._db.execute(sql, values).fetchall()

    def lock(self, name: str) -> sqlite3.Connection:
        """An exclusive lock until it is closed; the system takes it back when this process ends,
        however it ends. Raises UsageError when another process has it."""
        folder = self.path.parent / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with self._told(folder / f"{name}.lock"):
            held = sqlite3.connect(
                folder / f"{name}.lock", timeout=0, isolation_level=None, check_same_thread=False
            )
            try:
                held.execute("BEGIN EXCLUSIVE")
            except sqlite3.Error as error:
                held.close()
                if "locked" not in str(error):
                    raise
                raise UsageError(
                    "another process is working on this already", hint="wait for it, or stop it"
                ) from None
        return held

    @contextmanager
    def _told(self, path: Path | None = None) -> Iterator[None]:
        """SQLite's errors in our words."""
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                "{path} cannot be used: {why}",
                path=str(path or self.path),
                why=str(error),
                hint="make room on its disk; what was done is kept"
                if "disk is full" in str(error)
                else self.hint,
            ) from error

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
