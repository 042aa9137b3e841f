"""Twins: the header of a model without its data, sparse, and the same to every reader."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kvwise.errors import ModelError, SourceError
from kvwise.gguf.header import ArrayInfo, Header
from kvwise.gguf.open import open_header
from kvwise.gguf.reader import read_header
from kvwise.gguf.source import BytesSource
from kvwise.gguf.writer import Entry, Row, encode, write_twin
from zoo_files import ZOO, zoo_names


def _zoo(name: str) -> Header:
    return open_header(str(ZOO / "models" / f"{name}.json.gz"))


def _facts(header: Header) -> tuple[object, ...]:
    return header.metadata, header.value_types, header.tensors, header.alignment


@pytest.mark.parametrize(
    ("version", "order"), [(3, "little"), (2, "little"), (3, "big"), (2, "big")]
)
def test_a_twin_says_what_the_zoo_says(version: int, order: str, tmp_path: Path) -> None:
    for name in zoo_names()[:: 1 if (version, order) == (3, "little") else 11]:
        header = _zoo(name)
        size = write_twin(header, tmp_path / "t.gguf", version=version, byte_order=order)
        twin = open_header(str(tmp_path / "t.gguf"))
        assert _facts(twin) == _facts(header), name
        assert (twin.version, twin.byte_order) == (version, order)
        assert size == (tmp_path / "t.gguf").stat().st_size >= header.tensor_bytes


@pytest.mark.skipif(sys.platform == "win32", reason="counts blocks of the file system")
def test_a_twin_of_gigabytes_takes_kilobytes(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    assert write_twin(_zoo("qwen3-8b"), path) > 4 * 1024**3
    assert path.stat().st_blocks * 512 < 256 * 1024


def test_a_twin_is_sound_to_gguf_py(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    header = _zoo("tiny-llama")
    write_twin(header, tmp_path / "t.gguf")
    theirs = gguf.GGUFReader(str(tmp_path / "t.gguf"))
    assert [row.name for row in theirs.tensors] == [row.name for row in header.tensors]
    assert theirs.fields["llama.block_count"].contents() == header.metadata["llama.block_count"]


def _with_tokens(count: int = 100) -> bytes:
    return encode(
        [
            Entry("general.architecture", "string", "llama"),
            Entry("llama.vocab_size", "uint32", 1),
            Entry("tokenizer.ggml.model", "string", "gpt2"),
            Entry("tokenizer.ggml.tokens", "[string]", [str(index) for index in range(count)]),
            Entry("tokenizer.ggml.scores", "[float32]", [0.5] * 5000),
            Entry("llama.labels", "[string]", ["x"] * 90),
        ],
        [],
    )


def test_a_vocabulary_that_was_not_kept_becomes_its_size(tmp_path: Path) -> None:
    header = read_header(BytesSource(_with_tokens()))
    assert isinstance(header.metadata["tokenizer.ggml.tokens"], ArrayInfo)
    write_twin(header, tmp_path / "t.gguf")
    twin = open_header(str(tmp_path / "t.gguf"))
    assert twin.metadata["tokenizer.ggml.model"] == "no_vocab"
    assert twin.metadata["llama.vocab_size"] == 100
    assert twin.metadata["llama.labels"] == ArrayInfo("string", 90)
    assert "tokenizer.ggml.scores" not in twin.metadata


def test_a_vocabulary_that_was_kept_is_copied_to_the_byte(tmp_path: Path) -> None:
    raw = _with_tokens()
    write_twin(read_header(BytesSource(raw), arrays="all"), tmp_path / "t.gguf")
    assert (tmp_path / "t.gguf").read_bytes() == raw


def test_a_counted_array_of_numbers_has_no_stand_in(tmp_path: Path) -> None:
    raw = encode([Entry("llama.table", "[float32]", [0.0] * 5000)], [])
    with pytest.raises(ModelError, match=r"llama\.table"):
        write_twin(read_header(BytesSource(raw)), tmp_path / "t.gguf")
    assert not list(tmp_path.iterdir())


def test_a_split_model_becomes_one_file(tmp_path: Path) -> None:
    header = _zoo("tiny-llama")
    metadata = {**header.metadata, "split.no": 0, "split.count": 2, "split.tensors.count": 9}
    second = tuple(replace(row, shard=1, offset=0) for row in header.tensors[4:])
    split = replace(header, metadata=metadata, tensors=header.tensors[:4] + second)
    write_twin(split, tmp_path / "t.gguf")
    assert _facts(open_header(str(tmp_path / "t.gguf"))) == _facts(header)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot write"):
        write_twin(_zoo("tiny-llama"), tmp_path / "absent" / "t.gguf")


def test_rows_are_written_as_told() -> None:
    raw = encode([], [Row("a", (1, 2, 3, 4, 5), 999, 7)], n_tensors=3, n_keys=9)
    assert raw[8:24] == (3).to_bytes(8, "little") + (9).to_bytes(8, "little")
