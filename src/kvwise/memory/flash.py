"""Flash attention `auto`, and the other fused operations: on, or off for the whole model.

llama.cpp builds a small graph of one token per sequence and looks where the scheduler puts each
fused node; one that is not on the device of its layer switches the feature off. A node goes
where the last node with a fixed place before it is (its cache write, or a weight), else where
the next one after it is. So the answer follows from what stands around the node and from what a
device supports, without building the graph.

Source: src/llama-context.cpp resolve_fused_ops, ggml/src/ggml-backend.cpp split_graph (passes 1
to 3), src/llama-graph.cpp build_attn_mha and build_rs, ggml-cuda/fattn.cu and
lightning-indexer.cu, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvwise import builds
from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.memory.backends import kind_of
from kvwise.memory.kernels import ATTENDS
from kvwise.memory.placement import HOST, Placement

if TYPE_CHECKING:
    from kvwise.memory.context import Context

STATE_FOLLOWS_SAME = frozenset({"falcon-h1"})
"""Architectures whose state is read right after the attention of the same layer."""

STATE_FOLLOWS_NEXT = frozenset(
    {"granitehybrid", "jamba", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "plamo2"}
)
"""Hybrids where the next recurrent layer's state is read before the tail of this layer."""

DELTA_NET = frozenset({"qwen3next", "qwen35", "qwen35moe", "kimi-linear", "kimi-k3", "bailingmoe3"})
"""Architectures with the fused gated delta net."""

CROSS = frozenset({"t5", "t5encoder"})
"""Self attention carries a position bias, which excludes flash attention; cross attention has no
cache and projects the whole encoder output."""

CHUNK_TOKENS = 16
"""Tokens per sequence of the chunked delta net's probe graph."""

_EQUAL_HEADS = frozenset({40, 64, 72, 80, 96, 112, 128, 256})
_GROUPED_HEADS = {192: (128, 8), 320: (256, 32), 512: (512, 1), 576: (512, 1)}
_KV_TYPES = frozenset({"f32", "f16", "bf16", "q4_0", "q8_0"})
_MORE_KV_TYPES = _KV_TYPES | {"q4_1", "q5_0", "q5_1"}


def attention_available(
    model: Model, context: Context, placement: Placement, devices: Sequence[Device]
) -> bool:
    """Whether flash attention stays on under `auto`."""
    if not devices:
        return True
    return all(
        _stays(model, context, placement, devices, layer)
        for layer in attention_layers(model, context)
    )


def attention_leaves(
    model: Model, context: Context, placement: Placement, devices: Sequence[Device]
) -> bool:
    """Whether flash attention is on and a GPU lacks it for its layers: the processor attends.

    A quantized V cache forces it on, whatever the devices can do.
    """
    if not context.flash_attn:
        return False
    homes = ((layer, placement.of(layer)) for layer in attention_layers(model, context))
    return any(
        home != HOST and not supported(model, context, devices[home], layer)
        for layer, home in homes
    )


def attention_layers(model: Model, context: Context) -> Iterator[int]:
    """Layers whose attention could use flash attention."""
    if context.mtp:
        yield from range(model.n_layer, model.n_layer_all)
        return
    if model.router_layer >= 0:
        yield model.router_layer
    if model.architecture == "t5":
        yield from range(min(model.dec_n_layer, model.n_layer))
        return
    if model.architecture in CROSS:
        return
    both = model.architecture in STATE_FOLLOWS_SAME
    layers = model.n_layer
    if model.architecture == "minimax-m3" and not msa_is_dense(context):
        layers = min(layers, model.n_layer_dense_lead)  # nobody asks about the sparse ones
    for layer in range(layers):
        if (both or not model.is_recr(layer)) and model.n_head[layer] and model.n_head_kv[layer]:
            yield layer


def _stays(
    model: Model, context: Context, placement: Placement, devices: Sequence[Device], layer: int
) -> bool:
    """The node of this layer lands on the layer's own device."""
    home = placement.of(layer)
    if home != HOST:
        if not supported(model, context, devices[home], layer):
            return False
        written = _writes_cache(model, layer) and not context.offload_kqv
        return not (written and _host_follows(model, layer))
    pulled = _pulled_to(model, context, placement, devices, layer)
    return pulled == HOST or not supported(model, context, devices[pulled], layer)


def _writes_cache(model: Model, layer: int) -> bool:
    return has_cache(model) and model.architecture not in CROSS and model.has_kv(layer)


def has_cache(model: Model) -> bool:
    """Encoders and diffusion models attend within the batch and keep nothing."""
    return model.has_decoder and model.family != "none"


def _host_follows(model: Model, layer: int) -> bool:
    """With the caches on the host: the next node with a fixed place is a state or an embedding."""
    return layer == model.router_layer or _state_after(model, layer) is not None


def _pulled_to(
    model: Model, context: Context, placement: Placement, devices: Sequence[Device], layer: int
) -> int:
    """The GPU whose node stands next to this host layer's attention, or HOST."""
    state = _state_after(model, layer)
    if state is not None and context.offload_kqv and placement.of(state) != HOST:
        return placement.of(state)
    batch = kind_of(devices[0]).op_offload_batch
    if not batch or not context.op_offload:
        return HOST
    return 0 if _rows_beside(model, context, layer) >= batch else HOST


def _rows_beside(model: Model, context: Context, layer: int) -> int:
    """Rows of the largest node with a host weight that decides for this attention."""
    if model.architecture in CROSS:
        return model.n_ctx_train
    per_token = 1
    if not model.has_kv(layer):
        per_token = model.n_head[layer]  # the norm of each query head comes last before it
    return per_token * context.n_seq_max


def msa_is_dense(context: Context) -> bool:
    """MiniMax-M3 attends sparsely only with flash attention and one sequence per stream."""
    return not context.flash_attn or (context.kv_unified and context.n_seq_max > 1)


def _state_after(model: Model, layer: int) -> int | None:
    """The layer whose recurrent state is read right after this layer's attention."""
    if model.architecture in STATE_FOLLOWS_SAME:
        return layer
    if model.architecture not in STATE_FOLLOWS_NEXT:
        return None
    for later in range(layer + 1, model.n_layer):
        # an expert router adds all that came before it to the graph
        if f"blk.{later - 1}.ffn_gate_inp.weight" in model.header.by_name:
            return None
        if model.is_recr(later):
            return later
        if model.n_head[later] and model.n_head_kv[later]:
            return None
    return None


def supported(model: Model, context: Context, device: Device, layer: int) -> bool:
    """Whether a device has flash attention for this layer's heads and cache types."""
    kind = kind_of(device)
    cached = has_cache(model) and model.architecture not in CROSS
    k_type = _as_read(context.type_k) if cached else "f16"
    v_type = _as_read(context.type_v) if cached else "f16"
    k, v = model.n_embd_head_k(layer), model.n_embd_head_v(layer)
    if kind.name in ATTENDS:
        return ATTENDS[kind.name](k, v, k_type, v_type)
    if not kind.row_padding:  # the other kinds take everything
        return True
    if context.since(builds.CUDA_MIXED_CACHES):
        if not _MORE_KV_TYPES.issuperset((k_type, v_type)):
            return False
    elif k_type != v_type or k_type not in _KV_TYPES:
        return False
    if k in _EQUAL_HEADS:
        return k == v
    ratio = model.n_gqa(layer)
    grouped = ratio >= 2 and not model.f_max_alibi_bias and cached
    wanted = _GROUPED_HEADS.get(k)
    return wanted is not None and grouped and v == wanted[0] and ratio % wanted[1] == 0


def _as_read(name: str) -> str:
    """An f32 cache is cast to f16 before attention."""
    return "f16" if name == "f32" else name


def delta_net_unavailable(
    model: Model, context: Context, placement: Placement, devices: Sequence[Device]
) -> bool:
    """Whether the chunked form of the fused delta net is switched off.

    The other fused operations (indexer, hyper connections) are asked of the graph itself:
    `compute/fused.py`.
    """
    if context.since(builds.CHUNKED_STAYS_FUSED):
        return False
    if not devices or model.architecture not in DELTA_NET or not context.op_offload:
        return False
    batch = kind_of(devices[0]).op_offload_batch
    if not batch or CHUNK_TOKENS * context.n_seq_max < batch:
        return False
    return any(
        model.is_recr(layer) and placement.of(layer) == HOST for layer in range(model.n_layer)
    )
