"""Split models: any file stands for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvwise.gguf import lies
from kvwise.gguf.open import open_header
from kvwise.gguf.source import SourceMissing
from kvwise.gguf.split import shard_name
from kvwise.gguf.writer import Entry, Row, encode

COUNT = 4


def _write(folder: Path, **changes: object) -> list[Path]:
    paths = []
    for index in range(COUNT):
        entries = [
            Entry("split.no", "uint16", index),
            Entry("split.count", "uint16", COUNT),
            Entry("split.tensors.count", "int32", changes.get("total", 6)),
        ]
        if index == 0:
            entries.insert(0, Entry("general.architecture", "string", "llama"))
        # the first file without tensors, as gguf-split --no-tensor-first-split writes it
        size = 32 * (index + 1)
        rows = [Row(f"t{index}.{j}", (8, index + 1), 0, size * j) for j in range(2 if index else 0)]
        raw = encode(entries, rows)
        data = bytes(-len(raw) % 32 + 256) if rows else b""
        path = folder / shard_name("a model-00001-of-00002", index, COUNT)
        path.write_bytes(raw + data)
        paths.append(path)
    return paths


@pytest.mark.parametrize("index", range(COUNT))
def test_any_shard_opens_the_whole_model(index: int, tmp_path: Path) -> None:
    paths = _write(tmp_path)
    header = open_header(str(paths[index]))
    assert header.architecture == "llama"
    assert [(row.name, row.shard) for row in header.tensors] == [
        (f"t{shard}.{j}", shard) for shard in range(1, COUNT) for j in range(2)
    ]
    assert [Path(name).name for name in header.shards] == [path.name for path in paths]
    assert header.path == str(paths[0])
    assert header.tensor_bytes == sum(2 * 8 * 4 * (index + 1) for index in range(1, COUNT))


def test_missing_shards_are_named(tmp_path: Path) -> None:
    paths = _write(tmp_path)
    paths[1].unlink()
    paths[3].unlink()
    with pytest.raises(SourceMissing) as caught:
        open_header(str(paths[2]))
    assert paths[1].name in str(caught.value)
    assert paths[3].name in str(caught.value)
    assert paths[0].name not in str(caught.value)


def test_a_renamed_shard_is_asked_for_its_name(tmp_path: Path) -> None:
    path = _write(tmp_path)[0].rename(tmp_path / "model.gguf")
    with pytest.raises(lies.BadSplitName):
        open_header(str(path))


def test_swapped_shards_are_noticed(tmp_path: Path) -> None:
    paths = _write(tmp_path)
    paths[1].write_bytes(paths[2].read_bytes())
    with pytest.raises(lies.ShardMismatch):
        open_header(str(paths[0]))


def test_a_wrong_total_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(lies.ShardMismatch, match="claims 7"):
        open_header(str(_write(tmp_path, total=7)[3]))


def test_a_broken_shard_says_so(tmp_path: Path) -> None:
    paths = _write(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-200])
    with pytest.raises(lies.TensorBeyondFile):
        open_header(str(paths[0]))
