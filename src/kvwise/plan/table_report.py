"""A table as the JSON document `kvwise/table/1`, and as rows for a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvwise.arch.layout import layout
from kvwise.errors import Refused
from kvwise.launch import Launch
from kvwise.memory.cache import bytes_for_tokens
from kvwise.memory.report import refusal_json
from kvwise.options import to_argv
from kvwise.plan.table import At, Cell, Entry, Table
from kvwise.plan.taken import Machine
from kvwise.text import say

TABLE = "kvwise/table/1"

COLUMNS = (
    "model", "gpu", "type_k", "type_v", "n_ctx_max", "n_ctx_max_all_layers", "limit",
    "n_predict_max", "refused", "n_ctx", "cache_bytes", "share", "gpu_bytes", "left_bytes", "fits",
    "n_predict", "n_gpu_layers",
)  # fmt: skip
"""Of the spreadsheet: a row per cell and context."""


def table_json(table: Table, language: str = "en") -> dict[str, Any]:
    """The table as plain values; sentences in a language."""
    return {
        "schema": TABLE,
        "models": [_model(entry) for entry in table.entries],
        "gpus": [_machine(machine, language) for machine in table.machines],
        "cache_types": [list(pair) for pair in table.pairs],
        "contexts": list(table.contexts),
        "prompt_tokens": table.prompt_tokens,
        "launch": _launch(table.entries[0].launch),
        "cells": [_cell(table, cell, language) for cell in table.cells],
    }


def _model(entry: Entry) -> dict[str, Any]:
    model = entry.model
    return {
        "name": entry.name,
        "architecture": model.architecture,
        "path": model.path,
        "tensor_bytes": model.header.tensor_bytes,
        "n_layer": model.n_layer,
        "n_ctx_train": model.n_ctx_train,
        "n_gpu_layers_all": entry.everything,
        "caches": [store.role for store in layout(model)],
        "embeds": embeds(entry),
    }


def embeds(entry: Entry) -> bool:
    """Made for embeddings: it generates nothing, and a context is what one text may hold."""
    model = entry.model
    return not model.causal_attn or model.pooling_type not in ("none", "unspecified", "")


def _machine(machine: Machine, language: str) -> dict[str, Any]:
    return {
        "name": machine.name or None,
        "total_bytes": machine.total_bytes,
        "usable_bytes": machine.usable_bytes,
        "ram_bytes": machine.host.usable_bytes if machine.host else None,
        "devices": [
            {
                "name": device.name,
                "kind": device.kind,
                "total_bytes": device.total_bytes,
                "free_bytes": device.free_bytes,
                "reserve_bytes": device.reserve_bytes or 0,
                "reserve_reason": say(device.reserve_reason, language)
                if device.reserve_reason
                else None,
                "source": device.source,
            }
            for device in machine.devices
        ],
    }


def _launch(launch: Launch) -> dict[str, Any]:
    """What all cells share, as asked."""
    return {
        "tool": launch.tool,
        "build": launch.build,
        "n_batch": launch.n_batch,
        "n_ubatch": launch.n_ubatch,
        "n_seq_max": launch.n_seq_max,
        "kv_unified": launch.kv_unified,
        "flash_attn": launch.flash_attn,
        "n_gpu_layers": launch.n_gpu_layers,
        "n_cpu_moe": launch.n_cpu_moe,
        "offload_kqv": launch.offload_kqv,
        "swa_full": launch.swa_full,
        "argv": to_argv(launch),
    }


def _cell(table: Table, cell: Cell, language: str) -> dict[str, Any]:
    entry = table.entries[cell.model]
    return {
        "model": cell.model,
        "gpu": cell.machine,
        "type_k": cell.pair[0],
        "type_v": cell.pair[1],
        "bytes_per_token": bytes_for_tokens(entry.model, 1, *cell.pair, build=entry.launch.build),
        "refused": _refused(cell.refused, language),
        "n_ctx_max": cell.n_ctx_max,
        "n_ctx_seq_max": cell.n_ctx_seq_max,
        "n_ctx_max_all_layers": cell.n_ctx_max_all_layers,
        "n_predict_max": cell.n_predict_max,
        "limit": cell.limit,
        "misses_bytes": cell.misses_bytes,
        "verified": cell.verified,
        "contexts": [_at(at, language) for at in cell.at],
    }


def _at(at: At, language: str) -> dict[str, Any]:
    return {
        "n_ctx": at.n_ctx,
        "cache_bytes": at.cache_bytes,
        "share": at.share,
        "beside_bytes": at.beside_bytes,
        "gpu_bytes": at.gpu_bytes,
        "left_bytes": at.left_bytes,
        "fits": at.fits,
        "n_predict": at.n_predict,
        "n_gpu_layers": at.n_gpu_layers,
        "beyond_training": at.beyond_training,
        "refused": _refused(at.refused, language),
    }


def _refused(refused: Refused | None, language: str) -> dict[str, Any] | None:
    return refusal_json(refused, language) if refused else None


def table_rows(table: Table) -> Iterator[tuple[object, ...]]:
    """Rows under COLUMNS; what is not known is empty."""
    for cell in table.cells:
        entry, machine = table.entries[cell.model], table.machines[cell.machine]
        start = (
            entry.name, machine.name, *cell.pair, cell.n_ctx_max,
            cell.n_ctx_max_all_layers, cell.limit, cell.n_predict_max,
            cell.refused.code if cell.refused else None,
        )  # fmt: skip
        for at in cell.at:
            share = None if at.share is None else round(at.share, 6)
            yield (
                *start, at.n_ctx, at.cache_bytes, share, at.gpu_bytes, at.left_bytes,
                "yes" if at.fits else "no", at.n_predict, at.n_gpu_layers,
            )  # fmt: skip
