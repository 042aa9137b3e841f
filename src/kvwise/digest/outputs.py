"""What other programs read: vectors.npy, chunks.parquet, digest.json, all from the database."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kvwise.digest.engines import bytes_to_floats
from kvwise.digest.place import pages_without_text
from kvwise.digest.pool import Part, Pooled, pool
from kvwise.digest.shelf import Row, Shelf

VECTORS, CHUNKS, DOCUMENT = "vectors.npy", "chunks.parquet", "digest.json"
SCHEMA = "kvwise/digest/1"
_ROWS = 512  # written at a time
POOLED = ("mean", "token_mean", "first", "max", "hierarchical")


def can_write() -> bool:
    """Whether the libraries of the extra `digest` are here."""
    return all(find_spec(name) is not None for name in ("numpy", "pyarrow"))


def write_vectors(shelf: Shelf, folder: Path) -> tuple[int, int]:
    """Row N of vectors.npy (float32) is chunk N of chunks.parquet; returns (rows, width).

    Raises OSError.
    """
    from numpy.lib import format as npy  # noqa: PLC0415

    number = sum(document.chunks for document in shelf.documents())
    width = width_of(shelf)
    part = folder / f"{VECTORS}.part"
    with part.open("wb") as file:
        about = {"descr": "<f4", "fortran_order": False, "shape": (number, width)}
        npy.write_array_header_1_0(file, about)
        for row in shelf.chunks():
            file.write(shelf.vector(row.vector))
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / VECTORS)
    return number, width


def write_chunks(shelf: Shelf, folder: Path) -> None:
    """One row per chunk, in the order of the documents' names. Raises OSError."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    schema = pa.schema(
        [
            ("document", pa.string()), ("chunk", pa.int32()), ("start", pa.int64()),
            ("end", pa.int64()), ("tokens", pa.int32()), ("section", pa.string()),
            ("page", pa.int32()), ("vector", pa.list_(pa.float32(), width_of(shelf))),
        ]
    )  # fmt: skip
    part = folder / f"{CHUNKS}.part"
    with pq.ParquetWriter(part, schema) as writer:
        for rows in _some(shelf.chunks()):
            table = [_record(shelf, row) for row in rows]
            writer.write_table(pa.Table.from_pylist(table, schema=schema))
    part.replace(folder / CHUNKS)


def _record(shelf: Shelf, row: Row) -> dict[str, Any]:
    return {
        "document": row.document, "chunk": row.seq, "start": row.start, "end": row.end,
        "tokens": row.tokens, "section": row.section, "page": row.page,
        "vector": bytes_to_floats(shelf.vector(row.vector)),
    }  # fmt: skip


def _some(rows: Iterator[Row]) -> Iterator[list[Row]]:
    kept: list[Row] = []
    for row in rows:
        kept.append(row)
        if len(kept) == _ROWS:
            yield kept
            kept = []
    if kept:
        yield kept


def width_of(shelf: Shelf) -> int:
    """Values of a vector, 0 without any."""
    for row in shelf.chunks():
        return len(shelf.vector(row.vector)) // 4
    return 0


def pooled(shelf: Shelf, name: str) -> Pooled | None:
    """The vectors of one document."""
    return pool(
        Part(bytes_to_floats(shelf.vector(row.vector)), row.tokens, _section(row))
        for row in shelf.chunks(name)
    )


def _section(row: Row) -> str:
    """What a chunk is pooled with first: its outermost headings, else its page."""
    if row.section:
        return row.section
    return "" if row.page is None else f"page {row.page}"


def document_json(shelf: Shelf, more: Mapping[str, Any], *, vectors: bool = True) -> dict[str, Any]:
    """`kvwise/digest/1`: what was made with what, and each document, with its pooled vectors
    where `vectors` are asked for."""
    documents = [
        {
            "name": document.name, "source": document.source, "kind": document.kind,
            "text": document.text, "encoding": document.encoding, "state": document.state,
            "chunks": document.chunks, "tokens": document.tokens,
            "pages_without_text": pages_without_text(shelf.path.parent, document),
            **({"pooled": _pooled_json(shelf, document.name)} if vectors else {}),
        }
        for document in shelf.documents()
    ]  # fmt: skip
    return {
        "schema": SCHEMA, "made_with": shelf.about(), "width": width_of(shelf),
        "vectors_are": "float32, in the order of documents by name and chunks by number",
        **more, "documents": documents,
    }  # fmt: skip


def _pooled_json(shelf: Shelf, name: str) -> dict[str, list[float]]:
    found = pooled(shelf, name)
    if found is None:
        return {}
    return {each: [round(value, 8) for value in getattr(found, each)] for each in POOLED}


def write_document(document: Mapping[str, Any], folder: Path) -> None:
    """digest.json. Raises OSError."""
    part = folder / f"{DOCUMENT}.part"
    part.write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")
    part.replace(folder / DOCUMENT)
