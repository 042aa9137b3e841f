"""Plain decoders with a second, windowed cache: Gemma 2 and 3, Cohere 2, OLMo 2 and their kin.

Source: src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build, plain, weighted
from kvwise.memory.compute.pieces.decoder import Attention


def _windowed_layers(b: Builder, il: int) -> bool:
    return b.model.is_swa(il)


def _windowed_or_all(b: Builder, il: int) -> bool:
    return b.model.swa_type == "none" or b.model.is_swa(il)


def _has_rope(b: Builder, il: int) -> bool:
    return b.model.has_rope(il)


ROWS: dict[str, Build] = {
    "gemma2": plain(
        Attention(q_scale=True), act="gelu", embed_scale=True, attn_post_norm="post_attention_norm",
        ffn_post_norm="post_ffw_norm", soft_cap="always",
    ),
    "gemma3": plain(
        Attention(q_scale=True, qk_norm="before"), act="gelu", tokens_scale=True,
        attn_post_norm="post_attention_norm", ffn_post_norm="post_ffw_norm", soft_cap="given",
    ),
    "cohere2": plain(
        Attention(rope=_windowed_layers, factors=True), norm="layer", parallel=True,
        logit_scale="given",
    ),
    "olmo2": plain(
        Attention(qk_norm="rows"), attn_norm="", ffn_norm="",
        attn_post_norm="post_attention_norm", ffn_post_norm="post_ffw_norm",
    ),
    "exaone4": plain(
        Attention(qk_norm="before", rope=_windowed_or_all, factors=True), attn_norm="", ffn_norm="",
        attn_post_norm="post_attention_norm", ffn_post_norm="post_ffw_norm",
    ),
    "granite_swa": plain(
        Attention(rope=_has_rope, factors=True, sinks=True), moe=weighted(norm=True),
        shared="fused", residual_scale=True, logit_scale="always", deepstack="before",
    ),
}  # fmt: skip
