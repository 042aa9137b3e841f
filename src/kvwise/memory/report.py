"""A ledger as the JSON document `kvwise/ledger/1` (docs: contract of commands and JSON)."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from kvwise.errors import Refused
from kvwise.launch import Launch
from kvwise.memory.ledger import Cache, Extra, Ledger, Line, Part
from kvwise.text import say

LEDGER = "kvwise/ledger/1"
REFUSAL = "kvwise/refusal/1"


def ledger_json(ledger: Ledger, language: str = "en") -> dict[str, Any]:
    """The ledger as plain values, in the contract's shape; sentences in a language."""
    return {
        "schema": LEDGER,
        "model": _model(ledger),
        "launch": _launch(ledger),
        "placement": _placement(ledger),
        "caches": [_cache(cache) for cache in ledger.caches],
        "buffers": [_line(line, language) for line in ledger.lines],
        "extras": [_extra(extra, line, language) for line in ledger.lines for extra in line.extras],
        "fits": ledger.fits,
        "misses_by_bytes": ledger.misses_by_bytes,
        "verified": ledger.verified,
        "doubts": [say(doubt, language) for doubt in ledger.doubts],
        "compute_mode": ledger.compute_mode,
        "notes": [
            {"code": note.code, "message": say(note.message, language)} for note in ledger.notes
        ],
    }


def refusal_json(refused: Refused, language: str = "en") -> dict[str, Any]:
    """A refusal as plain values."""
    return {
        "schema": REFUSAL,
        "code": refused.code,
        "message": say(refused.phrase, language),
        "hint": say(refused.hint, language) if refused.hint else None,
    }


def _model(ledger: Ledger) -> dict[str, Any]:
    model = ledger.model
    return {
        "name": model.called,
        "architecture": model.architecture,
        "path": model.path,
        "n_params": model.header.n_params,
        "tensor_bytes": model.header.tensor_bytes,
        "n_layer": model.n_layer,
        "n_layer_all": model.n_layer_all,
        "n_ctx_train": model.n_ctx_train,
    }


def _launch(ledger: Ledger) -> dict[str, Any]:
    launch, context = ledger.launch, ledger.context
    return {
        "tool": launch.tool,
        "build": launch.build,
        "build_from": launch.build_from or None,
        "n_ctx": context.n_ctx,
        "n_ctx_seq": context.n_ctx_seq,
        "n_batch": context.n_batch,
        "n_ubatch": context.n_ubatch,
        "n_seq_max": context.n_seq_max,
        "kv_unified": context.kv_unified,
        "flash_attn": context.flash_attn,
        "type_k": context.type_k,
        "type_v": context.type_v,
        "gpu_layers": ledger.placement.gpu_layers,
        "swa_full": context.swa_full,
        "offload_kqv": context.offload_kqv,
        "n_outputs_max": context.n_outputs_max,
        "pipeline_parallel": ledger.placement.pipeline_parallel,
        "sched_copies": ledger.placement.sched_copies,
        "argv": _argv(launch),
    }


def _argv(launch: Launch) -> list[str]:
    from kvwise.options import to_argv  # noqa: PLC0415  (its table is large, and rarely needed)

    return to_argv(launch)


def _placement(ledger: Ledger) -> dict[str, Any]:
    names = [line.buffer for line in ledger.lines]  # the host is the last, as HOST = -1 is
    layers = ledger.placement.layers
    held: dict[str, list[int]] = {}
    for il, number in enumerate(layers):
        held.setdefault(names[number], []).append(il)
    return {
        "layer_device": {name: ranges(numbers) for name, numbers in held.items()},
        "output_device": names[ledger.placement.output],
    }


def ranges(numbers: list[int]) -> str:
    """`0-3,6` for [0, 1, 2, 3, 6]."""
    runs = []
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        last = f"-{members[-1]}" if len(members) > 1 else ""
        runs.append(f"{members[0]}{last}")
    return ",".join(runs)


def _cache(cache: Cache) -> dict[str, Any]:
    row: dict[str, Any] = {
        "role": cache.role,
        "kind": cache.kind,
        "cells": cache.cells,
        "streams": cache.streams,
        "n_layers": len(cache.layers),
        "layers": ranges(list(cache.layers)),
        "type_k": cache.type_k,
        "type_v": cache.type_v,
        "k_bytes": cache.k_bytes,
        "v_bytes": cache.v_bytes,
        "r_bytes": cache.r_bytes,
        "s_bytes": cache.s_bytes,
    }
    if cache.kind == "dsv4_state":
        row |= {"ratio": cache.ratio, "kv_bytes": cache.kv_bytes, "score_bytes": cache.score_bytes}
    return row


def _line(line: Line, language: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "buffer": line.buffer,
        "device": line.device,
        "host": line.host,
        "weights_bytes": line.weights_bytes,
        "context_bytes": line.context_bytes,
        "compute_bytes": line.compute_bytes,
        "output_bytes": line.output_bytes,
        "extra_bytes": line.extra_bytes,
        "overhead_bytes": line.overhead_bytes,
        "total_bytes": line.total_bytes,
        "up_to_bytes": line.up_to_bytes,
        "reserve_bytes": line.reserve_bytes,
        "free_bytes": line.free_bytes,
        "reclaimable_bytes": line.reclaimable_bytes,
        "headroom_bytes": line.headroom_bytes,
        "largest_block_bytes": line.largest_block_bytes,
        "max_block_bytes": line.max_block_bytes,
        "basis": dict(line.basis),
        "reasons": {part: say(why, language) for part, why in line.reasons.items()},
    }
    if line.host:
        row["parts"] = [_part(part) for part in line.parts]
    return row


def _part(part: Part) -> dict[str, Any]:
    return {
        "buffer": part.buffer,
        "weights_bytes": part.weights_bytes,
        "context_bytes": part.context_bytes,
        "compute_bytes": part.compute_bytes,
        "output_bytes": part.output_bytes,
    }


def _extra(extra: Extra, line: Line, language: str) -> dict[str, Any]:
    """One row of what stands beside the model; `buffer` is the engine's buffer type."""
    return {
        "of": extra.of,
        "name": extra.name,
        "buffer": extra.buffer,
        "device": line.device,
        "host": line.host,
        "weights_bytes": extra.weights_bytes,
        "context_bytes": extra.context_bytes,
        "compute_bytes": extra.compute_bytes,
        "output_bytes": extra.output_bytes,
        "total_bytes": extra.total_bytes,
        "up_to": extra.up_to,
        "at_start_bytes": extra.at_start_bytes,
        "basis": dict(extra.basis),
        "reasons": {part: say(why, language) for part, why in extra.reasons.items()},
    }
