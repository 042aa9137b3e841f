"""Header to GGUF: files that have a header and holes where the data would be.

llama.cpp opens such a twin as it opens the model itself, so its no-alloc pass can be asked about
a model that nobody here has. `encode` is the low level: it writes what it is told, lies included.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kvwise.errors import ModelError, SourceError
from kvwise.gguf.header import ArrayInfo, Header, Value
from kvwise.gguf.lies import clip, plain
from kvwise.gguf.values import ARRAY, SCALAR_BY_NAME, STRING, element_type, type_of
from kvwise.oserrors import reason_of
from kvwise.units import pad

_ORDERS = {"little": "<", "big": ">"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One key-value pair; `kind` is `uint32`, `string`, ... or `[uint32]` for an array."""

    key: str
    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the tensor table as numbers, not checked against anything."""

    name: str
    shape: Sequence[int]
    type_id: int
    offset: int


def encode(
    entries: Sequence[Entry],
    rows: Sequence[Row],
    *,
    version: int = 3,
    byte_order: str = "little",
    n_keys: int | None = None,
    n_tensors: int | None = None,
) -> bytes:
    """The bytes of a header without padding. `n_keys` and `n_tensors` may claim other counts."""
    order = _ORDERS[byte_order]
    keys = len(entries) if n_keys is None else n_keys
    tensors = len(rows) if n_tensors is None else n_tensors
    parts = [b"GGUF", struct.pack(order + "IQQ", version, tensors, keys)]
    for entry in entries:
        parts += (_text(entry.key, order), _value(entry.kind, entry.value, order))
    for row in rows:
        shape = struct.pack(f"{order}I{len(row.shape)}Q", len(row.shape), *row.shape)
        place = struct.pack(order + "IQ", row.type_id, row.offset)
        parts += (_text(row.name, order), shape, place)
    return b"".join(parts)


def _text(text: str, order: str) -> bytes:
    # surrogateescape: tokens that are not UTF-8 go back as the bytes they came from
    raw = text.encode("utf-8", "surrogateescape")
    return struct.pack(order + "Q", len(raw)) + raw


def _value(kind: str, value: Any, order: str) -> bytes:
    if kind == "string":
        return struct.pack(order + "I", STRING) + _text(value, order)
    if not kind.startswith("["):
        row = SCALAR_BY_NAME[kind]
        return struct.pack(f"{order}I{row.code}", row.id, value)
    element = kind[1:-1]
    if element == "string":
        start = struct.pack(order + "IIQ", ARRAY, STRING, len(value))
        return start + b"".join(_text(item, order) for item in value)
    row = SCALAR_BY_NAME[element]
    return struct.pack(f"{order}IIQ{len(value)}{row.code}", ARRAY, row.id, len(value), *value)


def write_twin(
    header: Header, path: str | Path, *, version: int = 3, byte_order: str = "little"
) -> int:
    """Write a sparse file with this header and the full size of the model; returns that size.

    Split models become one file. Vocabulary arrays that the header did not keep (read it with
    `arrays="all"` to have them) become `tokenizer.ggml.model = no_vocab` and `ARCH.vocab_size`.
    Raises ModelError for a kept-out array that has no stand-in, SourceError when it cannot write.
    """
    rows, size = _place(header)
    text = encode(twin_entries(header), rows, version=version, byte_order=byte_order)
    total = pad(len(text), header.alignment) + size if rows else len(text)
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            _make_sparse(file)
            file.write(text)
            file.truncate(total)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise SourceError(
            "cannot write {path} ({size} bytes, sparse): {why}",
            path=plain(str(path)), size=total, why=reason_of(error),
        ) from error  # fmt: skip
    return total


def _place(header: Header) -> tuple[list[Row], int]:
    """The table with offsets in order, and the bytes of all data."""
    rows: list[Row] = []
    offset = 0
    for tensor in header.tensors:
        rows.append(Row(tensor.name, tensor.shape, tensor.type.id, offset))
        offset = pad(offset + tensor.nbytes, header.alignment)
    return rows, offset


def twin_entries(header: Header) -> list[Entry]:
    """The metadata of a twin: that of the header, as one file, with stand-ins for what it lacks."""
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    stand_in: dict[str, Entry] = {}
    if isinstance(tokens, ArrayInfo):
        size_key = f"{header.architecture}.vocab_size"
        stand_in[size_key] = Entry(size_key, "uint32", tokens.count)
        stand_in["tokenizer.ggml.model"] = Entry("tokenizer.ggml.model", "string", "no_vocab")
    kept = (
        _entry(key, value, header.value_types)
        for key, value in header.metadata.items()
        if not key.startswith("split.")
        and key not in stand_in
        and not (stand_in and key.startswith("tokenizer."))
    )
    return [*kept, *stand_in.values()]


def _entry(key: str, value: Value, types: Mapping[str, str]) -> Entry:
    if isinstance(value, ArrayInfo):
        if value.element != "string":
            raise ModelError(
                "the array {key} was counted and not kept, so no twin can hold it", key=clip(key)
            )
        # Only their number matters to memory (labels of a classifier).
        return Entry(key, "[string]", ("",) * value.count)
    kind = types.get(key)
    if kind is None:
        kind = f"[{element_type(value)}]" if isinstance(value, tuple) else type_of(value)
    return Entry(key, kind, value)


def _make_sparse(file: BinaryIO) -> None:
    """On Windows a file has holes only after it was asked for; elsewhere holes are the default."""
    if sys.platform == "win32":
        import ctypes  # noqa: PLC0415
        import msvcrt  # noqa: PLC0415

        set_sparse, returned = 0x900C4, ctypes.c_ulong(0)  # FSCTL_SET_SPARSE
        handle = ctypes.c_void_p(msvcrt.get_osfhandle(file.fileno()))
        ctypes.windll.kernel32.DeviceIoControl(
            handle, set_sparse, None, 0, None, 0, ctypes.byref(returned), None
        )
