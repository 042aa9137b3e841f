"""Launch + Model -> Context: llama.cpp's own order of padding, clamping and refusing.

Source: src/llama-context.cpp (constructor, llama_init_from_model), b10605.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvwise import builds
from kvwise.arch import supports_rollback
from kvwise.builds import Change
from kvwise.device import Device
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory import flash, legality
from kvwise.memory.paired import ALONE, Paired
from kvwise.memory.placement import Placement
from kvwise.units import pad

CELLS = 256
"""Contexts are padded to a multiple of this many cells."""


@dataclass(frozen=True, slots=True)
class Context:
    """A launch as the engine resolves it (llama_cparams)."""

    n_ctx: int
    n_ctx_seq: int
    n_batch: int
    n_ubatch: int
    n_seq_max: int
    kv_unified: bool
    flash_attn: bool
    type_k: str
    type_v: str
    offload_kqv: bool
    op_offload: bool
    swa_full: bool
    n_outputs_max: int
    n_rs_seq: int
    embeddings: bool
    pooling: str
    mtp: bool = False
    build: int = builds.OLDEST  # of llama.cpp, whose rules apply
    v_trans: bool = False  # V stored transposed: settled before `auto` looks at flash attention
    notes: tuple[str, ...] = ()  # note codes of zoo/README.md
    paired: Paired = ALONE  # what its draft or its target makes of it, for compute/ alone

    @property
    def n_stream(self) -> int:
        """KV streams: one if unified, else one per sequence."""
        return 1 if self.kv_unified else self.n_seq_max

    def since(self, change: Change) -> bool:
        """Whether the engine's build has a change."""
        return builds.has(self.build, change)


def resolve(
    model: Model, launch: Launch, placement: Placement, devices: Sequence[Device]
) -> Context:
    """What the engine makes of a launch; raises Refused where it would stop.

    `devices` are those that `placement.select` chose, `placement` is what `place` gave for them.
    """
    legality.check_request(model, launch)
    mode, notes = launch.flash_attn, list(model.notes)
    if mode != "off" and model.architecture == "grok":
        mode = "off"
        notes.append("fa_forced_off")
    mode = legality.check_types(model, launch, mode)
    legality.check_kind(model, launch)
    context, rounded = _sizes(model, launch, flash_attn=mode != "off")
    if rounded:
        notes.append("n_ctx_rounded")
    legality.check_resolved(model, context, flash_off=mode == "off")
    if mode == "auto" and not flash.attention_available(model, context, placement, devices):
        context = replace(context, flash_attn=False)
        notes.append("flash_attn_unavailable")
    legality.check_flash(context)
    notes += _notes(model, context, placement, devices)
    return replace(context, notes=tuple(dict.fromkeys(notes)))


def _sizes(model: Model, launch: Launch, *, flash_attn: bool) -> tuple[Context, bool]:
    """Sizes in the engine's order, and whether n_ctx was rounded to whole sequences."""
    build = builds.number(launch.build)
    n_seq_max = max(1, launch.n_seq_max)
    n_ctx = launch.n_ctx or model.n_ctx_train
    n_batch = min(n_ctx, launch.n_batch) if model.causal_attn else launch.n_batch
    n_ubatch = min(n_batch, launch.n_ubatch or launch.n_batch)
    outputs = launch.n_outputs_max
    n_outputs_max = n_batch if not outputs or model.has_encoder else outputs
    n_ctx = pad(n_ctx, CELLS)
    n_ctx_seq, rounded = n_ctx, False
    if not launch.kv_unified:
        n_ctx_seq = pad(n_ctx // n_seq_max, CELLS)
        if not n_ctx_seq:
            raise Refused("other_context", "n_ctx_seq == 0", hint="give a larger -c")
        rounded = n_ctx != n_ctx_seq * n_seq_max
        n_ctx = n_ctx_seq * n_seq_max
    pooling = launch.pooling or model.pooling_type
    context = Context(
        n_ctx=n_ctx,
        n_ctx_seq=n_ctx_seq,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        n_seq_max=n_seq_max,
        kv_unified=launch.kv_unified,
        flash_attn=flash_attn,
        type_k=legality.cache_type(launch.type_k).name,
        type_v=legality.cache_type(launch.type_v).name,
        offload_kqv=launch.offload_kqv,
        op_offload=launch.op_offload,
        swa_full=launch.swa_full,
        n_outputs_max=n_outputs_max,
        n_rs_seq=launch.n_rs_seq if supports_rollback(model, build) else 0,
        embeddings=launch.embeddings,
        pooling="none" if pooling == "unspecified" else pooling,
        mtp=launch.mtp,
        build=build,
        v_trans=not flash_attn,
    )
    return context, rounded


def _notes(
    model: Model, context: Context, placement: Placement, devices: Sequence[Device]
) -> list[str]:
    """Codes of what the engine says while it builds the caches and the graph."""
    found = []
    if flash.delta_net_unavailable(model, context, placement, devices):
        found.append("fused_op_unavailable")
    if context.swa_full and model.swa_type != "none" and flash.has_cache(model):
        found.append("swa_full")
    cached = flash.has_cache(model) and not model.is_recurrent
    if cached and context.v_trans and model.is_n_embd_v_gqa_variable:
        found.append("v_cache_padded")
    if model.architecture == "minimax-m3" and flash.msa_is_dense(context):
        found.append("msa_falls_back_to_dense")
    return found
