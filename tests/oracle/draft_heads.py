"""Small drafts made for a target as converters write them: EAGLE-3, DFlash, Gemma 4's assistant.

Source: conversion/llama.py, qwen.py and gemma.py of llama.cpp b10605.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

ZOO = Path(__file__).parents[1] / "zoo" / "models"
Document = dict[str, Any]
Row = list[Any]


def target(what: str | Document) -> Document:
    """A model of the zoo (or one made of it) that can be run: sizes of heads fit their rotation."""
    if isinstance(what, str):
        known = json.loads(gzip.decompress((ZOO / f"{what}.json.gz").read_bytes()))
        tensors = [row[:3] + row[4:] for row in known["tensors"]]
        what = {"metadata": known["metadata"], "tensors": tensors}
    metadata = what["metadata"]
    start = metadata["general.architecture"] + "."
    if windowed := metadata.get(start + "attention.key_length_swa"):
        metadata[start + "rope.dimension_count_swa"] = windowed
    if start == "bailingmoe3.":  # those of the zoo are wider than its heads
        metadata.pop(start + "rope.dimension_sections")
    metadata[start + "vocab_size"] = words_of(what)
    return what


def words_of(document: Document) -> int:
    return next(int(row[1][1]) for row in document["tensors"] if row[0] == "token_embd.weight")


def key_of(document: Document, name: str) -> Any:
    metadata = document["metadata"]
    return metadata[f"{metadata['general.architecture']}.{name}"]


def _made(architecture: str, keys: Document, tensors: list[Row], layers: list[Row]) -> Document:
    metadata = {f"{architecture}.{key}": value for key, value in keys.items()}
    rows = [_row(name, shape, None) for name, shape in tensors]
    rows += [_row(f"blk.{{i}}.{name}.weight", shape, where) for name, shape, where in layers]
    return {"metadata": {"general.architecture": architecture} | metadata, "tensors": rows}


def _row(name: str, shape: tuple[int, ...], where: str | None) -> Row:
    kind = "i64" if name == "d2t" else "f32" if len(shape) == 1 or shape[1] == 1 else "q8_0"
    return [name, list(shape), kind, where]


def eagle3(
    of: Document,
    *,
    width: int = 0,
    few: int = 0,
    words: bool = False,
    scores: bool = True,
    norm: bool = False,
    factors: bool = False,
    layers: tuple[int, ...] = (),
) -> Document:
    """`width`: its hidden size, the target's if 0; `few`: tokens it scores, all if 0; `words`,
    `scores`: has embeddings, an output matrix; `norm`: of features and residual; `factors`: of
    the rotation; `layers`: of the target that it reads."""
    wide, total, count = key_of(of, "embedding_length"), words_of(of), key_of(of, "block_count")
    n, head, heads, kv, ff = width or wide, 64, 4, 2, 512
    keys = {
        "vocab_size": total, "context_length": 32768, "embedding_length": n, "block_count": 1,
        "feed_forward_length": ff, "attention.head_count": heads, "attention.head_count_kv": kv,
        "attention.key_length": head, "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": 1e-5, "rope.dimension_count": head,
        "target_layers": list(layers) or [1, 2, count - 2], "target_hidden_size": wide,
        "norm_before_residual": norm, "norm_before_fc": norm,
    }  # fmt: skip
    tensors: list[Row] = [["fc.weight", (3 * wide, n)], ["output_norm.weight", (n,)]]
    tensors += [["output.weight", (n, few or total)]] * scores
    tensors += [["token_embd.weight", (n, total)]] * words
    tensors += [["d2t", (few,)]] * bool(few)
    tensors += [["enc.output_norm.weight", (3 * wide,)]] * norm
    tensors += [["rope_freqs.weight", (head // 2,)]] * factors
    parts: list[tuple[str, tuple[int, ...]]] = [
        ("attn_norm", (n,)), ("attn_norm_2", (n,)), ("attn_q", (2 * n, heads * head)),
        ("attn_k", (2 * n, kv * head)), ("attn_v", (2 * n, kv * head)),
        ("attn_output", (heads * head, n)), ("ffn_norm", (n,)), ("ffn_gate", (n, ff)),
        ("ffn_up", (n, ff)), ("ffn_down", (ff, n)),
    ]  # fmt: skip
    return _made("eagle3", keys, tensors, [[*part, "0"] for part in parts])


def dflash(
    of: Document,
    *,
    few: int = 0,
    rank: int = 0,
    window: int = 0,
    layers: tuple[int, ...] = (),
    options: bool = False,
    selects: bool = False,
) -> Document:
    """`few`: tokens it scores; `rank`: of DSpark's Markov head; `window`: of two of its layers;
    `options`: what b11549 reads more; `selects`: DFlash 2."""
    wide, total, count = key_of(of, "embedding_length"), words_of(of), key_of(of, "block_count")
    n, head, heads, kv, ff, depth = wide, 64, 4, 2, 512, 3
    reads = list(layers) or [1, 2, count - 2]
    keys = {
        "vocab_size": total, "context_length": 32768, "embedding_length": n, "block_count": depth,
        "feed_forward_length": ff, "attention.head_count": heads, "attention.head_count_kv": kv,
        "attention.key_length": head, "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": 1e-6, "rope.dimension_count": head,
        "target_layers": reads, "block_size": 8,
    }  # fmt: skip
    if window:
        keys["attention.sliding_window"] = window
        keys["attention.sliding_window_pattern"] = [True, True, False]
    if rank:
        keys["markov_rank"] = rank
    tensors: list[Row] = [
        ["fc.weight", (len(reads) * wide, n)], ["enc.output_norm.weight", (n,)],
        ["output_norm.weight", (n,)],
    ]  # fmt: skip
    tensors += [["output.weight", (n, few)], ["d2t", (few,)]] * bool(few)
    if rank:
        tensors += [["markov_w1.weight", (rank, total)], ["markov_w2.weight", (rank, few or total)]]
        tensors += [["conf_proj.weight", (n + rank, 1)]]
    parts: list[tuple[str, tuple[int, ...]]] = [
        ("attn_norm", (n,)), ("attn_q", (n, heads * head)), ("attn_k", (n, kv * head)),
        ("attn_v", (n, kv * head)), ("attn_output", (heads * head, n)), ("attn_q_norm", (head,)),
        ("attn_k_norm", (head,)), ("ffn_norm", (n,)), ("ffn_gate", (n, ff)), ("ffn_up", (n, ff)),
        ("ffn_down", (ff, n)),
    ]  # fmt: skip
    if options:
        keys |= {
            "embedding_scale": 2.0, "attention.value_scale": 2.0, "hidden_activation": "gelu",
            "rope.dimension_sections": [head // 2, 0, 0, 0],
        }  # fmt: skip
        parts = [part for part in parts if part[0] != "attn_v"]
        parts += [
            ("post_attention_norm", (n,)), ("post_ffw_norm", (n,)), ("layer_output_scale", (1,)),
            ("attn_sinks", (heads,)),
        ]  # fmt: skip
    if selects:
        kernel, group, best, small = 3, 64, 8, 32
        keys |= {
            "conv_kernel_size": kernel, "conv_group_size": group, "selector_rank": small,
            "selector_top_k": best, "logit_scale": 2.0, "final_logit_softcapping": 30.0,
        }  # fmt: skip
        tensors += [
            ["selector_predecessor.weight", (small, total)],
            ["selector_successor.weight", (small, few or total)],
            ["selector_hidden.weight", (n, small)], ["rope_freqs.weight", (head // 2,)],
        ]  # fmt: skip
        wide = 2 * kernel * n // group
        parts += [("attn_conv_proj", (n, wide)), ("ffn_conv_proj", (n, wide))]
    made = _made("dflash", keys, tensors, [[*part, f"0-{depth - 1}"] for part in parts])
    if selects:
        for name in ("attn_conv_base", "ffn_conv_base"):
            row = [f"blk.{{i}}.{name}", [n, kernel, 2], "f32", f"0-{depth - 1}"]
            made["tensors"].append(row)
    made["metadata"]["tokenizer.ggml.mask_token_id"] = 5
    return made


def on_streams(of: Document, rank: int = 64) -> Document:
    """DSpark for DeepSeek V4: its last layer three times, without compressed keys."""
    wide, total, depth = key_of(of, "embedding_length"), words_of(of), 3
    donor, reads = key_of(of, "block_count") - 1, [1, 2]
    keys = {
        key.partition(".")[2]: value
        for key, value in of["metadata"].items()
        if key.startswith("deepseek4.") and not isinstance(value, list)
    }
    keys |= {
        "block_count": depth, "target_layers": reads, "block_size": 8, "markov_rank": rank,
        "attention.compress_ratios": [0] * depth,
    }  # fmt: skip
    tensors: list[Row] = [
        ["fc.weight", (len(reads) * wide, wide)], ["enc.output_norm.weight", (wide,)],
        ["markov_w1.weight", (rank, total)], ["markov_w2.weight", (rank, total)],
        ["conf_proj.weight", (wide + rank, 1)],
    ]  # fmt: skip
    made = _made("dflash", keys, tensors, [])
    for name, shape, kind, where in of["tensors"]:
        if name.startswith("output_"):
            made["tensors"].append([name, shape, kind, None])
        elif where and donor in layers_of(where) and not BESIDE.search(name):
            made["tensors"].append([name, shape, kind, f"0-{depth - 1}"])
    made["metadata"]["tokenizer.ggml.mask_token_id"] = 5
    return made


BESIDE = re.compile("compressor|indexer|nextn|tid2eid")
"""What DSpark's layers do not have of DeepSeek V4's."""


def layers_of(text: str) -> set[int]:
    """`0-2,5` as numbers."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def assistant(of: Document) -> Document:
    """Gemma 4's: three windowed layers and a full one, half as wide as the target."""
    wide, total, n, heads, ff, depth = key_of(of, "embedding_length"), words_of(of), 128, 4, 512, 4
    full, windowed = key_of(of, "attention.key_length"), key_of(of, "attention.key_length_swa")
    keys = {
        "vocab_size": total, "context_length": 32768, "embedding_length": n,
        "embedding_length_out": wide, "block_count": depth, "nextn_predict_layers": depth,
        "feed_forward_length": ff, "attention.head_count": heads,
        "attention.head_count_kv": key_of(of, "attention.head_count_kv"),
        "attention.key_length": full, "attention.value_length": full,
        "attention.key_length_swa": windowed, "attention.value_length_swa": windowed,
        "attention.sliding_window": key_of(of, "attention.sliding_window"),
        "attention.sliding_window_pattern": [True] * (depth - 1) + [False],
        "attention.shared_kv_layers": depth, "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": full, "rope.dimension_count_swa": windowed,
    }  # fmt: skip
    tensors: list[Row] = [
        ["token_embd.weight", (n, total)], ["output_norm.weight", (n,)],
        ["nextn.pre_projection.weight", (2 * wide, n)],
        ["nextn.post_projection.weight", (n, wide)], ["rope_freqs.weight", (full // 2,)],
    ]  # fmt: skip
    rows: list[Row] = []
    for il in range(depth):
        head = full if il == depth - 1 else windowed
        rows += [
            [*part, str(il)]
            for part in (
                ("attn_norm", (n,)), ("attn_q", (n, heads * head)),
                ("attn_output", (heads * head, n)), ("attn_q_norm", (head,)),
                ("post_attention_norm", (n,)), ("layer_output_scale", (1,)), ("ffn_norm", (n,)),
                ("ffn_gate", (n, ff)), ("ffn_up", (n, ff)), ("ffn_down", (ff, n)),
                ("post_ffw_norm", (n,)),
            )
        ]  # fmt: skip
    return _made("gemma4-assistant", keys, tensors, rows)
