"""Plain decoders whose layers hold experts.

Source: src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build, plain, weighted
from kvwise.memory.compute.pieces.decoder import Attention


def _every_step(b: Builder, il: int) -> bool:
    model = b.model
    return il >= model.n_layer_dense_lead and (il + 1) % model.n_moe_layer_step == 0


BEFORE = Attention(qk_norm="before")
AS_GIVEN = weighted(norm="given", gating="given")

ROWS: dict[str, Build] = {
    "qwen3moe": plain(BEFORE, moe=weighted(norm=True)),
    "qwen2moe": plain(moe=weighted(), shared="gated"),
    "olmoe": plain(Attention(qk_norm="rows"), moe=weighted()),
    "dbrx": plain(norm="layer", ffn_norm="attn_output_norm", moe=weighted(norm=True)),
    "deepseek": plain(Attention(factors=True), moe=weighted(), shared="plain"),
    "bailingmoe": plain(Attention(factors=True), moe=weighted(norm="given"), shared="plain"),
    "bailingmoe2": plain(BEFORE, moe=AS_GIVEN, shared="plain"),
    "dots1": plain(BEFORE, moe=AS_GIVEN, shared="plain"),
    "ernie4_5-moe": plain(moe=weighted(norm=True), shared="plain", moe_layers=_every_step),
    "hunyuan-moe": plain(
        Attention(qk_norm="after", factors=True), moe=weighted(norm=True), shared="first"
    ),
    "minimax-m2": plain(Attention(qk_norm="rows"), moe=weighted(norm=True, gating="given")),
    "mellum": plain(BEFORE, moe=weighted(norm=True)),
    "llada-moe": plain(Attention(qk_norm="before", cached=False), moe=weighted()),
    "rnd1": plain(Attention(qk_norm="before", cached=False), moe=weighted(norm=True)),
}
