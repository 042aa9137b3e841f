"""A model that exists only as numbers: `24x16x48` layers, heads and head size -> Header.

For arithmetic with shapes out of a paper or a forum post. It is a plain llama-like model; its
weights are counted only if their `type` is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from kvwise.errors import UsageError
from kvwise.gguf.header import Header, Tensor, Value
from kvwise.gguf.types import F32, GGMLType, by_name
from kvwise.units import pad

_SHAPE = re.compile(r"^(\d+)x(\d+)x(\d+)$", re.ASCII)
_SIZES = ("kv", "embd", "ff", "vocab", "ctx")
_MOST = 1 << 24
ALIGNMENT = 32  # general.alignment's default
_HINT = "write LAYERSxHEADSxHEAD_SIZE[,kv=8,embd=1024,ff=3072,vocab=32000,ctx=32768,type=q8_0]"


def header_of_shape(text: str) -> Header:
    """The header of a shape: `24x16x48`, `36x32x128,kv=8,embd=4096,ff=12288,type=q4_K`.

    Absent: kv = heads, embd = heads x head size, ff = 4 x embd, vocab = 32,000, ctx = 131,072.
    Raises UsageError.
    """
    first, *rest = text.replace(" ", "").split(",")
    match = _SHAPE.match(first)
    if not match:
        raise UsageError("{text!r} is not a shape", text=text[:80], hint=_HINT)
    layers, heads, size = (_count(text, number) for number in match.groups())
    width = heads * size
    sizes = {"kv": heads, "embd": width, "ff": 4 * width, "vocab": 32000, "ctx": 131072}
    kind: GGMLType | None = None
    for pair in rest:
        key, _, value = pair.partition("=")
        if key == "type":
            kind = by_name(value)
            if kind is None:
                raise UsageError("{name!r} is not a ggml type", name=value[:40], hint=_HINT)
        elif key in _SIZES:
            sizes[key] = _count(text, value)
        else:
            raise UsageError("{key!r} is not a part of a shape", key=key[:40], hint=_HINT)
    if layers > 512 or heads % sizes["kv"]:
        raise UsageError("{text!r} is not a shape llama.cpp could load", text=text[:80], hint=_HINT)
    metadata = _metadata(text, layers, heads, size, sizes)
    tensors = _in_file_order(_tensors(layers, heads, size, sizes, kind)) if kind else ()
    return Header(version=3, metadata=metadata, tensors=tensors, path="")


def _count(text: str, digits: str) -> int:
    if not digits.isascii() or not digits.isdecimal() or not 0 < int(digits[:12]) <= _MOST:
        raise UsageError("{digits!r} in {text!r} is not a size", digits=digits[:20], text=text[:80],
                         hint=_HINT)  # fmt: skip
    return int(digits)


def _metadata(
    text: str, layers: int, heads: int, size: int, sizes: dict[str, int]
) -> dict[str, Value]:
    return {
        "general.architecture": "llama",
        "general.name": text,
        "tokenizer.ggml.model": "no_vocab",
        "llama.block_count": layers,
        "llama.context_length": sizes["ctx"],
        "llama.embedding_length": sizes["embd"],
        "llama.feed_forward_length": sizes["ff"],
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": sizes["kv"],
        "llama.attention.key_length": size,
        "llama.attention.value_length": size,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": size,
        "llama.vocab_size": sizes["vocab"],
    }


def _tensors(
    layers: int, heads: int, size: int, sizes: dict[str, int], kind: GGMLType
) -> Iterator[Tensor]:
    """The tensor table of a llama model (src/models/llama.cpp, b10605)."""
    embd, ff, vocab = sizes["embd"], sizes["ff"], sizes["vocab"]
    queries, keys = heads * size, sizes["kv"] * size
    yield _tensor("token_embd.weight", (embd, vocab), kind)
    yield _tensor("output_norm.weight", (embd,), F32)
    yield _tensor("output.weight", (embd, vocab), kind)
    for layer in range(layers):
        for name, shape in (
            ("attn_norm", (embd,)), ("attn_q", (embd, queries)), ("attn_k", (embd, keys)),
            ("attn_v", (embd, keys)), ("attn_output", (queries, embd)), ("ffn_norm", (embd,)),
            ("ffn_gate", (embd, ff)), ("ffn_up", (embd, ff)), ("ffn_down", (ff, embd)),
        ):  # fmt: skip
            yield _tensor(f"blk.{layer}.{name}.weight", shape, kind if len(shape) > 1 else F32)


def _in_file_order(tensors: Iterator[Tensor]) -> tuple[Tensor, ...]:
    """Each tensor behind the one before, as a converter writes them."""
    placed, end = [], 0
    for tensor in tensors:
        placed.append(replace(tensor, offset=end))
        end = pad(end + tensor.nbytes, ALIGNMENT)
    return tuple(placed)


def _tensor(name: str, shape: tuple[int, ...], kind: GGMLType) -> Tensor:
    if shape[0] % kind.block:
        raise UsageError(
            "{kind} has blocks of {block}, {name} has rows of {row}",
            kind=kind.name,
            block=kind.block,
            name=name,
            row=shape[0],
            hint="take another type, or widths that are whole blocks",
        )
    return Tensor(name, shape, kind)
