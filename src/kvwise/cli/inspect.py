"""`kvwise inspect`: what is this file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from kvwise.cli._commands import command as make_command
from kvwise.cli._request import MODEL, SHAPE, called, model_of
from kvwise.cli._shapes import Cell, Column, Table
from kvwise.cli.output import Printer
from kvwise.gguf.header import Tensor
from kvwise.gguf.model import Model
from kvwise.gguf.types import CACHE_TYPES
from kvwise.memory.growth import growth
from kvwise.memory.report import ranges
from kvwise.text import Phrase, phrase
from kvwise.units import KIB, percent, show

_BYTE_ORDER = {"little": phrase("little"), "big": phrase("big")}
_USUAL = (4096, 32768)
_LAYER = re.compile(r"^blk\.(\d+)\.")


@make_command(
    "Say what a model file is.\n\n"
    "Architecture, layers, heads, windows, what a token of context costs in each cache type, "
    "tensors by layer and type. Only the header is read.",
    MODEL,
    SHAPE,
    examples=("kvwise inspect model.gguf", "kvwise inspect hf:Qwen/Qwen3-8B-GGUF:Q4_K_M -v"),
    engine=False,
)
def command(printer: Printer, model: str | None, shape: str | None) -> int:
    facts = describe_file(model_of(model, shape))
    if printer.json:
        printer.document(facts)
    else:
        _show(printer, facts)
    return 0


def describe_file(model: Model) -> dict[str, Any]:
    """The document kvwise/inspect/1."""
    header = model.header
    return {
        "schema": "kvwise/inspect/1",
        "model": {
            "name": called(model),
            "architecture": model.architecture,
            "path": model.path,
            "files": list(header.shards),
            "gguf_version": header.version,
            "byte_order": header.byte_order,
            "alignment": header.alignment,
            "n_params": header.n_params,
            "n_tensors": len(header.tensors),
            "tensor_bytes": header.tensor_bytes,
            "bits_per_weight": round(8 * header.tensor_bytes / max(1, header.n_params), 3),
            "n_layer": model.n_layer,
            "n_layer_mtp": model.n_layer_nextn,
            "n_ctx_train": model.n_ctx_train,
            "n_vocab": model.n_vocab,
            "n_embd": model.n_embd,
            "tied_embeddings": model.tied_embeddings,
        },
        "attention": {
            "n_head": list(model.n_head),
            "n_head_kv": list(model.n_head_kv),
            "head_size_k": model.n_embd_head_k_full,
            "head_size_v": model.n_embd_head_v_full,
            "window": model.n_swa if any(model.swa) else 0,
            "window_type": model.swa_type,
            "window_layers": [il for il, windowed in enumerate(model.swa) if windowed],
            "recurrent_layers": [il for il, recurrent in enumerate(model.recr) if recurrent],
            "n_expert": model.n_expert,
            "n_expert_used": model.n_expert_used,
        },
        "cache": {
            "family": model.family,
            "verified": model.verified,
            "per_token": [{"type": kind, **_growth(model, kind)} for kind in CACHE_TYPES],
        },
        "tensors": {
            "by_type": _by_type(header.tensors),
            "by_layer": _by_layer(header.tensors),
        },
    }


def _growth(model: Model, kind: str) -> dict[str, int | None]:
    cost = growth(model, kind, kind)
    return {
        "bytes": cost.per_token_bytes if cost else None,
        "fixed_bytes": cost.fixed_bytes if cost else None,
    }


def _by_type(tensors: Iterable[Tensor]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for tensor in tensors:
        row = rows.setdefault(
            tensor.type.name, {"type": tensor.type.name, "count": 0, "elements": 0, "bytes": 0}
        )
        row["count"] += 1
        row["elements"] += tensor.elements
        row["bytes"] += tensor.nbytes
    return sorted(rows.values(), key=lambda row: -row["bytes"])


def _by_layer(tensors: Iterable[Tensor]) -> list[dict[str, Any]]:
    """One row per layer, then the tensors that belong to none."""
    layers: dict[int | None, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        match = _LAYER.match(tensor.name)
        layers[int(match[1]) if match else None].append(tensor)
    ordered = sorted(layers.items(), key=lambda pair: (pair[0] is None, pair[0] or 0))
    return [
        {
            "layer": layer,
            "count": len(members),
            "bytes": sum(tensor.nbytes for tensor in members),
            "types": [{"type": row["type"], "count": row["count"]} for row in _by_type(members)],
        }
        for layer, members in ordered
    ]


# -- what a person sees ----------------------------------------------------------


def _show(printer: Printer, facts: dict[str, Any]) -> None:
    model = facts["model"]
    printer.text(model["name"], "title")
    printer.table(_facts_table(facts))
    printer.text()
    if any(row["bytes"] != 0 or row["fixed_bytes"] for row in facts["cache"]["per_token"]):
        printer.table(_growth_table(facts))
    else:
        printer.text(phrase("It keeps no cache: a token of context costs nothing in any type"))
    printer.text()
    printer.table(_types_table(facts))
    printer.text()
    printer.table(_layers_table(facts, every=printer.verbosity > 0))
    if not facts["cache"]["verified"]:
        printer.text(
            phrase("unverified: kvwise has no proven rules for {name}", name=model["architecture"]),
            "warn",
        )


def _facts_table(facts: dict[str, Any]) -> Table:
    model, attention, cache = facts["model"], facts["attention"], facts["cache"]
    layers: Any = model["n_layer"]
    if model["n_layer_mtp"]:
        layers = phrase("{layers} and {mtp} for speculation (MTP)",
                        layers=layers, mtp=model["n_layer_mtp"])  # fmt: skip
    rows: list[tuple[Any, Any]] = [
        (phrase("architecture"), model["architecture"]),
        (phrase("cache family"), cache["family"]),
        (phrase("parameters"), f"{model['n_params']:,}"),
        (phrase("weights"), phrase("{size} in {count} tensors, {bits} bits per weight",
            size=show(model["tensor_bytes"]), count=model["n_tensors"],
            bits=f"{model['bits_per_weight']:.2f}")),
        (phrase("layers"), layers),
        (phrase("heads"), phrase("{heads} for queries, {kv} for K and V, {k} and {v} wide",
            heads=_runs(attention["n_head"]), kv=_runs(attention["n_head_kv"]),
            k=attention["head_size_k"], v=attention["head_size_v"])),
        (phrase("embedding"), phrase("{n_embd} wide, {n_vocab} tokens",
            n_embd=model["n_embd"], n_vocab=f"{model['n_vocab']:,}")),
        (phrase("trained context"), phrase("{count} tokens", count=f"{model['n_ctx_train']:,}")),
    ]  # fmt: skip
    if attention["window"]:
        rows.append((phrase("window"), phrase(
            "{tokens} tokens in {count} of {all} layers",
            tokens=attention["window"], count=len(attention["window_layers"]),
            all=model["n_layer"])))  # fmt: skip
    if attention["recurrent_layers"]:
        rows.append((phrase("state"), phrase(
            "{count} of {all} layers keep a state instead of a cache",
            count=len(attention["recurrent_layers"]), all=model["n_layer"])))  # fmt: skip
    if attention["n_expert"]:
        rows.append((phrase("experts"), phrase(
            "{all}, {used} at a time",
            all=attention["n_expert"], used=attention["n_expert_used"])))  # fmt: skip
    rows.append((phrase("file"), phrase(
        "GGUF {version}, {order}-endian, {count} file(s)", version=model["gguf_version"],
        order=_BYTE_ORDER[model["byte_order"]], count=max(1, len(model["files"])))))  # fmt: skip
    return Table(
        (Column(""), Column("")),
        [(Cell(name, "dim"), value if not isinstance(value, int) else f"{value:,}")
         for name, value in rows],
    )  # fmt: skip


def _growth_table(facts: dict[str, Any]) -> Table:
    points = _points(facts["model"]["n_ctx_train"])
    rows: list[tuple[Cell | str | Phrase, ...]] = []
    ordered = sorted(facts["cache"]["per_token"], key=lambda row: -(row["bytes"] or 0))
    for row in ordered:
        per_token = row["bytes"]
        if per_token is None:
            rows.append((row["type"], Cell(phrase("refused"), "dim"), "", *[""] * len(points)))
            continue
        sizes = [show(row["fixed_bytes"] + per_token * tokens) for tokens in points]
        rows.append((row["type"], f"{per_token:,}", f"{per_token / KIB:,.2f} KiB", *sizes))
    return Table(
        (
            Column(phrase("K and V")),
            Column(phrase("bytes"), right=True),
            Column(phrase("per token"), right=True),
            *(Column(phrase("at {tokens}", tokens=f"{each:,}"), right=True) for each in points),
        ),
        rows,
        title=phrase("What a token of context costs"),
    )


def _points(trained: int) -> list[int]:
    """Contexts to show, none beyond what the model was trained for (0: unknown)."""
    if not trained:
        return list(_USUAL)
    return [*(each for each in _USUAL if each < trained), trained]


def _types_table(facts: dict[str, Any]) -> Table:
    whole = max(1, facts["model"]["tensor_bytes"])
    return Table(
        (
            Column(phrase("type")),
            Column(phrase("tensors"), right=True),
            Column(phrase("size"), right=True),
            Column(phrase("share"), right=True),
        ),
        [
            (
                row["type"],
                f"{row['count']:,}",
                show(row["bytes"]),
                percent(row["bytes"] / whole, ".1f"),
            )
            for row in facts["tensors"]["by_type"]
        ],
        title=phrase("Quantization"),
    )


def _layers_table(facts: dict[str, Any], *, every: bool) -> Table:
    """Layers that look alike share a row, unless every one is asked for."""
    groups: dict[Any, tuple[dict[str, Any], list[int]]] = {}
    for row in facts["tensors"]["by_layer"]:
        layer = row["layer"]
        alike = layer if every or layer is None else _looks(row)
        groups.setdefault(alike, (row, []))[1].append(layer)
    rows = []
    for row, layers in groups.values():
        name = (
            phrase("outside the layers")
            if row["layer"] is None
            else ranges(layers).replace(",", ", ")
        )
        types = ", ".join(f"{kind['count']} {kind['type']}" for kind in row["types"])
        rows.append((name, f"{row['count']:,}", show(row["bytes"]), types))
    return Table(
        (
            Column(phrase("layer")),
            Column(phrase("tensors"), right=True),
            Column(phrase("size of one"), right=True),
            Column(phrase("types")),
        ),
        rows,
        title=phrase("Layers"),
    )


def _looks(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["bytes"], row["count"], str(row["types"])


def _runs(values: Sequence[int]) -> str:
    """Per-layer numbers in short: `8`, or `8 (30), 4 (6)` when layers differ."""
    counts: dict[int, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    if len(counts) == 1:
        return str(next(iter(counts)))
    return ", ".join(f"{value} ({count})" for value, count in counts.items()) or "0"
