"""Bytes to Header. Trusts nothing: a file is hostile until every length in it has been checked.

Knows versions 2 and 3 in both byte orders. Follows ggml/src/gguf.cpp of llama.cpp b10605 in what
it refuses, and is stricter where llama.cpp leaves room (ceilings, UTF-8, dimensions of zero).
Tensor data is never looked at; at most the last window that is read ends in it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final, Literal, TypeAlias

from kvwise.gguf import lies
from kvwise.gguf.cursor import Cursor
from kvwise.gguf.header import ArrayInfo, Header, Scalar, Value
from kvwise.gguf.lies import clip, plain
from kvwise.gguf.source import Source
from kvwise.gguf.table import read_tensors
from kvwise.gguf.values import ARRAY, BOOL, SCALARS, STRING, ValueType
from kvwise.text import Phrase, phrase

Arrays: TypeAlias = Collection[str] | Literal["none", "all"]
"""Which arrays to keep: those of these names as well as the small ones, no array, or every one."""

VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32
MAX_KEYS: Final = 65_536
MAX_KEY_BYTES: Final = 65_535
MAX_STRINGS: Final = 4 * 1024 * 1024
"""Strings in all arrays of one header together; the largest vocabularies have 0.6 million."""

MAX_KEPT: Final = 16 * 1024 * 1024
"""Numbers of one array that are kept when asked for."""

KEPT_NUMBERS: Final = 4096
"""Arrays of numbers up to this length are kept unasked: lengths per layer, factors, sections."""
KEPT_IN_ALL: Final = 1024 * 1024
"""Numbers of all arrays that are kept unasked; a Python int takes up to 36 bytes."""

KEPT_STRINGS: Final = 64
"""Arrays of strings up to this length are kept unasked (`general.tags`)."""

_SMALLEST_PAIR = 8 + 1 + 4 + 1
_FIXED_TYPES = {
    "general.alignment": "uint32",
    "general.architecture": "string",
}


def read_header(source: Source, *, arrays: Arrays = ()) -> Header:
    """The header of one file (one shard of a split model: see `split.py`).

    Raises a HeaderError of `lies.py` for a file that is not sound, SourceError when its bytes
    cannot be had.
    """
    cursor = Cursor(source)
    version = _read_start(cursor)
    n_tensors = cursor.number("Q", phrase("the number of tensors"))
    n_keys = cursor.number("Q", phrase("the number of keys"))
    _check_keys(n_keys, cursor.left)
    metadata, types = _Metadata(cursor, arrays).read(n_keys)
    alignment = _alignment(metadata, types)
    tensors, data_offset = read_tensors(cursor, n_tensors, alignment)
    return Header(
        version=version,
        metadata=metadata,
        tensors=tensors,
        byte_order="big" if cursor.order == ">" else "little",
        alignment=alignment,
        data_offset=data_offset,
        path=source.name,
        shards=(source.name,),
        value_types=types,
    )


def _read_start(cursor: Cursor) -> int:
    """Magic and version; sets the byte order of everything that follows."""
    magic = cursor.take(min(4, cursor.left), phrase("the magic"))
    if magic != b"GGUF":
        raise lies.NotGGUF(
            "{name} is not a GGUF file: it starts with {magic}",
            name=plain(cursor.source.name), magic=repr(magic)[1:],
        )  # fmt: skip
    version = cursor.number("I", phrase("the version"))
    if version & 0xFFFF == 0 and version:
        cursor.use_order(">")
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version in VERSIONS:
        return version
    hint = (
        "convert it again: llama.cpp no longer reads version 1 either"
        if version == 1
        else "a newer kvwise may read it"
        if version
        else None
    )
    raise lies.UnsupportedVersion(
        "GGUF version {version} is not one that kvwise reads (2 and 3)", version=version, hint=hint
    )


def _check_keys(count: int, left: int) -> None:
    possible = min(left // _SMALLEST_PAIR, MAX_KEYS)
    if count > possible:
        raise lies.TooManyKeys(
            "the header claims {count} keys, {possible} are possible",
            count=count, possible=possible,
            hint="the file is cut short or damaged: download it again",
        )  # fmt: skip


def _alignment(metadata: dict[str, Value], types: dict[str, str]) -> int:
    for key, wanted in _FIXED_TYPES.items():
        found = types.get(key, wanted)
        if found != wanted:
            raise lies.WrongValueType(
                "{key} is a {found}, it must be a {wanted}", key=key, found=found, wanted=wanted
            )
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or value <= 0 or value & (value - 1):
        raise lies.BadAlignment("general.alignment is {value}, not a power of two", value=value)
    return value


class _Metadata:
    """Reads the key-value pairs of one header."""

    def __init__(self, cursor: Cursor, arrays: Arrays) -> None:
        self._cursor = cursor
        self._arrays = arrays
        self._strings = 0
        self._unasked = 0
        self._kept: dict[str, Value] = {}
        self._types: dict[str, str] = {}

    def read(self, count: int) -> tuple[dict[str, Value], dict[str, str]]:
        for index in range(count):
            key = self._key(index)
            kind = self._cursor.number("I", phrase("the type of {key}", key=clip(key)))
            if kind == ARRAY:
                self._kept[key] = self._array(key)
            else:
                self._kept[key], self._types[key] = self._scalar(key, kind)
        return self._kept, self._types

    def _key(self, index: int) -> str:
        key = self._cursor.name(phrase("key {index}", index=index), MAX_KEY_BYTES, lies.KeyTooLong)
        if not key:
            raise lies.EmptyKey("key {index} is empty", index=index)
        if key in self._kept:
            raise lies.DuplicateKey("the key {key} is there twice", key=clip(key))
        return key

    def _scalar(self, key: str, kind: int) -> tuple[Scalar, str]:
        if kind == STRING:
            return self._cursor.text(phrase("the value of {key}", key=clip(key))), "string"
        row = self._row(key, kind)
        return self._numbers(key, row, 1)[0], row.name

    def _row(self, key: str, kind: int) -> ValueType:
        row = SCALARS.get(kind)
        if row is None:
            raise lies.UnknownValueType(
                "the key {key} has a value of type {kind}, which GGUF does not have",
                key=clip(key), kind=kind,
            )  # fmt: skip
        return row

    def _numbers(self, key: str, row: ValueType, count: int) -> tuple[Scalar, ...]:
        raw = self._cursor.take(count * row.size, phrase("the value of {key}", key=clip(key)))
        values = struct.unpack(f"{self._cursor.order}{count}{row.code}", raw)
        if row is not BOOL:
            return values
        if max(values, default=0) > 1:
            raise lies.BadBool(
                "the key {key} has a bool that is {value}", key=clip(key), value=max(values)
            )
        return tuple(map(bool, values))

    def _array(self, key: str) -> Value:
        what = phrase("the array {key}", key=clip(key))
        kind = self._cursor.number("I", what)
        count = self._cursor.number("Q", what)
        if kind == ARRAY:
            raise lies.NestedArray("the key {key} is an array of arrays", key=clip(key))
        row = None if kind == STRING else self._row(key, kind)
        self._check_array(key, count, row.size if row else 8)
        name = row.name if row else "string"
        self._types[key] = f"[{name}]"
        if row is None:
            return self._string_array(key, count, what)
        if self._keeps(key, count, KEPT_NUMBERS):
            self._check_asked(key, count)
            return self._numbers(key, row, count)
        self._cursor.skip(count * row.size, what)
        return ArrayInfo(name, count)

    def _check_array(self, key: str, count: int, size: int) -> None:
        possible = self._cursor.left // size
        if count > possible:
            raise lies.ArrayTooLong(
                "the array {key} claims {count} elements, {possible} are possible",
                key=clip(key), count=count, possible=possible,
                hint="the file is cut short or damaged: download it again",
            )  # fmt: skip

    def _check_asked(self, key: str, count: int) -> None:
        if count > MAX_KEPT:
            raise lies.ArrayTooLong(
                "the array {key} has {count} elements, {possible} are kept at most",
                key=clip(key), count=count, possible=MAX_KEPT,
            )  # fmt: skip

    def _string_array(self, key: str, count: int, what: Phrase) -> Value:
        self._strings += count
        if self._strings > MAX_STRINGS:
            raise lies.ArrayTooLong(
                "the array {key} claims {count} strings, {possible} in all are read",
                key=clip(key), count=count, possible=MAX_STRINGS,
            )  # fmt: skip
        if self._keeps(key, count, KEPT_STRINGS):
            return tuple(self._element(key, what) for _ in range(count))
        self._cursor.skip_strings(count, what)
        return ArrayInfo("string", count)

    def _element(self, key: str, what: Phrase) -> str:
        # Tokens are bytes to llama.cpp, and some are not UTF-8: kept so that they can be written
        # back. Any other string must be text.
        if key.startswith("tokenizer."):
            return self._cursor.string(what).decode("utf-8", "surrogateescape")
        return self._cursor.text(what)

    def _keeps(self, key: str, count: int, small: int) -> bool:
        if self._arrays == "all":
            return True
        if self._arrays == "none":
            return False
        if key in self._arrays:
            return True
        self._unasked += count if count <= small else 0
        return count <= small and self._unasked <= KEPT_IN_ALL
