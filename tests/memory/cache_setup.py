"""Builds the inputs of `caches` for tests: from golden results, or from plain sizes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.gguf.header import Header, Value
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.memory.context import Context
from kvwise.memory.ledger import Cache
from kvwise.memory.placement import HOST, Placement

ZOO = Path(__file__).parents[1] / "zoo"


def golden_names() -> list[str]:
    return sorted(path.name.removesuffix(".json.gz") for path in (ZOO / "golden").glob("*.gz"))


def golden(name: str) -> Any:
    return json.loads(gzip.decompress((ZOO / "golden" / f"{name}.json.gz").read_bytes()))


def zoo_model(name: str) -> Model:
    return describe(open_header(str(ZOO / "models" / f"{name}.json.gz")))


def shape(architecture: str = "llama", **keys: Value) -> Model:
    """A model from keys without the architecture; dots are written as double underscores."""
    plain: dict[str, Value] = {
        "context_length": 8192,
        "embedding_length": 512,
        "block_count": 8,
        "attention.head_count": 8,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
    }
    plain |= {key.replace("__", "."): value for key, value in keys.items()}
    metadata = {f"{architecture}.{key}": value for key, value in plain.items()}
    return describe(Header(3, {"general.architecture": architecture, **metadata}, ()))


def layer_list(text: str) -> tuple[int, ...]:
    """`0-2,5` as numbers."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def buffer_name(device: int) -> str:
    return "CPU" if device == HOST else f"VGPU{device}"


def context(**fields: Any) -> Context:
    """A resolved context of one sequence, f16, with flash attention, on the GPU."""
    plain: dict[str, Any] = {
        "n_ctx": 4096,
        "n_batch": 2048,
        "n_ubatch": 512,
        "n_seq_max": 1,
        "kv_unified": False,
        "flash_attn": True,
        "type_k": "f16",
        "type_v": "f16",
        "offload_kqv": True,
        "op_offload": True,
        "swa_full": False,
        "n_outputs_max": 0,
        "n_rs_seq": 0,
        "embeddings": False,
        "pooling": "none",
    }
    plain |= fields
    plain.setdefault("n_ctx_seq", plain["n_ctx"])
    return Context(**plain)


def on_one_gpu(model: Model) -> Placement:
    return Placement((0,) * model.n_layer_all, 0, 1, model.n_layer_all + 1)


def gpu(kind: str = "generic") -> Device:
    return Device("GPU", kind=kind)


def resolved(model: Model, config: dict[str, Any], result: dict[str, Any]) -> Context:
    """The context as the engine itself resolved it."""
    unavailable = "flash_attn_unavailable" in result.get("notes", ())
    same = ("n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "flash_attn")
    asked = (
        "n_seq_max", "kv_unified", "type_k", "type_v", "offload_kqv", "op_offload", "swa_full",
        "n_outputs_max", "embeddings", "mtp",
    )  # fmt: skip
    return context(
        **{key: result[key] for key in same},
        **{key: config[key] for key in asked},
        n_rs_seq=config["n_rs_seq"] if model.supports_rs_rollback else 0,
        v_trans=not result["flash_attn"] and not unavailable,
    )


def placed(model: Model, config: dict[str, Any], result: dict[str, Any]) -> Placement:
    """The placement as the engine itself resolved it."""
    where = {"CPU": HOST} | {f"VGPU{index}": index for index in range(8)}
    layers = [HOST] * model.n_layer_all
    for buffer, text in result["layer_device"].items():
        for il in layer_list(text):
            layers[il] = where[buffer]
    n_gpu = 0 if config["device"] == "cpu" else config["n_gpu"]
    return Placement(tuple(layers), where[result["output_device"]], n_gpu, result["gpu_layers"])


def as_golden(cache: Cache) -> dict[str, Any]:
    """A cache with the fields of a golden entry, `by_buffer` left out."""
    row: dict[str, Any] = {
        "role": cache.role,
        "kind": cache.kind,
        "n_layers": len(cache.layers),
        "layers": cache.layers,
    }
    if cache.kind == "kv":
        same = "cells streams n_swa swa_type type_k type_v k_bytes v_bytes"
        row |= {"k_row_elems": _row(cache.k_row), "v_row_elems": _row(cache.v_row)}
    elif cache.kind == "recurrent":
        same = "cells n_rs_seq r_bytes s_bytes"
        row |= {"r_row_elems": cache.r_row, "s_row_elems": cache.s_row}
    else:
        same = "ratio state_size n_embd_state streams n_rs_seq kv_bytes score_bytes"
    return row | {field: getattr(cache, field) for field in same.split()}


def _row(elements: tuple[int, ...]) -> int | list[int] | None:
    if not elements:
        return None
    return elements[0] if len(set(elements)) == 1 else list(elements)
