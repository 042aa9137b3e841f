"""The same model in another quantization: what its weights would take.

The tensor types are those that llama-quantize chooses by itself, without an importance matrix;
bytes then follow exactly from the tensor table. A publisher may choose otherwise, so a figure made
from such a model is called estimated.

Source: src/llama-quant.cpp tensor_allows_quantization, llama_tensor_get_type_impl,
tensor_type_fallback, llama_ftype_get_default_type, b10605.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from kvwise.arch import describe
from kvwise.gguf.header import Header, Tensor
from kvwise.gguf.model import Model
from kvwise.gguf.types import GGMLType, by_name
from kvwise.units import pad

_LAYER = re.compile(r"^blk\.(\d+)\.")
_ATTN_V = re.compile(r"\.attn_(?:v|qkv|kv_b)\.weight$")
_ATTN_K = re.compile(r"\.attn_k\.weight$")
_ATTN_OUT = re.compile(r"\.attn_output\.weight$")
_DOWN = re.compile(r"\.ffn_down(?:_exps|_shexp)?\.weight$")
_EMBEDDINGS = {"token_embd.weight", "per_layer_token_embd.weight"}
_KEPT = (
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel",
    "per_layer_model_proj", "position_embd", "token_types.", "ssm_conv1d", "shortconv.conv.weight",
    "indexer.k_proj.weight", "indexer.q_proj.weight", "time_mix_first.weight",
    "time_mix_lerp_fused.weight", "attn_rel_b.weight", ".rel_pos", ".patch_embd", ".patch_merger",
)  # fmt: skip
_KEPT_MIXES = re.compile(r"time_mix_(?:w[012]|v[012]|a[012]|g[12]|decay_w[12])\.weight")
_FALCON = {"q4_K": ("q6_K", "q5_K"), "q3_K": ("q5_K", "q4_K")}
_FALLBACK = {"q2_K": "q4_0", "q3_K": "q4_0", "q4_K": "q5_0", "q5_K": "q5_1", "q6_K": "q8_0"}


@dataclass(frozen=True, slots=True)
class _Place:
    """A tensor's place: which of the attention values or layers it is, of how many."""

    index: int
    count: int
    gqa: int
    experts: int
    seventy: bool = False  # a Llama of 80 layers, whose small values get more bits
    falcon: bool = False  # an architecture with a mixture of its own

    @property
    def more_bits(self) -> bool:
        """The layers that the mixtures give more bits: the ends, and every third between."""
        eighth = self.count // 8
        return (
            self.index < eighth
            or self.index >= 7 * self.count // 8
            or (self.index - eighth) % 3 == 2
        )


_Rule = Callable[[_Place], str | None]


def _plain(_: _Place) -> None:
    return None


def _half_in_six(place: _Place) -> str | None:
    return "q6_K" if place.more_bits else None


@dataclass(frozen=True, slots=True)
class Quant:
    """How llama-quantize mixes types: the base, and what the values, outputs and downs get."""

    base: str
    value: _Rule = _plain
    down: _Rule = _plain
    attention_out: str | None = None


QUANTS: dict[str, Quant] = {
    "F16": Quant("f16"),
    "BF16": Quant("bf16"),
    "Q8_0": Quant("q8_0"),
    "Q6_K": Quant("q6_K"),
    "Q5_K_M": Quant("q5_K", _half_in_six, _half_in_six),
    "Q5_1": Quant("q5_1"),
    "Q5_0": Quant("q5_0"),
    "Q4_K_M": Quant("q4_K", _half_in_six, _half_in_six),
    "Q4_K_S": Quant(
        "q4_K",
        lambda at: "q5_K" if at.index < 4 else None,
        lambda at: "q5_K" if at.index < at.count // 8 else None,
    ),
    "Q4_1": Quant("q4_1"),
    "Q4_0": Quant("q4_0"),
    "IQ4_XS": Quant(
        "iq4_xs",
        lambda at: "q5_K" if at.gqa >= 4 else None,
        lambda at: "q5_K" if at.index < at.count // 8 else None,
    ),
    "Q3_K_M": Quant(
        "q3_K",
        lambda at: "q5_K" if at.index < 2 else "q4_K",
        lambda at: "q5_K" if at.index < at.count // 16 else "q4_K",
        attention_out="q4_K",
    ),
    "Q3_K_S": Quant("q3_K"),
}
"""Names of quantizations -> how they are mixed, from many bits to few."""


@lru_cache(maxsize=32)
def requantized(model: Model, name: str) -> Model:
    """The model with the tensor types of the quantization `name` (a key of `QUANTS`)."""
    header = model.header
    tied = "output.weight" not in header.by_name
    values = sum(1 for tensor in header.tensors if _ATTN_V.search(tensor.name))
    places = _places(model, values)
    rows = [
        _retyped(tensor, _type(tensor, QUANTS[name], place, tied=tied))
        for tensor, place in zip(header.tensors, places, strict=True)
    ]
    tensors = tuple(_laid_out(rows, header))
    return replace(describe(replace(header, tensors=tensors)), name=model.name, path=model.path)


def _places(model: Model, values: int) -> Iterator[_Place]:
    """Each tensor's place, in the order of the file, which is the order of llama-quantize."""
    value, down = 0, 0
    gqa = model.n_gqa() if model.n_head and model.n_head_kv else 0
    seventy = model.architecture in {"llama", "deci"} and model.n_layer_all == 80
    usual = _Place(0, 1, gqa, model.n_expert, seventy, model.architecture == "falcon")
    for tensor in model.header.tensors:
        layer = _LAYER.match(tensor.name)
        if _ATTN_V.search(tensor.name):
            yield replace(usual, index=value, count=values)
            value += 1
        elif _DOWN.search(tensor.name):
            index = int(layer[1]) if layer and model.n_expert > 1 else down
            yield replace(usual, index=index, count=model.n_layer_all)
            down += 1
        else:
            yield usual


def _type(tensor: Tensor, quant: Quant, place: _Place, *, tied: bool) -> str | None:
    """The type llama-quantize gives a tensor; None = it keeps its own."""
    if not _quantizes(tensor):
        return None
    if not _known(quant.base).quantized:
        return quant.base
    name = tensor.name
    if name == "output.weight" or (tied and name in _EMBEDDINGS):
        whole = tensor.shape[0] % _known(quant.base).block == 0
        return "q8_0" if quant.base == "q8_0" or not whole or place.falcon else "q6_K"
    rules = ((_ATTN_V, _value), (_ATTN_K, _key), (_ATTN_OUT, _output), (_DOWN, _down))
    rule = next((rule for pattern, rule in rules if pattern.search(name)), None)
    return (rule(quant, place) if rule else None) or quant.base


def _value(quant: Quant, place: _Place) -> str | None:
    if place.experts == 8:
        return "q8_0"
    found = quant.value(place) or quant.base
    return "q5_K" if place.seventy and found in {"q3_K", "q4_K"} else found


def _key(_: Quant, place: _Place) -> str | None:
    return "q8_0" if place.experts == 8 else None


def _output(quant: Quant, place: _Place) -> str | None:
    if place.falcon:
        return None
    if place.experts == 8 and quant.base in {"q4_K", "q3_K", "iq4_xs"}:
        return "q5_K"
    return quant.attention_out


def _down(quant: Quant, place: _Place) -> str | None:
    if not place.falcon or quant.base not in _FALCON:
        return quant.down(place)
    if quant.down is QUANTS["Q4_K_S"].down or quant.down is _plain:
        return None
    first, more = _FALCON[quant.base]
    if place.index < place.count // 16:
        return first
    return more if place.more_bits else None


def _quantizes(tensor: Tensor) -> bool:
    dimensions = sum(1 for size in tensor.shape if size > 1)
    if dimensions < 2 or not tensor.name.endswith("weight"):
        return False
    if _KEPT_MIXES.search(tensor.name):
        return False
    return not any(part in tensor.name for part in _KEPT)


def _known(name: str) -> GGMLType:
    found = by_name(name)
    if found is None:
        raise ValueError(name)
    return found


def _retyped(tensor: Tensor, name: str | None) -> Tensor:
    if name is None:
        return tensor
    kind = _known(name)
    if tensor.shape[0] % kind.block:
        kind = _known(_FALLBACK.get(name, "iq4_nl" if name == "iq4_xs" else "f16"))
    if tensor.shape[0] % kind.block:
        kind = _known("f16")
    return replace(tensor, type=kind)


def _laid_out(rows: list[Tensor], header: Header) -> Iterator[Tensor]:
    """The tensors one after the other in one file, each aligned."""
    at = 0
    for row in rows:
        yield replace(row, offset=at, shard=0)
        at = pad(at + row.nbytes, header.alignment)
