"""What llama.cpp refuses before anything is allocated, with its own reasons.

Source: src/llama-context.cpp llama_init_from_model and the constructor, b10605. The codes are
those of zoo/README.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvwise import builds
from kvwise.arch.layout import layout
from kvwise.errors import Refused, UsageError
from kvwise.gguf.model import Model
from kvwise.gguf.types import GGMLType, by_name
from kvwise.launch import Launch
from kvwise.memory.borrowing import ASSISTANT, NEEDS_TARGET

if TYPE_CHECKING:
    from kvwise.memory.context import Context

MAX_SEQUENCES = 256
"""LLAMA_MAX_SEQ."""


DECAYING = frozenset({"kimi-linear", "minimax-01"})
"""Their tables of decay grow with the square of a sequence's tokens."""


def cache_type(name: str) -> GGMLType:
    """The row of a cache type; raises UsageError for a name that ggml does not know."""
    found = by_name(name)
    if found is None:
        raise UsageError("{name!r} is not a cache type", name=name)
    return found


def check_request(model: Model, launch: Launch) -> None:
    """What is refused before any type is looked at."""
    if launch.n_batch <= 0 and launch.n_ubatch <= 0:
        raise UsageError("n_batch and n_ubatch cannot both be zero")
    if launch.n_ctx == 0 and model.n_ctx_train == 0:
        raise UsageError(
            "the file does not say a training context and none was asked for",
            hint="give -c",
        )
    if launch.n_seq_max > MAX_SEQUENCES:
        raise Refused(
            "other_context",
            "n_seq_max must be <= {limit}, not {asked}",
            hint="use fewer slots (-np)",
            limit=MAX_SEQUENCES,
            asked=launch.n_seq_max,
        )


def check_types(model: Model, launch: Launch, mode: str) -> str:
    """Check the cache types under a flash attention mode; returns the mode to go on with.

    A quantized V switches `auto` to `on`. Raises Refused.
    """
    k, v = cache_type(launch.type_k), cache_type(launch.type_v)
    if (model.is_mla or model.architecture == "deepseek4") and k is not v:
        raise Refused(
            "mla_k_v_types_differ",
            "{arch} keeps one shared latent cache: K type {k} and V type {v} must be the same",
            hint="give -ctk and -ctv the same type",
            arch=model.architecture,
            k=k.name,
            v=v.name,
        )
    if v.quantized and mode != "on":
        if mode == "off":
            raise _v_needs_flash(v)
        mode = "on"
    if mode != "off":
        _check_heads(model, k, v)
    return mode


def _v_needs_flash(v: GGMLType) -> Refused:
    return Refused(
        "v_quant_needs_flash_attn",
        "a V cache of type {v} requires flash attention, which is off",
        hint="use -fa on, or leave V at f16 (-ctv f16)",
        v=v.name,
    )


def _check_heads(model: Model, k: GGMLType, v: GGMLType) -> None:
    for layer in range(model.n_layer):
        _check_head("k", k, model.n_embd_head_k(layer))
    for layer in range(model.n_layer):
        _check_head("v", v, model.n_embd_head_v(layer))


def _check_head(side: str, kind: GGMLType, head: int) -> None:
    if kind.quantized and head % kind.block:
        raise Refused(
            f"{side}_block_vs_head_size",
            "{side} cache type {kind} with block size {block} does not divide the head size {head}",
            hint="use a cache type of smaller blocks, f16 or bf16",
            side=side.upper(),
            kind=kind.name,
            block=kind.block,
            head=head,
        )


def _has_no_mtp_graph(model: Model, build: str) -> bool:
    """Whether an MTP context would run the whole model on caches of its MTP layers alone.

    Source: src/llama-model.cpp create_memory, b11549 ("_Map_base::at" in its log).
    """
    from kvwise.memory.compute.families import MTP  # noqa: PLC0415  (it imports this module)

    if model.architecture in MTP:
        return False
    layers = [il for store in layout(model, True, builds.number(build)) for il in store.layers]
    return bool(layers) and min(layers) >= model.n_layer


def check_kind(model: Model, launch: Launch) -> None:
    """Contexts that this architecture cannot give. Raises Refused."""
    nextn = model.n_layer_nextn if model.router_layer < 0 else 0
    if launch.mtp and not nextn:
        raise Refused(
            "mtp_unavailable",
            "context type MTP requested but the model has no MTP layers",
            hint="use a file that carries them, or another speculative type",
        )
    if launch.mtp and _has_no_mtp_graph(model, launch.build):
        raise Refused(
            "mtp_unavailable",
            "llama.cpp {build} has no graph for the MTP layers of {arch}: its MTP context fails",
            hint="use another speculative type",
            build=launch.build,
            arch=model.architecture,
        )
    names = model.header.by_name
    borrows = model.architecture in NEEDS_TARGET and not (
        "token_embd.weight" in names and "output.weight" in names
    )
    if (borrows or model.architecture == ASSISTANT) and not launch.beside_target:
        raise Refused(
            "needs_target_context",
            "{arch} is a draft head that can only be created next to its target model",
            hint="give it with -md beside the target (-m)",
            arch=model.architecture,
        )


def check_resolved(model: Model, context: Context, flash_off: bool) -> None:
    """What stops the engine while the context is built. Raises Refused."""
    if context.n_seq_max > context.n_outputs_max:
        raise Refused(
            "n_outputs_below_n_seq",
            "at most {outputs} rows of logits were allowed, fewer than the {seqs} sequences",
            hint="raise n_outputs_max (or -b) to the number of slots at least",
            outputs=context.n_outputs_max,
            seqs=context.n_seq_max,
        )
    if model.architecture == "t5" and context.n_stream > 1:
        raise Refused(
            "unsupported_n_seq",
            "{arch} cannot be set up with {seqs} separate sequences: its relative position "
            "bias does not fit",
            hint="use one sequence (-np 1) or a unified cache (-kvu)",
            arch=model.architecture,
            seqs=context.n_seq_max,
        )
    if _lone_sequence_is_cut(model, context):
        raise Refused(
            "internal_abort",
            "llama.cpp stops while it sizes a single sequence: {tokens} tokens at once are not a "
            "multiple of {streams} separate caches",
            hint="use a unified cache (-kvu), or slots that divide -ub",
            tokens=min(context.n_ctx, context.n_ubatch),
            streams=context.n_stream,
        )
    k = cache_type(context.type_k)
    ragged = flash_off and k.quantized and _k_row_is_ragged(model, k)
    headless = _values_lose_their_heads(model, context, flash_off=flash_off)
    if ragged or headless or _turns_no_layers(model, context):
        raise Refused(
            "internal_abort",
            "llama.cpp stops on an internal assertion while it builds the graph",
            hint="use another cache type, or another build",
        )


def _lone_sequence_is_cut(model: Model, context: Context) -> bool:
    """Newer builds also size one sequence alone, and cut it by the streams of the cache."""
    alone = model.architecture in DECAYING and context.since(builds.ONE_SEQUENCE_TOO)
    return alone and min(context.n_ctx, context.n_ubatch) % context.n_stream > 0


def _turns_no_layers(model: Model, context: Context) -> bool:
    """DeepSeek V4's cache of layers that see everything is empty; newer builds size its turns."""
    same = model.n_embd_head_k(0) == model.indexer_head_size
    return model.architecture == "deepseek4" and same and context.since(builds.EMPTY_CACHE_TURNED)


def _values_lose_their_heads(model: Model, context: Context, *, flash_off: bool) -> bool:
    """PLM flattens V: more than one token of it only goes into a transposed cache."""
    tokens = max(context.n_seq_max, min(context.n_ctx, context.n_ubatch))
    return model.architecture == "plm" and not flash_off and tokens > 1


def _k_row_is_ragged(model: Model, k: GGMLType) -> bool:
    """A K row that is not whole blocks: nothing checks it with flash attention off."""
    if model.is_mla or model.is_recurrent:
        return False
    return any(model.n_embd_k_gqa(layer) % k.block for layer in range(model.n_layer))


def check_flash(context: Context) -> None:
    """After `auto` was resolved: a quantized V needs flash attention. Raises Refused."""
    v = cache_type(context.type_v)
    if v.quantized and not context.flash_attn:
        raise _v_needs_flash(v)
