"""Split files: from any shard of a model to one Header with the tensors of all of them.

File names follow llama_split_path of llama.cpp b10605 (src/llama.cpp): NAME-00001-of-00003.gguf.
"""

from __future__ import annotations

import re
from dataclasses import replace

from kvwise.gguf.header import Header, Tensor
from kvwise.gguf.lies import BadSplitName, DuplicateTensor, ShardMismatch, WrongValueType, clip
from kvwise.gguf.reader import Arrays, read_header
from kvwise.gguf.source import Source, SourceMissing

_NAME = re.compile(
    r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL | re.ASCII
)
_NAMED_MISSING = 3


def shard_name(prefix: str, index: int, count: int) -> str:
    """The file name of shard `index` (from 0) of `count`."""
    return f"{prefix}-{index + 1:05d}-of-{count:05d}.gguf"


def read_model(source: Source, *, arrays: Arrays = ()) -> Header:
    """The header of a whole model, given any one of its files.

    Metadata is that of the first shard, as llama.cpp takes it. Raises what `read_header` raises,
    SourceMissing naming the shards that are not there, ShardMismatch and BadSplitName.
    """
    header = read_header(source, arrays=arrays)
    count = _number(header, "split.count", 0)
    if count <= 1:
        return header
    base = re.split(r"[/\\]", source.name)[-1]
    match = _NAME.fullmatch(base)
    if match is None or int(match["count"]) != count or not 1 <= int(match["number"]) <= count:
        raise BadSplitName(
            "{name} is one of {count} files of a model, and its name does not say which",
            name=clip(base), count=count,
            hint="give the files their names back: NAME-00001-of-{count:05d}.gguf",
        )  # fmt: skip
    here = int(match["number"]) - 1
    return _join(_read_all(source, match["prefix"], count, {here: header}, arrays))


def _read_all(
    source: Source, prefix: str, count: int, known: dict[int, Header], arrays: Arrays
) -> list[Header]:
    headers: list[Header] = []
    missing: list[str] = []
    for index in range(count):
        name = shard_name(prefix, index, count)
        try:
            shard = known.get(index) or _read_sibling(source, name, arrays)
        except SourceMissing:
            missing.append(name)
            if len(missing) > _NAMED_MISSING:  # a count of 65,535 may be a lie
                break
        else:
            _check_shard(shard, name, index, count)
            headers.append(shard)
    if missing:
        more = ["..."] if len(missing) > _NAMED_MISSING else []
        raise SourceMissing(
            "missing of this model's {count} files: {names}",
            count=count, names=", ".join(missing[:_NAMED_MISSING] + more),
            hint="download the rest into the same folder",
        )  # fmt: skip
    return headers


def _read_sibling(source: Source, name: str, arrays: Arrays) -> Header:
    other = source.sibling(name)
    try:
        return read_header(other, arrays=arrays)
    finally:
        other.close()


def _check_shard(shard: Header, name: str, index: int, count: int) -> None:
    number, total = _number(shard, "split.no", -1), _number(shard, "split.count", 0)
    if number != index or total != count:
        raise ShardMismatch(
            "{name} says it is file {number} of {total}, not {index} of {count}",
            name=clip(name), number=number + 1, total=total, index=index + 1, count=count,
        )  # fmt: skip


def _number(header: Header, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongValueType(
            "{key} is a {found}, it must be a {wanted}",
            key=key, found=header.value_types.get(key, ""), wanted="uint16",
        )  # fmt: skip
    return value


def _join(headers: list[Header]) -> Header:
    tensors: dict[str, Tensor] = {}
    for index, header in enumerate(headers):
        for tensor in header.tensors:
            if tensor.name in tensors:
                raise DuplicateTensor("the tensor {name} is there twice", name=clip(tensor.name))
            tensors[tensor.name] = replace(tensor, shard=index) if index else tensor
    first = headers[0]
    claimed = _number(first, "split.tensors.count", len(tensors))
    if claimed != len(tensors):
        raise ShardMismatch(
            "the first file claims {claimed} tensors, the {count} files have {found}",
            claimed=claimed, count=len(headers), found=len(tensors),
        )  # fmt: skip
    return replace(
        first, tensors=tuple(tensors.values()), shards=tuple(header.path for header in headers)
    )
