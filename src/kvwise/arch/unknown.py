"""An architecture we have no row for: the family that its own keys imply.

The implied rules err on the side of more memory: without a pattern every layer keeps its full
cache. Whatever comes out of here is marked unverified.
"""

from __future__ import annotations

from kvwise.arch import latent, recurrent, sliding, steps
from kvwise.arch.draft import Draft, Step
from kvwise.arch.table import Family, Row
from kvwise.gguf.header import Header

_COMMON = (
    "f_norm_eps f_norm_rms_eps n_swa n_lora_q n_lora_kv n_embd_head_k_mla_impl "
    "n_embd_head_v_mla_impl n_embd_per_layer n_ff_exp n_ff_shexp n_expert_shared "
    "n_layer_dense_lead expert_gating_func expert_weights_scale expert_weights_norm ssm_d_conv "
    "ssm_d_inner ssm_d_state ssm_dt_rank ssm_n_group n_embd_head_kda n_shortconv_l_cache "
    "wkv_head_size token_shift_count indexer_n_head indexer_head_size indexer_top_k "
    "indexer_block_size indexer_local_blocks f_max_alibi_bias f_logit_scale f_residual_scale "
    "f_embedding_scale n_deepstack_layers"
)
_STATE_KEYS = (".ssm.state_size", ".ssm.inner_size", ".kda.head_dim", ".shortconv.l_cache")


def imply(header: Header) -> Row:
    """A row from the keys alone."""
    family = _family(header)
    reads: list[str | Step] = [_COMMON, steps.sections(required=False)]
    if family == "compressed":
        reads.append("dsv4_hc_mult")
    reads.append(steps.mtp)
    if family == "hybrid":
        reads.append(_states)
    if family == "compressed":
        reads += [latent.compression, sliding.every_layer]
    elif family != "recurrent":
        reads.append(_windows)
    if header.get(".attention.shared_kv_layers") is not None:
        reads.append(sliding.shared_kv)
    if family == "indexed":
        reads.append(_indexers)
    parallel = family == "hybrid" and not _has_pattern(header)
    return Row("neox", tuple(reads), family=family, hybrid="all" if parallel else "rest")


def _family(header: Header) -> Family:
    if header.get(".attention.compress_ratios") is not None:
        return "compressed"
    if header.get(".attention.causal") is False:
        return "none"
    if header.get(".wkv.head_size") is not None:
        return "recurrent"
    if any(header.get(key) is not None for key in _STATE_KEYS):
        return "hybrid" if header.get(".attention.head_count") else "recurrent"
    if header.get(".attention.indexer.key_length") is not None:
        return "blocks" if header.get(".attention.indexer.block_size") is not None else "indexed"
    return "attention"


def _has_pattern(header: Header) -> bool:
    kv_heads = header.get(".attention.head_count_kv")
    listed = isinstance(kv_heads, tuple) and 0 in kv_heads
    keys = (".attention.recurrent_layers", ".full_attention_interval")
    return listed or any(header.get(key) is not None for key in keys)


def _states(draft: Draft) -> None:
    if not _has_pattern(draft.header):
        recurrent.every_layer(draft)
    elif 0 in draft["n_head_kv"][: draft.n_layer]:
        recurrent.without_kv_heads(draft)
    else:
        recurrent.interval(1)(draft)


def _windows(draft: Draft) -> None:
    pattern = draft.raw(".attention.sliding_window_pattern")
    if draft["n_swa"] == 0 or pattern is None:
        draft["n_swa"] = 0
    elif isinstance(pattern, tuple):
        sliding.listed_array(draft)
    else:
        sliding.window(1)(draft)
    if not any(draft["swa"]):
        draft["swa_type"] = "none"


def _indexers(draft: Draft) -> None:
    layers = draft["n_layer_all"]
    draft["indexer_full"][:layers] = [True] * layers
    draft.read_or_array("indexer_full", draft.n_layer)
