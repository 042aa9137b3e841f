"""SmolLM2 with a few keys far larger than the rest, as models with large key biases have them.

A rotary pair of every key head is made FACTOR times as large and the same pair of the query heads
that much smaller, so that every product of a query and a key stays what it was: in f16 it is the
same model. A cache of 4 bits spends its range on that pair and loses the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

FACTOR = 128.0
_HEAD_SIZE = 64
_PAIR = (2, 3)
"""Rows within a head: the pair that llama's rotary embedding turns together (b10605)."""


def write(source: Path, target: Path) -> None:
    """`source` = a llama model of 64 values per head; only attn_q and attn_k change, to F32."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(str(target), "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            part = field.types[1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=part)
    for tensor in reader.tensors:
        if "attn_q.weight" in tensor.name or "attn_k.weight" in tensor.name:
            factor = FACTOR if "attn_k" in tensor.name else 1 / FACTOR
            data = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, _scaled(data, factor))
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _scaled(rows: Any, factor: float) -> Any:
    heads = rows.reshape(-1, _HEAD_SIZE, rows.shape[-1]).copy()
    heads[:, list(_PAIR)] *= factor
    return heads.reshape(rows.shape)
