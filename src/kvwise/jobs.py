"""A job is keyed units of work: run, stop, resume; nothing that was finished is done twice.

A unit's result is on the disk before the next one starts, so Ctrl-C, `kill -9` or a power cut lose
only the unit in hand. What a job is about (model file, engine, flags) is its key: results of other
settings never mix. One process at a time works on a job; its lock goes with the process.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from kvwise.errors import Interrupted, UsageError
from kvwise.store import Store
from kvwise.text import phrase

Mode = Literal["auto", "resume", "fresh"]
OPEN, DONE, DROPPED = "open", "done", "dropped"


@dataclass(frozen=True, slots=True)
class Pace:
    """How far a job is: units done of `total`, `kept` of them before this process; `left_s` seconds
    to go by the median unit, None while none was timed."""

    done: int
    total: int
    kept: int
    left_s: float | None


class Job:
    """An open job; use as a context manager. `changed` names what differs from an interrupted job
    about the same subject, which was left alone."""

    def __init__(
        self, store: Store, number: int, about: Mapping[str, Any], changed: Sequence[str] = ()
    ) -> None:
        self.store, self.number, self.about, self.changed = store, number, about, tuple(changed)
        self._lock = store.lock(f"job-{number}")
        try:
            (row,) = store.rows("SELECT notes, began FROM job WHERE id = ?", number)
            self.began = float(row["began"])
            self.notes = _mapping(store, row["notes"])
            found = store.rows(
                "SELECT key, result, seconds, hash FROM unit WHERE job = ? AND hash != ''", number
            )
            self.results = {row["key"]: _result(store, row) for row in found}
        except BaseException:
            self._lock.close()
            raise
        self._seconds = [float(row["seconds"]) for row in found]

    @classmethod
    def open(
        cls,
        store: Store,
        kind: str,
        subject: str,
        about: Mapping[str, Any],
        mode: Mode = "auto",
        *,
        part_of: Job | None = None,
    ) -> Self:
        """The job of a `kind` (a command) on a `subject` (a file); `about` decides its results.

        `auto` goes on with one that was interrupted, else starts anew; `resume` insists on one,
        finished or not; `fresh` drops it. A job that is `part_of` another, which is not told yet,
        goes on with what was finished since the other began. Raises UsageError when there is none
        to resume, when it was about something else, or when another process works on it;
        StoreError.
        """
        about = json.loads(json.dumps(about))
        key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        with store.transaction() as db:
            rows = db.execute(
                "SELECT id, key, about, state, began FROM job WHERE kind = ? AND subject = ?"
                " AND state != ? ORDER BY id DESC", (kind, subject, DROPPED),
            ).fetchall()  # fmt: skip
            since = part_of.began if part_of is not None else math.inf
            usable = [
                row for row in rows
                if row["state"] == OPEN or mode == "resume" or row["began"] >= since
            ]  # fmt: skip
            same = next((row for row in usable if row["key"] == key), None)
            changed = _changes(store, usable[0], about) if usable and same is None else []
            if mode == "resume" and same is None:
                raise _nothing(changed)
            if same is not None:
                state = DROPPED if mode == "fresh" else OPEN
                db.execute("UPDATE job SET state = ? WHERE id = ?", (state, same["id"]))
            if same is not None and mode != "fresh":
                number = int(same["id"])
            else:
                values = (kind, subject, key, json.dumps(about), OPEN, "{}", time.time())
                number = _insert(db, values)
        return cls(store, number, about, changed)

    def run(
        self,
        units: Sequence[str],
        work: Callable[[str], Any],
        progress: Callable[[Pace], None] | None = None,
        *,
        last: bool = True,
    ) -> list[Any]:
        """The results (anything JSON can hold) of `units`, in order; only what is missing is done.

        `progress` is called before each unit and at the end. With `last` False the job goes on
        after these units, until `finish`. Raises Interrupted on Ctrl-C, and
        whatever `work` raises; what was done until then is kept.
        """
        kept = sum(key in self.results for key in units)
        try:
            for key in units:
                if key not in self.results:
                    self._tell(units, kept, progress)
                    began = time.monotonic()
                    self._finish(key, work(key), time.monotonic() - began)
        except KeyboardInterrupt:
            done = sum(key in self.results for key in units)
            raise Interrupted(
                "stopped after {done} of {total}",
                done=done,
                total=len(units),
                hint="the same command goes on from there",
            ) from None
        self._tell(units, kept, progress)
        if last:
            self.finish()
        return [self.results[key] for key in units]

    def note(self, name: str, value: Any) -> Any:
        """A value for the whole job, such as a number of threads: the first one stays."""
        if name not in self.notes:
            self.notes[name] = value
            with self.store.transaction() as db:
                notes = json.dumps(self.notes)
                db.execute("UPDATE job SET notes = ? WHERE id = ?", (notes, self.number))
        kept = self.notes[name]
        if type(kept) is not type(value):
            raise self.store.damaged(phrase("the notes of a job"))
        return kept

    def _tell(
        self, units: Sequence[str], kept: int, progress: Callable[[Pace], None] | None
    ) -> None:
        if progress is not None:
            done = sum(key in self.results for key in units)
            each = statistics.median(self._seconds) if self._seconds else None
            left = None if each is None else each * (len(units) - done)
            progress(Pace(done, len(units), kept, left))

    def _finish(self, key: str, result: Any, seconds: float) -> None:
        text = json.dumps(result)
        with self.store.transaction() as db:
            values = (self.number, key, text, seconds, time.time(), _hash(key, text))
            db.execute("INSERT OR REPLACE INTO unit VALUES (?, ?, ?, ?, ?, ?)", values)
        self.results[key] = json.loads(text)
        self._seconds.append(seconds)

    def _set_state(self, state: str) -> None:
        with self.store.transaction() as db:
            db.execute("UPDATE job SET state = ? WHERE id = ?", (state, self.number))

    def finish(self) -> None:
        """All is done and was told: the next time the job begins anew."""
        self._set_state(DONE)

    def close(self) -> None:
        """Let another process have it."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _insert(db: sqlite3.Connection, values: tuple[Any, ...]) -> int:
    columns = "kind, subject, key, about, state, notes, began"
    row = db.execute(f"INSERT INTO job ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", values)  # noqa: S608
    assert row.lastrowid is not None  # noqa: S101 (of an INSERT)
    return row.lastrowid


def _hash(key: str, text: str) -> str:
    return hashlib.sha256(f"{key} {text}".encode()).hexdigest()[:16]


def _result(store: Store, row: sqlite3.Row) -> Any:
    """Raises StoreError for anything but what `_finish` wrote."""
    if _hash(row["key"], str(row["result"])) != row["hash"]:
        raise store.damaged(phrase("the result of {key}", key=row["key"]))
    return json.loads(row["result"])


def _mapping(store: Store, text: object) -> dict[str, Any]:
    try:
        value = json.loads(str(text))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise store.damaged(phrase("the notes of a job"))
    return value


def _changes(store: Store, row: sqlite3.Row, new: Mapping[str, Any]) -> list[str]:
    old = _mapping(store, row["about"])
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def _nothing(changed: Sequence[str]) -> UsageError:
    if not changed:
        return UsageError("there is nothing to resume", hint="leave --resume out to start")
    return UsageError(
        "what was interrupted cannot be resumed: {what} changed",
        what=", ".join(changed),
        hint="--fresh starts again with what is asked for now",
    )
