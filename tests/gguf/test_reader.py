"""What is written is read back, in every version and byte order, and agrees with gguf-py."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.errors import HeaderError
from kvwise.gguf import lies
from kvwise.gguf.header import ArrayInfo, Header
from kvwise.gguf.open import open_header
from kvwise.gguf.reader import KEPT_NUMBERS, KEPT_STRINGS, read_header
from kvwise.gguf.source import BytesSource
from kvwise.gguf.types import BY_ID
from kvwise.gguf.values import SCALAR_BY_NAME
from kvwise.gguf.writer import Entry, Row, encode
from kvwise.units import pad

BITS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
SIGNED = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def _scalars(kind: str) -> st.SearchStrategy[Any]:
    if kind in BITS:
        return st.integers(0, 2 ** BITS[kind] - 1)
    if kind in SIGNED:
        top = 2 ** (SIGNED[kind] - 1)
        return st.integers(-top, top - 1)
    if kind == "bool":
        return st.booleans()
    if kind == "string":
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    return st.floats(width=32 if kind == "float32" else 64, allow_nan=False)


@st.composite
def _entries(draw: st.DrawFn) -> list[Entry]:
    names = st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
    ).filter(lambda name: name not in {"general.alignment", "general.architecture"})
    entries = []
    for key in draw(st.lists(names, max_size=8, unique=True)):
        kind = draw(st.sampled_from([*SCALAR_BY_NAME, "string"]))
        if draw(st.booleans()):
            entries.append(Entry(key, kind, draw(_scalars(kind))))
        else:
            values = draw(st.lists(_scalars(kind), max_size=12))
            entries.append(Entry(key, f"[{kind}]", values))
    return entries


@st.composite
def _rows(draw: st.DrawFn, alignment: int) -> tuple[list[Row], int]:
    rows, offset = [], 0
    names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=63)
    for name in draw(st.lists(names, max_size=6, unique=True)):
        kind = BY_ID[draw(st.sampled_from(sorted(BY_ID)))]
        rest = draw(st.lists(st.integers(1, 5), max_size=3))
        shape = (draw(st.integers(1, 4)) * kind.block, *rest)
        rows.append(Row(name, shape, kind.id, offset))
        offset = pad(offset + kind.row_bytes(shape[0]) * math.prod(rest), alignment)
    return rows, offset


def _source(data: bytes, alignment: int, size: int) -> BytesSource:
    """A source that has its data area only in its size: tensor data is never touched."""
    source = BytesSource(data)
    source.size = pad(len(data), alignment) + size
    return source


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_the_writer_writes_the_reader_reads(data: st.DataObject) -> None:
    alignment = data.draw(st.sampled_from([1, 8, 32, 64, 4096]))
    entries = [*data.draw(_entries()), Entry("general.alignment", "uint32", alignment)]
    rows, size = data.draw(_rows(alignment))
    version, order = (
        data.draw(st.sampled_from([2, 3])),
        data.draw(st.sampled_from(["little", "big"])),
    )
    raw = encode(entries, rows, version=version, byte_order=order)
    header = read_header(_source(raw, alignment, size), arrays="all")
    assert (header.version, header.byte_order, header.alignment) == (version, order, alignment)
    assert header.value_types == {entry.key: entry.kind for entry in entries}
    for entry in entries:
        value = tuple(entry.value) if isinstance(entry.value, list) else entry.value
        assert header.metadata[entry.key] == value
    found = [(row.name, row.shape, row.type.id, row.offset) for row in header.tensors]
    assert found == [(row.name, tuple(row.shape), row.type_id, row.offset) for row in rows]
    assert header.data_offset == (pad(len(raw), alignment) if rows else len(raw))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 40))
def test_damage_never_escapes_as_another_error(noise: bytes, at: int, cut: int) -> None:
    entries = [
        Entry("general.architecture", "string", "llama"),
        Entry("tokenizer.ggml.tokens", "[string]", ["a"] * 70),
        Entry("llama.layers", "[int32]", [1, 2, 3]),
    ]
    raw = encode(entries, [Row("a", (32, 2), 0, 0)])
    raw = raw[:at] + noise + raw[at + cut :]
    try:
        read_header(_source(raw, 32, 256))
    except lies.HeaderError as error:
        assert "\n" not in str(error)


def test_big_arrays_are_counted_and_small_ones_kept() -> None:
    entries = [
        Entry("small", "[int32]", range(KEPT_NUMBERS)),
        Entry("big", "[uint16]", range(KEPT_NUMBERS + 1)),
        Entry("labels", "[string]", ["é"] * KEPT_STRINGS),
        Entry("tokens", "[string]", ["x" * index for index in range(KEPT_STRINGS + 1)]),
        Entry("last", "uint8", 7),
    ]
    raw = encode(entries, [])
    header = read_header(BytesSource(raw))
    assert header.metadata["small"] == tuple(range(KEPT_NUMBERS))
    assert header.metadata["big"] == ArrayInfo("uint16", KEPT_NUMBERS + 1)
    assert header.metadata["labels"] == ("é",) * KEPT_STRINGS
    assert header.metadata["tokens"] == ArrayInfo("string", KEPT_STRINGS + 1)
    assert header.metadata["last"] == 7
    asked = read_header(BytesSource(raw), arrays={"tokens"})
    assert asked.metadata["tokens"] == tuple("x" * index for index in range(KEPT_STRINGS + 1))
    assert isinstance(asked.metadata["big"], ArrayInfo)
    none = read_header(BytesSource(raw), arrays="none")
    assert none.metadata["small"] == ArrayInfo("int32", KEPT_NUMBERS)
    assert none.metadata["labels"] == ArrayInfo("string", KEPT_STRINGS)


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("length", [0, 1, 255, 256, 65_535, 300_000, 1_000_000])
def test_strings_longer_than_a_window_are_walked(length: int, order: str) -> None:
    words = ["x" * length, "", "é" * 70_000] * 30 + ["end"]
    if length > 256:
        words = words[:7] + ["y"] * 90
    raw = encode(
        [Entry("t", "[string]", words), Entry("after", "string", "here")], [], byte_order=order
    )
    header = read_header(BytesSource(raw))
    assert header.metadata == {"t": ArrayInfo("string", len(words)), "after": "here"}


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("seed", range(4))
def test_vocabularies_of_all_lengths_are_walked(order: str, seed: int) -> None:
    """Short tokens are passed over by the run, longer ones and the last ones one by one."""
    dice = random.Random(seed)
    sizes = [dice.choice((0, 1, 5, 6, 7, 63, 64)) for _ in range(5_000)]
    sizes += [dice.choice((3, 9)) for _ in range(3_000)] + [70_000, 5, 255, 256, 300_000]
    sizes += [dice.choice((6, 200)) if dice.random() < 0.01 else 4 for _ in range(9_000)]
    tokens = ["\x01" * size for size in sizes]
    entries = [Entry("tokens", "[string]", tokens), Entry("after", "uint32", seed)]
    data = encode(entries, [], byte_order=order)
    header = read_header(BytesSource(data))
    assert header.metadata["tokens"] == ArrayInfo("string", len(tokens))
    assert header.metadata["after"] == seed
    for _ in range(20):
        with pytest.raises(HeaderError):
            read_header(BytesSource(data[: dice.randrange(len(data) - 20)]))


def test_tokens_that_are_not_utf8_come_back_as_the_same_bytes() -> None:
    word = b"\xff\xfe".decode("utf-8", "surrogateescape")
    raw = encode([Entry("tokenizer.ggml.tokens", "[string]", [word, "a"])], [])
    header = read_header(BytesSource(raw))
    assert header.metadata["tokenizer.ggml.tokens"] == (word, "a")
    assert encode([Entry("tokenizer.ggml.tokens", "[string]", [word, "a"])], []) == raw


def test_a_tensor_without_dimensions_is_one_element() -> None:
    raw = encode([], [Row("limit", (), 0, 0)])
    header = read_header(_source(raw, 32, 32))
    assert header.tensors[0].shape == (1,)
    assert header.tensors[0].nbytes == 4


def test_an_unknown_tensor_type_names_tensor_and_type() -> None:
    raw = encode([], [Row("blk.0.new.weight", (32,), 77, 0)])
    with pytest.raises(lies.UnknownTensorType, match=r"blk\.0\.new\.weight .* 77") as caught:
        read_header(_source(raw, 32, 128))
    assert "newer" in str(caught.value.hint)


def test_control_characters_of_a_file_do_not_reach_the_terminal() -> None:
    raw = encode([Entry("a\x1b[31m\n", "uint32", 1), Entry("a\x1b[31m\n", "uint32", 1)], [])
    with pytest.raises(lies.DuplicateKey) as caught:
        read_header(BytesSource(raw))
    assert str(caught.value).isprintable()


def test_agrees_with_gguf_py(tmp_path: Path) -> None:
    """A file that gguf's own writer made, read by us and by its reader."""
    import numpy as np

    gguf = pytest.importorskip("gguf")
    path = tmp_path / "made.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_custom_alignment(64)
    writer.add_block_count(2)
    writer.add_array("llama.list", [1, 2, 3])
    writer.add_array("llama.words", ["a", "bé"])
    writer.add_float64("llama.double", 0.1)
    writer.add_int8("llama.small", -3)
    writer.add_bool("llama.yes", True)
    kinds = (np.float32, np.float16, np.int8, np.int64)
    for index, kind in enumerate(kinds):
        writer.add_tensor(f"t{index}", np.zeros((3 + index, 5), dtype=kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    ours, theirs = open_header(str(path)), gguf.GGUFReader(str(path))
    assert ours.alignment == 64
    assert ours.metadata["llama.list"] == (1, 2, 3)
    assert ours.metadata["llama.words"] == ("a", "bé")
    assert ours.metadata["llama.double"] == 0.1
    assert ours.metadata["llama.small"] == -3
    assert ours.metadata["llama.yes"] is True
    _same_tensors(ours, theirs)


def _same_tensors(ours: Header, theirs: Any) -> None:
    assert ours.data_offset == theirs.data_offset
    found = [(t.name, t.shape, t.nbytes, t.offset + ours.data_offset) for t in ours.tensors]
    assert found == [
        (t.name, tuple(map(int, t.shape)), int(t.n_bytes), int(t.data_offset))
        for t in theirs.tensors
    ]


def test_every_ggml_type_agrees_with_gguf_py() -> None:
    gguf = pytest.importorskip("gguf")
    for kind in gguf.GGMLQuantizationType:
        if kind.name == "Q8_1":
            continue  # gguf-py still has the float32 scales of 2023 (40 bytes); ggml has 36
        block, size = gguf.GGML_QUANT_SIZES[kind]
        ours = BY_ID[int(kind)]
        assert (ours.name.lower(), ours.block, ours.size) == (kind.name.lower(), block, size)
