"""digest.db in the output folder: documents, chunks and vectors, each on the disk when it is done.

One file is one way of cutting and embedding (`about`): another model or another chunk size is
told, never mixed in. The folder can be moved to another machine and gone on with there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from kvwise.digest.chunker import Chunk, Old
from kvwise.digest.extract import Place
from kvwise.digest.reading import Window
from kvwise.errors import UsageError
from kvwise.store import Store
from kvwise.text import Phrase, phrase, template

T = TypeVar("T")

NAME = "digest.db"
_HEAD = 48  # characters by which a known chunk is looked for

_MODEL, _ENGINE = "@model", "@engine"  # rows of `about` that decide nothing: where these lay

SETTINGS = {
    "embedding model": phrase("embedding model"),
    "engine": phrase("engine"),
    "pooling": phrase("pooling"),
    "chunk tokens": phrase("tokens of a chunk"),
    "overlap": phrase("overlap"),
    "borders": phrase("borders"),
    "normalize": phrase("normalize"),
    "chunk prefix": phrase("prefix of a chunk"),
}
"""What decides vectors, for people."""

RUNNING, FINISHED = "running", "finished"


@dataclass(frozen=True, slots=True)
class Row:
    """A finished chunk. `start` and `end` are byte offsets in the document's text, `section` the
    headings above it, `page` counts from 1; None where the format has none."""

    document: str
    seq: int
    start: int
    end: int
    tokens: int
    section: str
    page: int | None
    vector: str


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a folder; `stamp` tells its source from a changed one, `text` = the file that
    offsets count in (None: the source itself), `encoding` of that file."""

    name: str
    source: str
    kind: str
    stamp: str
    state: str
    text: str | None
    encoding: str
    start: int
    chunks: int = 0
    tokens: int = 0


class Shelf(Store):
    """The open file. `about` = what decides its vectors. Raises StoreError, UsageError when it was
    made with something else."""

    application: ClassVar[int] = 0x6B766467  # "kvdg"
    hint: ClassVar[str] = "give another --out; what is in this one can be made again"
    hint_damaged: ClassVar[str] = template("--fresh begins again, or give another --out")
    migrations: ClassVar[tuple[tuple[str, ...], ...] | None] = (
        (
            "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
            """CREATE TABLE document (
                id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, pass INTEGER NOT NULL,
                source TEXT NOT NULL, kind TEXT NOT NULL, stamp TEXT NOT NULL, state TEXT NOT NULL,
                text TEXT, encoding TEXT NOT NULL, start INTEGER NOT NULL, at REAL NOT NULL)""",
            """CREATE TABLE chunk (
                document INTEGER NOT NULL REFERENCES document (id) ON DELETE CASCADE,
                pass INTEGER NOT NULL, seq INTEGER NOT NULL, start INTEGER NOT NULL,
                "end" INTEGER NOT NULL, chars INTEGER NOT NULL, advance INTEGER NOT NULL,
                shared INTEGER NOT NULL, tokens INTEGER NOT NULL, head TEXT NOT NULL,
                hash TEXT NOT NULL, section TEXT NOT NULL, page INTEGER, vector TEXT NOT NULL,
                PRIMARY KEY (document, pass, seq)) WITHOUT ROWID""",
            "CREATE INDEX chunk_by_head ON chunk (document, head)",
            "CREATE INDEX chunk_by_vector ON chunk (vector)",
            "CREATE TABLE vector (key TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID",
            """CREATE TABLE unit (
                key TEXT PRIMARY KEY, kind TEXT NOT NULL, result TEXT NOT NULL, at REAL NOT NULL
            ) WITHOUT ROWID""",
        ),
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / NAME)

    # -- what it was made with -----------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """Names and values; empty for a new file."""
        rows = self.rows("SELECT * FROM about WHERE name NOT IN (?, ?)", _MODEL, _ENGINE)
        return {row["name"]: self._value(row["value"]) for row in rows}

    def model(self) -> str:
        """Where the embedding model lay when it was last used; empty if that is not known."""
        return self._place(_MODEL)

    def engine(self) -> str:
        """Where the engine lay, a llama-server; empty if it was another or is not known."""
        return self._place(_ENGINE)

    def _place(self, name: str) -> str:
        rows = self.rows("SELECT value FROM about WHERE name = ?", name)
        return str(self._value(rows[0]["value"])) if rows else ""

    def _value(self, text: object) -> Any:
        try:
            return json.loads(str(text))
        except (ValueError, RecursionError):
            raise self.damaged(phrase("how it was made")) from None

    def used(self, model: str, engine: str) -> None:
        """Remember where model and engine are; it decides no vector."""
        for name, path in ((_MODEL, model), (_ENGINE, engine)):
            if path != self._place(name):
                with self.transaction() as db:
                    db.execute(
                        "INSERT OR REPLACE INTO about VALUES (?, ?)", (name, json.dumps(path))
                    )

    def agree(self, about: Mapping[str, Any], *, fresh: bool = False) -> None:
        """Take `about` for a new file; raises UsageError when the file has something else, unless
        `fresh`, which empties it."""
        wanted = json.loads(json.dumps(about))
        old = self.about()
        changed = sorted(name for name in {*old, *wanted} if old.get(name) != wanted.get(name))
        if old and not changed and not fresh:
            return
        if old and not fresh:
            raise UsageError(
                "{path} was made with other settings: {what}",
                path=str(self.path),
                what=_differences(changed, old, wanted),
                hint="give another --out, or --fresh to begin again",
            )
        with self.transaction() as db:
            for table in ("document", "chunk", "vector", "unit", "about"):
                db.execute(f"DELETE FROM {table}")  # noqa: S608 (names of our own)
            db.executemany(
                "INSERT INTO about VALUES (?, ?)",
                [(name, json.dumps(value)) for name, value in wanted.items()],
            )

    # -- documents -----------------------------------------------------------------------------

    def begin(self, document: Document) -> int:
        """A pass over a document: goes on with one that was interrupted; returns its number."""
        with self.transaction() as db:
            old = db.execute(
                "SELECT id, pass, state, stamp FROM document WHERE name = ?", (document.name,)
            ).fetchone()
            number = 1 if old is None else int(old["pass"])
            if old is not None and (old["state"] == FINISHED or old["stamp"] != document.stamp):
                number += 1
            db.execute(
                """INSERT INTO document (name, pass, source, kind, stamp, state, text, encoding,
                    start, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (name) DO UPDATE SET pass = excluded.pass, source = excluded.source,
                    kind = excluded.kind, stamp = excluded.stamp, state = excluded.state,
                    text = excluded.text, encoding = excluded.encoding, start = excluded.start,
                    at = excluded.at""",
                (document.name, number, document.source, document.kind, document.stamp, RUNNING,
                 document.text, document.encoding, document.start, time.time()),
            )  # fmt: skip
        return number

    def finish(self, name: str, count: int) -> None:
        """The document is done with `count` chunks: what older passes left is dropped."""
        with self.transaction() as db:
            row = db.execute("SELECT id, pass FROM document WHERE name = ?", (name,)).fetchone()
            db.execute(
                "DELETE FROM chunk WHERE document = ? AND (pass != ? OR seq >= ?)",
                (row["id"], row["pass"], count),
            )
            db.execute("UPDATE document SET state = ? WHERE id = ?", (FINISHED, row["id"]))
            db.execute("DELETE FROM vector WHERE key NOT IN (SELECT vector FROM chunk)")

    def documents(self) -> list[Document]:
        """All of them, by name."""
        rows = self.rows(
            """SELECT name, source, kind, stamp, state, text, encoding, document.start,
                count(chunk.seq) AS chunks, coalesce(sum(chunk.tokens), 0) AS tokens
            FROM document LEFT JOIN chunk ON chunk.document = id AND chunk.pass = document.pass
            GROUP BY id ORDER BY name"""
        )
        return [Document(**dict(row)) for row in rows]

    def document(self, name: str) -> Document | None:
        return next((each for each in self.documents() if each.name == name), None)

    # -- chunks --------------------------------------------------------------------------------

    def has_vector(self, key: str) -> bool:
        return bool(self.rows("SELECT 1 FROM vector WHERE key = ?", key))

    def keep(
        self, name: str, chunk: Chunk, place: Place, key: str, vector: bytes | None = None
    ) -> None:  # fmt: skip
        """A finished chunk, with its vector (float32, little-endian) unless it is there already."""
        text = chunk.text
        with self.transaction() as db:
            if vector is not None:
                db.execute("INSERT OR IGNORE INTO vector VALUES (?, ?)", (key, vector))
            db.execute(
                """INSERT OR REPLACE INTO chunk
                SELECT id, pass, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM document WHERE name = ?""",
                (chunk.seq, chunk.start, chunk.end, len(text), chunk.advance, chunk.shared,
                 chunk.tokens, head_of(text), hash_of(text), place.section,
                 place.page, key, name),
            )  # fmt: skip

    def kept(self, name: str, chunk: Chunk) -> bool:
        """Whether exactly this chunk stands in the document's present pass."""
        return bool(
            self.rows(
                """SELECT 1 FROM chunk JOIN document ON document = id AND chunk.pass = document.pass
                WHERE name = ? AND seq = ? AND chunk.start = ? AND "end" = ? AND hash = ?""",
                name, chunk.seq, chunk.start, chunk.end, hash_of(chunk.text),
            )
        )  # fmt: skip

    def chunks(self, name: str | None = None) -> Iterator[Row]:
        """Finished chunks in order, of one document or of all, read as they are asked for."""
        last: tuple[str, int] = ("", -1)
        while True:
            rows = self.rows(
                """SELECT name AS document, seq, chunk.start, "end", tokens, section, page, vector
                FROM chunk JOIN document ON document = id AND chunk.pass = document.pass
                WHERE (name, seq) > (?, ?) AND (? IS NULL OR name = ?)
                ORDER BY name, seq LIMIT 256""",
                *last, name, name,
            )  # fmt: skip
            if not rows:
                return
            for row in rows:
                yield Row(**dict(row))
            last = rows[-1]["document"], rows[-1]["seq"]

    def vector(self, key: str) -> bytes:
        """float32, little-endian. Raises KeyError."""
        rows = self.rows("SELECT data FROM vector WHERE key = ?", key)
        if not rows:
            raise KeyError(key)
        return bytes(rows[0]["data"])

    # -- units of refining ---------------------------------------------------------------------

    def unit(self, key: str, like: T) -> T | None:
        """The result of a finished unit, None if it is not done, or is damaged: a value of the type
        of `like`, with the same names where that is a mapping."""
        rows = self.rows("SELECT result FROM unit WHERE key = ?", key)
        try:
            found = json.loads(str(rows[0]["result"])) if rows else None
        except (ValueError, RecursionError):
            return None
        return found if _alike(found, like) else None

    def keep_unit(self, key: str, kind: str, result: Any) -> None:
        """On the disk when this returns."""
        with self.transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO unit VALUES (?, ?, ?, ?)",
                (key, kind, json.dumps(result), time.time()),
            )


def _alike(found: object, like: object) -> bool:
    if not isinstance(found, dict) or not isinstance(like, dict):
        return type(found) is type(like)
    same = found.keys() == like.keys()
    return same and all(type(found[name]) is type(value) for name, value in like.items())


class KnownChunks:
    """The chunks of a document's earlier passes, for the chunker."""

    def __init__(self, shelf: Shelf, name: str) -> None:
        self._shelf = shelf
        rows = shelf.rows("SELECT id FROM document WHERE name = ?", name)
        self._document = int(rows[0]["id"]) if rows else None

    def any(self) -> bool:
        return self._document is not None and bool(
            self._shelf.rows("SELECT 1 FROM chunk WHERE document = ? LIMIT 1", self._document)
        )

    def at(self, window: Window, position: int) -> Old | None:
        """The known chunk whose whole text stands at `position`."""
        there = window.fill(position + _HEAD)
        head = head_of(window.text(there, position))
        for row in self._shelf.rows(
            """SELECT DISTINCT chars, advance, shared, tokens, hash, vector FROM chunk
            WHERE document = ? AND head = ? ORDER BY pass DESC LIMIT 8""",
            self._document, head,
        ):  # fmt: skip
            end = position + int(row["chars"])
            if window.fill(end) == end and hash_of(window.text(end, position)) == row["hash"]:
                return Old(row["chars"], row["advance"], row["shared"], row["tokens"],
                           row["hash"], row["vector"])  # fmt: skip
        return None


def hash_of(text: str) -> str:
    """What tells one text from another."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def head_of(text: str) -> str:
    """The start of a text, as short chunks and long ones have it in common."""
    return hash_of(text[:_HEAD])[:16]


def key_of(ids: Sequence[int]) -> str:
    """The key of the vector of these tokens."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:32]


def as_json(row: Row) -> dict[str, Any]:
    return asdict(row)


def _differences(names: Sequence[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> Phrase:
    """All of them, in the user's language."""
    name, *more = names
    one = phrase(
        "{setting} {old} -> {new}", setting=SETTINGS.get(name, name), old=_short(old.get(name)),
        new=_short(new.get(name)),
    )  # fmt: skip
    return phrase("{one}, {more}", one=one, more=_differences(more, old, new)) if more else one


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else text[:57] + "..."


@dataclass(frozen=True, slots=True)
class Remembered:
    """How a folder was made: what a later command need not say again. Empty for a new folder."""

    about: Mapping[str, Any]
    model: str = ""
    engine: str = ""

    @classmethod
    def of(cls, folder: Path) -> Remembered:
        """Raises StoreError."""
        if not (folder / NAME).is_file():
            return cls({})
        with Shelf(folder) as shelf:
            return cls(shelf.about(), shelf.model(), shelf.engine())
