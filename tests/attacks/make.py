"""Write the attack files (`python tests/attacks/make.py`); each tells one lie, names its error."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from kvwise.gguf.writer import Entry, Row, encode

HERE = Path(__file__).parent

ARCH = Entry("general.architecture", "string", "llama")
LAYERS = Entry("llama.block_count", "uint32", 1)
BASE = [ARCH, LAYERS]
A = Row("a.weight", (32, 2), 0, 0)
B = Row("b.weight", (8,), 0, 256)
HUGE = 2**64 - 1


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(raw: bytes) -> bytes:
    return u64(len(raw)) + raw


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + u32(kind) + value


def keys(*pairs: bytes, claimed: int | None = None) -> bytes:
    """A header of raw key-value pairs and no tensors."""
    count = len(pairs) if claimed is None else claimed
    return b"GGUF" + u32(3) + u64(0) + u64(count) + b"".join(pairs)


def table(*rows: bytes, claimed: int | None = None) -> bytes:
    """A sound start and raw rows of the tensor table."""
    return encode(BASE, [], n_tensors=len(rows) if claimed is None else claimed) + b"".join(rows)


def row(
    name: bytes = b"a.weight",
    shape: tuple[int, ...] = (32,),
    kind: int = 0,
    offset: int = 0,
    dimensions: int | None = None,
) -> bytes:
    count = len(shape) if dimensions is None else dimensions
    sizes = b"".join(map(u64, shape))
    return text(name) + u32(count) + sizes + u32(kind) + u64(offset)


def sound(entries: list[Entry] = BASE, rows: tuple[Row, ...] = (A, B), data: int = 288) -> bytes:
    """A header with its data area of `data` bytes, as far as the rows are sound."""
    head = encode(entries, rows)
    return head + bytes(-len(head) % 32) + bytes(data)


def shard(number: int, count: int, name: str, total: int) -> bytes:
    entries = [
        *BASE,
        Entry("split.no", "uint16", number),
        Entry("split.count", "uint16", count),
        Entry("split.tensors.count", "int32", total),
    ]
    return sound(entries, (Row(name, (8,), 0, 0),), 32)


def the_file() -> Iterator[tuple[str, str, bytes]]:
    yield "empty", "EmptyFile", b""
    yield "one-byte", "NotGGUF", b"G"
    yield "html-page", "NotGGUF", b"<!doctype html><title>sign in</title>"
    yield (
        "git-lfs-pointer",
        "NotGGUF",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    )
    yield "ggml-1", "NotGGUF", b"lmgg" + bytes(60)
    yield "magic-only", "Truncated", b"GGUF"
    yield "version-0", "UnsupportedVersion", b"GGUF" + u32(0) + bytes(16)
    yield "version-1", "UnsupportedVersion", b"GGUF" + u32(1) + bytes(16)
    yield "version-4", "UnsupportedVersion", b"GGUF" + u32(4) + bytes(16)
    yield "version-big-endian-9", "UnsupportedVersion", b"GGUF" + struct.pack(">I", 9) + bytes(16)
    yield "ends-after-version", "Truncated", b"GGUF" + u32(3)
    yield "ends-in-counts", "Truncated", b"GGUF" + u32(3) + u64(1) + bytes(4)
    whole = sound()
    yield "ends-in-key", "TooManyKeys", whole[:40]
    yield "ends-in-value", "Truncated", whole[:60]
    yield "ends-in-table", "TooManyTensors", whole[:140]
    yield "ends-before-data", "TensorBeyondFile", encode(BASE, (A, B))
    yield "ends-in-data", "TensorBeyondFile", whole[:-1]


def counts() -> Iterator[tuple[str, str, bytes]]:
    yield "keys-huge", "TooManyKeys", keys(claimed=HUGE)
    yield "keys-one-more", "Truncated", keys(pair(b"k" * 20, 4, u32(1)), claimed=2)
    yield "keys-negative", "TooManyKeys", keys(claimed=2**63)
    yield "tensors-huge", "TooManyTensors", table(claimed=HUGE)
    yield "tensors-wrap", "TooManyTensors", table(row(), claimed=2**61 + 1)
    yield "key-length-huge", "LengthBeyondFile", keys(u64(HUGE) + b"key" + u32(4) + u32(1))
    yield "key-length-wrap", "LengthBeyondFile", keys(u64(2**64 - 24) + b"key" + u32(4) + u32(1))
    yield "key-too-long", "KeyTooLong", keys(pair(b"k" * 65_536, 4, u32(1)))
    yield "string-length-huge", "LengthBeyondFile", keys(pair(b"key", 8, u64(HUGE) + b"x"))
    yield "string-one-more", "LengthBeyondFile", keys(pair(b"key", 8, u64(4) + b"abc"))
    yield "array-huge", "ArrayTooLong", keys(pair(b"key", 9, u32(4) + u64(HUGE) + u32(1)))
    yield "array-wrap", "ArrayTooLong", keys(pair(b"key", 9, u32(10) + u64(2**61 + 1) + bytes(8)))
    yield "array-one-more", "ArrayTooLong", keys(pair(b"key", 9, u32(4) + u64(3) + bytes(8)))
    strings = u32(8) + u64(2)
    yield "strings-huge", "ArrayTooLong", keys(pair(b"key", 9, u32(8) + u64(HUGE) + bytes(16)))
    yield (
        "strings-element-huge",
        "LengthBeyondFile",
        keys(pair(b"key", 9, strings + text(b"a") + u64(HUGE) + bytes(8))),
    )
    many = u32(8) + u64(100) + text(b"a") * 99
    yield "strings-last-huge", "LengthBeyondFile", keys(pair(b"key", 9, many + u64(2**63)))
    yield "strings-last-missing", "Truncated", keys(pair(b"key", 9, many[:-4] + u64(0)))


def metadata() -> Iterator[tuple[str, str, bytes]]:
    one = pair(b"key", 4, u32(1))
    yield "key-empty", "EmptyKey", keys(pair(b"", 4, u32(1)))
    yield "key-twice", "DuplicateKey", keys(one, one)
    yield "key-not-utf8", "BadText", keys(pair(b"k\xff", 4, u32(1)))
    yield "key-with-nul", "BadText", keys(pair(b"general.a\0b", 4, u32(1)))
    yield "value-not-utf8", "BadText", keys(pair(b"key", 8, text(b"caf\xe9")))
    yield "value-overlong-utf8", "BadText", keys(pair(b"key", 8, text(b"\xc0\xaf")))
    yield "value-surrogate", "BadText", keys(pair(b"key", 8, text(b"\xed\xa0\x80")))
    tags = u32(8) + u64(1) + text(b"\xff")
    yield "tag-not-utf8", "BadText", keys(pair(b"general.tags", 9, tags))
    yield "type-13", "UnknownValueType", keys(pair(b"key", 13, u32(1)))
    yield "type-huge", "UnknownValueType", keys(pair(b"key", 2**32 - 1, u32(1)))
    yield "array-type-13", "UnknownValueType", keys(pair(b"key", 9, u32(13) + u64(1) + u32(1)))
    nested = u32(9) + u64(1) + u32(4) + u64(1) + u32(1)
    yield "array-of-arrays", "NestedArray", keys(pair(b"key", 9, nested))
    deep = (u32(9) + u64(1)) * 4000 + u32(4) + u64(0)
    yield "array-4000-deep", "NestedArray", keys(pair(b"key", 9, deep))
    yield "bool-2", "BadBool", keys(pair(b"key", 7, b"\x02"), one)
    yield "bool-255-in-array", "BadBool", keys(pair(b"a", 9, u32(7) + u64(2) + b"\x01\xff"), one)
    number = Entry("general.architecture", "uint32", 7)
    yield "architecture-number", "WrongValueType", encode([number], [])
    wide = Entry("general.alignment", "uint64", 32)
    yield "alignment-uint64", "WrongValueType", encode([ARCH, wide], [])
    for value in (0, 24, 2**32 - 1):
        entry = Entry("general.alignment", "uint32", value)
        yield f"alignment-{value}", "BadAlignment", encode([ARCH, entry], [])


def tensors() -> Iterator[tuple[str, str, bytes]]:
    yield "name-empty", "EmptyTensorName", table(row(b""))
    yield "name-64-bytes", "TensorNameTooLong", table(row(b"n" * 64))
    yield "name-not-utf8", "BadText", table(row(b"\xff.weight"))
    yield "name-with-nul", "BadText", table(row(b"a\0b"))
    yield "name-twice", "DuplicateTensor", table(row(), row(offset=128))
    yield "five-dimensions", "TooManyDimensions", table(row(shape=(1, 1, 1, 1, 1)))
    yield "dimensions-huge", "TooManyDimensions", table(row(dimensions=2**32 - 1))
    yield "dimension-zero", "ZeroDimension", table(row(shape=(32, 0)))
    yield "dimension-all-zero", "ZeroDimension", table(row(shape=(0, 0, 0, 0)))
    yield "dimension-minus-one", "TensorTooLarge", table(row(shape=(HUGE,)))
    yield "product-wraps-to-zero", "TensorTooLarge", table(row(shape=(2**32, 2**32)))
    yield "product-wraps-to-one", "TensorTooLarge", table(row(shape=(2**33 + 1, 2**33 - 1, 2**31)))
    yield "bytes-wrap", "TensorTooLarge", table(row(shape=(2**62,), kind=28))
    yield "type-unknown", "UnknownTensorType", table(row(kind=200))
    yield "type-removed", "UnknownTensorType", table(row(kind=4))
    yield "type-minus-one", "UnknownTensorType", table(row(kind=2**32 - 1))
    yield "part-of-a-block", "PartialBlock", table(row(shape=(33,), kind=8))
    yield "absurd-size", "TensorBeyondFile", table(row(shape=(2**40,)))


def offsets() -> Iterator[tuple[str, str, bytes]]:
    def two(first: int, second: int, size: int = 8) -> bytes:
        rows = (Row("a.weight", (32, 2), 0, first), Row("b.weight", (size,), 0, second))
        return sound(rows=rows, data=1024)

    yield "offset-not-aligned", "MisalignedOffset", two(0, 260)
    yield "offset-same", "OverlappingTensors", two(0, 0)
    yield "offset-overlap", "OverlappingTensors", two(0, 224)
    yield "offset-overlap-first", "OverlappingTensors", two(32, 0, 64)
    yield "offset-gap", "UnexpectedOffset", two(0, 512)
    yield "offset-in-header", "UnexpectedOffset", two(2**64 - 256, 256)
    yield "offset-beyond-file", "UnexpectedOffset", two(0, 2**40)
    yield "offset-huge", "MisalignedOffset", two(0, HUGE)


def splits() -> Iterator[tuple[str, str, bytes]]:
    yield "renamed-shard", "BadSplitName", shard(0, 2, "a", 2)
    yield "alone-00001-of-00002", "SourceMissing", shard(0, 2, "a", 2)
    yield "late-00002-of-00002", "SourceMissing", shard(1, 2, "a", 2)
    yield "number-00001-of-00002", "ShardMismatch", shard(1, 2, "a", 2)
    yield "number-00002-of-00002", "ShardMismatch", shard(1, 2, "b", 2)
    yield "total-00001-of-00002", "ShardMismatch", shard(0, 2, "a", 3)
    yield "total-00002-of-00002", "ShardMismatch", shard(1, 2, "b", 3)
    yield "twice-00001-of-00002", "DuplicateTensor", shard(0, 2, "a", 2)
    yield "twice-00002-of-00002", "DuplicateTensor", shard(1, 2, "a", 2)
    yield "claims-65535-00001-of-65535", "SourceMissing", shard(0, 65535, "a", 2)
    yield "count-00001-of-00003", "BadSplitName", shard(0, 2, "a", 2)
    yield "number-00009-of-00002", "BadSplitName", shard(8, 2, "a", 2)
    count = [*BASE, Entry("split.count", "string", "2")]
    yield "count-is-text", "WrongValueType", sound(count, (), 0)


def attacks() -> dict[str, tuple[str, bytes]]:
    """File name to (error class, bytes)."""
    made: dict[str, tuple[str, bytes]] = {}
    for kind in (the_file, counts, metadata, tensors, offsets, splits):
        for name, error, data in kind():
            assert name not in made, name
            made[f"{kind.__name__}-{name}.gguf"] = (error, data)
    return made


if __name__ == "__main__":
    for old in HERE.glob("*.gguf"):
        old.unlink()
    for file_name, (_, content) in attacks().items():
        (HERE / file_name).write_bytes(content)
    print(f"{len(attacks())} attacks")
