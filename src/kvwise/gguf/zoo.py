"""Zoo JSON to Header: a model described by its metadata and tensor table, without a file.

The format is that of tests/zoo/README.md. As hostile as any file: every lie is a HeaderError.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from kvwise.gguf.header import Header, Scalar, Tensor, Value
from kvwise.gguf.lies import BadZoo, DuplicateTensor, UnknownTensorType, clip, plain
from kvwise.gguf.source import Source
from kvwise.gguf.table import MAX_NAME_BYTES, MAX_TENSORS, check_shape
from kvwise.gguf.types import by_name
from kvwise.gguf.values import element_type, float32, type_of
from kvwise.units import pad

MAX_BYTES: Final = 16 * 1024 * 1024
"""Of the JSON text, unpacked."""

MAX_LAYER: Final = 65_536
_LAYER = re.compile(r"\bblk\.(\d+)\.")
_LAYERS = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", re.ASCII)


def read_zoo(source: Source) -> Header:
    """The header that a zoo JSON (plain or gzip) describes. Raises HeaderError, SourceError."""
    document = _parse(_text(source), source.name)
    metadata, types = _metadata(document.get("metadata"))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise BadZoo("general.alignment is {value}, not a power of two", value=alignment)
    header = Header(
        version=3,
        metadata=metadata,
        tensors=_tensors(document.get("tensors"), alignment),
        alignment=alignment,
        path=source.name,
        shards=(source.name,),
        value_types=types,
    )
    for key, found in (("n_tensors", len(header.tensors)), ("tensor_bytes", header.tensor_bytes)):
        if document.get(key, found) != found:
            raise BadZoo(
                "{key} is {claimed}, the table adds up to {found}",
                key=key, claimed=clip(str(document[key])), found=found,
            )  # fmt: skip
    return header


def _text(source: Source) -> bytes:
    if source.size > MAX_BYTES:
        raise BadZoo(
            "{name} has more than {ceiling} bytes", name=plain(source.name), ceiling=MAX_BYTES
        )
    raw = bytearray()
    while len(raw) < source.size:
        part = source.read(len(raw), source.size - len(raw))
        if not part:
            break
        raw += part
    if raw[:2] != b"\x1f\x8b":
        return bytes(raw)
    return _unpack(bytes(raw), source.name)


def _unpack(raw: bytes, name: str) -> bytes:
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(raw, MAX_BYTES + 1)
    except zlib.error as error:
        raise BadZoo("{name} is not sound gzip: {why}", name=plain(name), why=str(error)) from error
    if len(text) > MAX_BYTES:
        raise BadZoo(
            "{name} unpacks to more than {ceiling} bytes", name=plain(name), ceiling=MAX_BYTES
        )
    if not unpacker.eof:
        raise BadZoo("{name} ends inside its gzip data", name=plain(name))
    return text


def _parse(text: bytes, name: str) -> dict[str, Any]:
    try:
        document = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else clip(str(error))
        raise BadZoo("{name} is not JSON: {why}", name=plain(name), why=why) from error
    if not isinstance(document, dict) or not {"metadata", "tensors"} <= document.keys():
        raise BadZoo(
            "{name} is JSON and not a model: it has no metadata and tensors",
            name=plain(name), hint="see tests/zoo/README.md for the format",
        )  # fmt: skip
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the same key twice in one object")
    return found


def _metadata(given: object) -> tuple[dict[str, Value], dict[str, str]]:
    if not isinstance(given, dict):
        raise BadZoo("metadata is not an object")
    values: dict[str, Value] = {}
    types: dict[str, str] = {}
    for key, value in given.items():
        if not key or "\0" in key:
            raise BadZoo("a metadata key is empty or has a NUL in it")
        try:
            if isinstance(value, list):
                element = element_type(value)
                types[key] = f"[{element}]"
                values[key] = tuple(_scalar(item, element) for item in value)
            else:
                types[key] = type_of(value)
                values[key] = _scalar(value, types[key])
        except (ValueError, OverflowError) as error:
            raise BadZoo(
                "the value of {key} is not one that GGUF can hold", key=clip(key)
            ) from error
    if not isinstance(values.get("general.architecture"), str):
        raise BadZoo("general.architecture is missing or not a string")
    return values, types


def _scalar(value: Any, kind: str) -> Scalar:
    if kind == "string":
        value.encode()  # a lone surrogate is not text: UnicodeEncodeError is a ValueError
        return str(value)
    return float32(value) if kind == "float32" else value


def _tensors(given: object, alignment: int) -> tuple[Tensor, ...]:
    if not isinstance(given, list):
        raise BadZoo("tensors is not a list")
    tensors: dict[str, Tensor] = {}
    for tensor, claimed in chain.from_iterable(map(_row, given)):
        if tensor.name in tensors:
            raise DuplicateTensor("the tensor {name} is there twice", name=clip(tensor.name))
        if claimed not in (None, tensor.nbytes):
            raise BadZoo(
                "the tensor {name} claims {claimed} bytes, its shape and type make {found}",
                name=clip(tensor.name), claimed=clip(str(claimed)), found=tensor.nbytes,
            )  # fmt: skip
        tensors[tensor.name] = tensor
        if len(tensors) > MAX_TENSORS:
            raise BadZoo("more than {ceiling} tensors", ceiling=MAX_TENSORS)
    return _laid_out(tensors.values(), alignment)


def _laid_out(tensors: Iterable[Tensor], alignment: int) -> tuple[Tensor, ...]:
    """Offsets in the order converters write: the spans that mmap covers depend on it."""
    placed = []
    offset = 0
    for tensor in sorted(tensors, key=_file_order):
        placed.append(Tensor(tensor.name, tensor.shape, tensor.type, offset))
        offset = pad(offset + tensor.nbytes, alignment)
    return tuple(placed)


def _file_order(tensor: Tensor) -> tuple[int, int]:
    """Embeddings first, then layer by layer, the output last."""
    layer = _LAYER.search(tensor.name)
    if layer:
        return 1, int(layer[1])
    return (2 if tensor.name.startswith("output") else 0), 0


def _row(row: object) -> Iterator[tuple[Tensor, object]]:
    """The tensors of one row `[name, shape, type, nbytes, layers]`, and the bytes it claims."""
    if not isinstance(row, list) or len(row) != 5:
        raise BadZoo("a tensor row is not [name, shape, type, nbytes, layers]")
    pattern, shape, type_name, claimed, layers = row
    if not isinstance(pattern, str) or not pattern or "\0" in pattern:
        raise BadZoo("a tensor has no name")
    if not _is_shape(shape):
        raise BadZoo("the shape of {name} is not a list of sizes", name=clip(pattern))
    kind = by_name(type_name) if isinstance(type_name, str) else None
    if kind is None:
        raise UnknownTensorType(
            "the tensor {name} has type {type}, which this kvwise does not know",
            name=clip(pattern), type=clip(str(type_name)), hint="update kvwise",
        )  # fmt: skip
    check_shape(pattern, shape, kind)
    for name in _names(pattern, layers):
        yield Tensor(name, tuple(shape), kind), claimed


def _is_shape(shape: object) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) > 0
        and all(isinstance(size, int) and not isinstance(size, bool) for size in shape)
    )


def _names(pattern: str, layers: object) -> Iterator[str]:
    if layers is None:
        names: Iterator[str] = iter((pattern,))
    elif isinstance(layers, str) and _LAYERS.fullmatch(layers) and "{i}" in pattern:
        names = (pattern.replace("{i}", str(layer)) for layer in _layers(layers))
    else:
        raise BadZoo("the layers of {name} are not like 0-3,6,9", name=clip(pattern))
    for name in names:
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise BadZoo("the tensor name {name} is not text", name=clip(name)) from error
        if size > MAX_NAME_BYTES:
            raise BadZoo("the tensor name {name} is too long for ggml", name=clip(name))
        yield name


def _layers(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        for layer in range(int(first), int(last or first) + 1):
            if layer > MAX_LAYER:
                raise BadZoo("layer {layer} is beyond any model", layer=layer)
            yield layer
