"""A model file made from another: some of its facts and tensors changed, the rest as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Change = Callable[[Any], Any]
"""A tensor of gguf.GGUFReader -> its new data, `SAME`, or None to leave it out."""
SAME = object()


def edit(
    source: Path, target: Path, change: Change, facts: Mapping[str, Any] | None = None
) -> None:
    """`facts` replace metadata of the same type. New data keeps its own type, F32 or F16."""
    import gguf

    facts = facts or {}
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(str(target), architecture)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            part = field.types[1] if kind == gguf.GGUFValueType.ARRAY else None
            value = facts.get(field.name, field.contents())
            writer.add_key_value(field.name, value, kind, sub_type=part)
    for tensor in reader.tensors:
        data = change(tensor)
        if data is SAME:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        elif data is not None:
            writer.add_tensor(tensor.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def first_layers(source: Path, target: Path, count: int) -> None:
    """The model with its first `count` layers only: half the work, and not much sense."""
    import gguf

    architecture = str(gguf.GGUFReader(source).fields["general.architecture"].contents())

    def change(tensor: Any) -> Any:
        layer = tensor.name.split(".")[1] if tensor.name.startswith("blk.") else "0"
        return SAME if int(layer) < count else None

    edit(source, target, change, {f"{architecture}.block_count": count})


def large_keys(source: Path, target: Path, factor: float = 128.0) -> None:
    """A llama model of 64 values per head with a few keys far larger than the rest, as models with
    large key biases have them.

    The rows 2 and 3 of every key head, which llama's rotary embedding turns together, are made
    `factor` times as large and the same rows of the query heads that much smaller, so that every
    product of a query and a key stays what it was: in f16 it is the same model. A cache of 4 bits
    spends its range on that pair and loses the others.
    """
    import gguf

    def change(tensor: Any) -> Any:
        scale = {"attn_k.weight": factor, "attn_q.weight": 1 / factor}.get(
            tensor.name.split(".", 2)[-1]
        )
        if scale is None:
            return SAME
        rows = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        heads = rows.reshape(-1, 64, rows.shape[-1]).copy()
        heads[:, [2, 3]] *= scale
        return heads.reshape(rows.shape)

    edit(source, target, change)
