"""Zoo JSON: what it describes, and every way it can lie."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.errors import HeaderError
from kvwise.gguf.lies import BadZoo
from kvwise.gguf.open import open_header
from kvwise.gguf.source import BytesSource
from kvwise.gguf.zoo import MAX_BYTES, read_zoo
from zoo_files import ZOO, load_json, zoo_names

SOUND: dict[str, Any] = {
    "metadata": {"general.architecture": "llama", "llama.block_count": 3},
    "tensors": [["blk.{i}.w", [32, 2], "q8_0", 68, "0-1,2"], ["out", [4], "f32", 16, None]],
}


def _read(document: object) -> Any:
    return read_zoo(BytesSource(json.dumps(document).encode(), "x.json"))


@pytest.mark.parametrize("name", zoo_names())
def test_every_model_of_the_zoo_opens(name: str) -> None:
    path = ZOO / "models" / f"{name}.json.gz"
    header, document = open_header(str(path)), load_json(path)
    assert header.architecture == document["architecture"]
    assert len(header.tensors) == document["n_tensors"]
    assert header.tensor_bytes == document["tensor_bytes"]
    assert header.metadata.keys() == document["metadata"].keys()


def test_types_and_offsets() -> None:
    document = json.loads(json.dumps(SOUND))
    document["metadata"] |= {
        "i": -1, "u": 7, "big": 2**40, "f": 0.1, "b": True, "s": "x",
        "ai": [1, -1], "af": [0.5, 1.0], "ab": [True, False], "as": ["x"], "am": [1, 0.5],
    }  # fmt: skip
    header = _read(document)
    expected = {
        "i": "int32", "u": "uint32", "big": "uint64", "f": "float32", "b": "bool", "s": "string",
        "ai": "[int32]", "af": "[float32]", "ab": "[bool]", "as": "[string]", "am": "[float32]",
    }  # fmt: skip
    assert {key: header.value_types[key] for key in expected} == expected
    assert header.metadata["f"] == 0.10000000149011612
    assert header.metadata["ab"] == (True, False)
    assert [(row.name, row.offset) for row in header.tensors] == [
        ("out", 0), ("blk.0.w", 32), ("blk.1.w", 128), ("blk.2.w", 224),
    ]  # fmt: skip


def test_tensors_lie_as_converters_write_them_layer_by_layer() -> None:
    names = ("output.weight", "blk.{i}.b.weight", "blk.{i}.a.weight", "token_embd.weight")
    document = json.loads(json.dumps(SOUND))
    document["tensors"] = [
        [name, [32, 3], "f32", 384, "0-1" if "{i}" in name else None] for name in names
    ]
    assert [row.name for row in _read(document).tensors] == [
        "token_embd.weight",
        "blk.0.b.weight", "blk.0.a.weight", "blk.1.b.weight", "blk.1.a.weight",
        "output.weight",
    ]  # fmt: skip


def _changed(**changes: object) -> dict[str, Any]:
    return {**SOUND, **changes}


ROW = ["w", [32], "f32", 128, None]
LIES = {
    "not an object": [1],
    "no tensors": {"metadata": {}},
    "metadata a list": _changed(metadata=[]),
    "tensors an object": _changed(tensors={}),
    "no architecture": _changed(metadata={"a": 1}),
    "architecture a number": _changed(metadata={"general.architecture": 1}),
    "value null": _changed(metadata={**SOUND["metadata"], "x": None}),
    "value an object": _changed(metadata={**SOUND["metadata"], "x": {}}),
    "value a nested list": _changed(metadata={**SOUND["metadata"], "x": [[1]]}),
    "value a mixed list": _changed(metadata={**SOUND["metadata"], "x": [1, "a"]}),
    "value bool and int": _changed(metadata={**SOUND["metadata"], "x": [1, True]}),
    "value too large": _changed(metadata={**SOUND["metadata"], "x": 2**64}),
    "key empty": _changed(metadata={**SOUND["metadata"], "": 1}),
    "a lone surrogate": _changed(metadata={**SOUND["metadata"], "x": "\ud800"}),
    "alignment": _changed(metadata={**SOUND["metadata"], "general.alignment": 24}),
    "alignment text": _changed(metadata={**SOUND["metadata"], "general.alignment": "32"}),
    "count": _changed(n_tensors=5),
    "bytes": _changed(tensor_bytes=1),
    "row short": _changed(tensors=[ROW[:4]]),
    "row a string": _changed(tensors=["abcde"]),
    "name a number": _changed(tensors=[[1, *ROW[1:]]]),
    "name empty": _changed(tensors=[["", *ROW[1:]]]),
    "name long": _changed(tensors=[["n" * 64, *ROW[1:]]]),
    "name surrogate": _changed(tensors=[["\ud800", *ROW[1:]]]),
    "shape a number": _changed(tensors=[["w", 32, *ROW[2:]]]),
    "shape empty": _changed(tensors=[["w", [], *ROW[2:]]]),
    "shape of floats": _changed(tensors=[["w", [1.5], *ROW[2:]]]),
    "shape of bools": _changed(tensors=[["w", [True], *ROW[2:]]]),
    "shape zero": _changed(tensors=[["w", [0], *ROW[2:]]]),
    "shape negative": _changed(tensors=[["w", [-32], *ROW[2:]]]),
    "shape of five": _changed(tensors=[["w", [1] * 5, *ROW[2:]]]),
    "shape huge": _changed(tensors=[["w", [2**70], *ROW[2:]]]),
    "type unknown": _changed(tensors=[["w", [32], "q99", 1, None]]),
    "type a number": _changed(tensors=[["w", [32], 0, 128, None]]),
    "half a block": _changed(tensors=[["w", [33], "q8_0", 1, None]]),
    "nbytes wrong": _changed(tensors=[["w", [32], "f32", 127, None]]),
    "nbytes text": _changed(tensors=[["w", [32], "f32", "128", None]]),
    "twice": _changed(tensors=[ROW, ROW]),
    "layers without i": _changed(tensors=[["w", [32], "f32", 128, "0-3"]]),
    "layers overlap": _changed(tensors=[["w{i}", [32], "f32", 128, "0-3,3"]]),
    "layers words": _changed(tensors=[["w{i}", [32], "f32", 128, "all"]]),
    "layers a number": _changed(tensors=[["w{i}", [32], "f32", 128, 3]]),
    "layers newline": _changed(tensors=[["w{i}", [32], "f32", 128, "0-3\n"]]),
    "layers without end": _changed(tensors=[["w{i}", [32], "f32", 128, "0-99999"]]),
    "too many": _changed(tensors=[[f"{j}.{{i}}", [1], "f32", 4, "0-65535"] for j in range(9)]),
}  # fmt: skip


@pytest.mark.parametrize("what", LIES)
def test_every_lie_is_a_header_error(what: str) -> None:
    with pytest.raises(HeaderError) as caught:
        _read(LIES[what])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[" * 200_000, b"\xff\xfe", b'{"metadata":1e999,"tensors":[]}', b"\x1f\x8b",
        b"\x1f\x8bnot gzip at all", gzip.compress(b"{}")[:-9], b"9" * 10_000,
        b'{"metadata":{"a":1,"a":2},"tensors":[]}',
        gzip.compress(bytes(MAX_BYTES + 1)),
    ],
    ids=["empty", "cut", "deep", "not-utf8", "infinite", "gzip-cut", "gzip-bad", "gzip-short",
         "long-number", "key-twice", "gzip-bomb"],
)  # fmt: skip
def test_what_is_no_json(raw: bytes) -> None:
    with pytest.raises(BadZoo) as caught:
        read_zoo(BytesSource(raw, "x.json"))
    assert "\n" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(JSON, JSON)
def test_any_json_gives_a_header_or_a_header_error(metadata: object, tensors: object) -> None:
    base = {"general.architecture": "x"} | (metadata if isinstance(metadata, dict) else {})
    for document in (
        _changed(metadata=base),
        _changed(tensors=tensors),
        _changed(tensors=[tensors]),
    ):
        try:
            _read(document)
        except HeaderError as error:
            assert "\n" not in str(error)


def test_a_gguf_named_json_is_read_as_a_gguf(tmp_path: Path) -> None:
    from kvwise.gguf.writer import write_twin

    path = tmp_path / "odd.json"
    write_twin(_read(SOUND), path)
    assert open_header(str(path)).architecture == "llama"
