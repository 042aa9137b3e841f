"""Measurements in kvwise.db: save, find, and merge without loss or doubles."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from kvwise.errors import UsageError
from kvwise.results.codec import from_line, line
from kvwise.results.record import Measurement
from kvwise.store import Store
from kvwise.text import phrase

_FILTERS: Mapping[str, str] = {
    "kind": "kind = ?",
    "state": "state = ?",
    "identity": "identity = ?",
    "fingerprint": "model = ?",
    "machine": "machine = ?",
    "engine": "engine = ?",
    "build": "build = ?",
    "tool": "tool = ?",
    "since": "at >= ?",
    "until": "at < ?",
}


def save(store: Store, *found: Measurement) -> int:
    """Keep measurements, all or none; returns how many were new. Raises StoreError.

    Saving twice changes nothing. Of two with the same identity and time the fuller one stays,
    whichever came first.
    """
    with store.transaction() as db:
        return save_in(db, found)


def save_in(db: sqlite3.Connection, found: Iterable[Measurement]) -> int:
    """The same within a transaction that is open already (of `Store.transaction`)."""
    return sum(_save(db, each) for each in found)


def _save(db: sqlite3.Connection, found: Measurement) -> bool:
    text = line(found)
    row = db.execute(
        "SELECT id, document FROM result WHERE identity = ? AND at = ?", (found.identity, found.at)
    ).fetchone()
    if row is None:
        values = (
            found.identity, found.at, found.kind, found.state, found.machine.id,
            found.engine.kind, found.engine.build, found.engine.tool,
            found.model.fingerprint, found.model.name, text,
        )  # fmt: skip
        db.execute(
            "INSERT INTO result (identity, at, kind, state, machine, engine, build, tool, model,"
            " model_name, document) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values,
        )  # fmt: skip
        return True
    if _rank(text) > _rank(row["document"]):
        db.execute(
            "UPDATE result SET state = ?, model_name = ?, document = ? WHERE id = ?",
            (found.state, found.model.name, text, row["id"]),
        )
    return False


def _rank(text: str) -> tuple[int, str]:
    """A total order, so that merging gives the same whatever comes first."""
    return len(text), text


def load(store: Store, **filters: Any) -> list[Measurement]:
    """What was measured, oldest first; `filters` by name, None = any.

    kind, state, identity, fingerprint (of the model), machine (its id), engine (binary,
    embedded), build, tool, since, until (seconds since 1970). Raises StoreError, and TypeError
    for another name.
    """
    asked = {name: value for name, value in filters.items() if value is not None}
    unknown = asked.keys() - _FILTERS.keys()
    if unknown:
        raise TypeError(f"no such filter: {', '.join(sorted(unknown))}")
    where = " AND ".join(_FILTERS[name] for name in asked) or "1"
    sql = f"SELECT document FROM result WHERE {where} ORDER BY at, identity"  # noqa: S608
    return [_read(store, row["document"]) for row in store.rows(sql, *asked.values())]


def _read(store: Store, text: object) -> Measurement:
    try:
        return from_line(str(text))
    except UsageError as error:
        raise store.damaged(phrase("a result: {why}", why=error.phrase)) from error
