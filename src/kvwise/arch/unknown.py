"""An architecture we have no row for: the family that its tensors and keys imply.

Tensor names are the better witness, keys decide where there are none. The implied rules err on
the side of more memory: without a pattern every layer keeps its full cache. Whatever comes out of
here is marked unverified.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from kvwise.arch import latent, recurrent, sliding, steps
from kvwise.arch.draft import Draft, Step
from kvwise.arch.row import Family, Hybrid, Row
from kvwise.gguf.header import Header

_COMMON = (
    "f_norm_eps f_norm_rms_eps n_swa n_lora_q n_lora_kv n_embd_per_layer n_ff_exp n_ff_shexp "
    "n_expert_shared n_layer_dense_lead expert_gating_func expert_weights_scale "
    "expert_weights_norm indexer_n_head indexer_head_size indexer_top_k indexer_block_size "
    "indexer_local_blocks f_max_alibi_bias f_logit_scale f_residual_scale f_embedding_scale "
    "n_deepstack_layers"
)
_STATES = {
    "wkv": "wkv_head_size token_shift_count",
    "shortconv": "n_shortconv_l_cache",
    "kda": "n_embd_head_kda ssm_d_conv",
    "ssm": "ssm_d_conv ssm_d_inner ssm_d_state ssm_dt_rank ssm_n_group",
}
"""Kinds of state, the most telling first, and what sizes them."""

_STATE_KEYS = {
    "wkv": ".wkv.head_size",
    "shortconv": ".shortconv.l_cache",
    "kda": ".kda.head_dim",
    "ssm": ".ssm.inner_size",
}
_STATE_TENSORS = {
    "wkv": re.compile(r"time_mix_"),
    "shortconv": re.compile(r"shortconv\."),
    "kda": re.compile(r"ssm_conv1d_[qkv]\b"),
    "ssm": re.compile(r"ssm_"),
}
_TENSORS = {
    "attention": re.compile(r"attn_(q|k|v|kv|qkv|q_a|kv_a_mqa)\."),
    "absorbed": re.compile(r"attn_k_b\."),
    "indexer": re.compile(r"indexer\."),
    "compressor": re.compile(r"attn_compressor_"),
    **_STATE_TENSORS,
}
_BLOCK = re.compile(r"blk\.(\d+)\.(.*)")


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Layers with tensors of each kind; `known` is false for a header without layer tensors."""

    layers: dict[str, frozenset[int]]
    known: bool

    def has(self, kind: str) -> bool:
        return bool(self.layers.get(kind))


def imply(header: Header) -> Row:
    """A row from the tensors and keys alone."""
    evidence = _look(header)
    state = _state(header, evidence)
    family = _family(header, evidence, state)
    reads: list[str | Step] = [_COMMON, steps.sections(required=False), steps.mtp]
    if state:
        reads.append(_STATES[state])
    if evidence.has("absorbed") or not evidence.known:
        reads.append("n_embd_head_k_mla_impl n_embd_head_v_mla_impl")
    if family == "hybrid":
        reads.append(_hybrid_layers(evidence, state))
    if family == "compressed":
        reads += ["dsv4_hc_mult", latent.compression, sliding.every_layer]
    elif family not in {"recurrent", "blocks"}:
        reads.append(_windows)
    if header.get(".attention.shared_kv_layers") is not None:
        reads.append(sliding.shared_kv)
    if family == "indexed":
        reads.append(_indexer_layers(evidence))
    return Row(
        "neox",
        tuple(reads),
        family=family,
        mtp_kv="apart" if family in {"indexed", "compressed"} else "kept",
        hybrid=_which(header, evidence, state),
    )


def _look(header: Header) -> _Evidence:
    layers: dict[str, set[int]] = defaultdict(set)
    for tensor in header.tensors:
        block = _BLOCK.match(tensor.name)
        if block is None:
            continue
        layers["any"].add(int(block[1]))
        for kind, pattern in _TENSORS.items():
            if pattern.match(block[2]):
                layers[kind].add(int(block[1]))
    frozen = {kind: frozenset(found) for kind, found in layers.items()}
    return _Evidence(frozen, bool(frozen))


def _state(header: Header, evidence: _Evidence) -> str:
    """The kind of state some layer keeps, or an empty string."""
    for kind, key in _STATE_KEYS.items():
        if evidence.has(kind) if evidence.known else header.get(key) is not None:
            return kind
    return ""


def _family(header: Header, evidence: _Evidence, state: str) -> Family:
    compressed = header.get(".attention.compress_ratios") is not None
    indexed = header.get(".attention.indexer.key_length") is not None
    attention = bool(header.get(".attention.head_count"))
    if evidence.known:
        compressed = compressed and evidence.has("compressor")
        indexed = indexed and evidence.has("indexer")
        attention = evidence.has("attention")
    if compressed:
        return "compressed"
    if header.get(".attention.causal") is False:
        return "none"
    if state:
        return "hybrid" if attention and state != "wkv" else "recurrent"
    if indexed:
        latent_kv = evidence.has("absorbed") or not evidence.known
        blocks = header.get(".attention.indexer.block_size") is not None
        return "blocks" if blocks and not latent_kv else "indexed"
    return "attention"


def _which(header: Header, evidence: _Evidence, state: str) -> Hybrid:
    """Which layers of a hybrid have KV (`Row.hybrid`)."""
    if not evidence.known:
        return "rest" if _has_pattern(header) else "all"
    every, attention = evidence.layers["any"], evidence.layers.get("attention", frozenset())
    states = evidence.layers.get(state, frozenset())
    if states == every and attention == every:
        return "all"
    return "bare" if every - states - attention else "rest"


def _has_pattern(header: Header) -> bool:
    kv_heads = header.get(".attention.head_count_kv")
    listed = isinstance(kv_heads, tuple) and 0 in kv_heads
    keys = (".attention.recurrent_layers", ".full_attention_interval")
    return listed or any(header.get(key) is not None for key in keys)


def _hybrid_layers(evidence: _Evidence, state: str) -> Step:
    def step(draft: Draft) -> None:
        if evidence.known:
            with_state = evidence.layers.get(state, frozenset())
            layers = draft.n_layer
            draft["recr"][:layers] = [il in with_state for il in range(layers)]
        elif not _has_pattern(draft.header):
            recurrent.every_layer(draft)
        elif 0 in draft["n_head_kv"][: draft.n_layer]:
            recurrent.without_kv_heads(draft)
        else:
            recurrent.interval(1)(draft)

    return step


def _windows(draft: Draft) -> None:
    pattern = draft.raw(".attention.sliding_window_pattern")
    if draft["n_swa"] == 0 or pattern is None:
        draft["n_swa"] = 0
    elif isinstance(pattern, tuple):
        sliding.listed_array(draft)
    else:
        sliding.window(1)(draft)
    if not any(draft["swa"][: draft["n_layer_all"]]):
        draft["swa_type"] = "none"
        draft["n_swa"] = 0


def _indexer_layers(evidence: _Evidence) -> Step:
    def step(draft: Draft) -> None:
        layers, found = draft["n_layer_all"], evidence.layers.get("indexer", frozenset())
        draft["indexer_full"][:layers] = [il in found or not evidence.known for il in range(layers)]

    return step
