"""Plain decoders without windows: Llama, Qwen, Phi, GPT and their kin (experts where they vary).

Source: src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build, plain, weighted
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import norm
from kvwise.memory.compute.pieces.decoder import (
    Attention,
    Decoder,
    feed_forward,
    finish,
    last_rows,
    self_attention,
    start,
)

FACTORS = Attention(factors=True)
NONE = Attention(rope=False)
EXPERTS = weighted(norm=True)


def _smollm3(b: Builder, il: int) -> bool:
    return (il + 1) % b.model.n_no_rope_layer_step != 0


def _baichuan(b: Builder, il: int) -> bool:  # noqa: ARG001
    return b.model.n_layer == 32  # only the 7B model rotates, the others use ALiBi


def _has_rope(b: Builder, il: int) -> bool:
    return b.model.has_rope(il)


def side_by_side(b: Builder, how: Decoder, *, second_norm: str, residual_last: bool) -> None:
    """Attention and feed-forward in parallel, the latter on its own norm (or on attention's)."""
    x = start(b, how)
    for il in range(b.n_layer):
        normed = norm.layer(b, x, il, "attn_norm", kind=how.norm)
        read = normed
        if second_norm and b.has(il, second_norm + ".weight"):
            read = norm.layer(b, x, il, second_norm, kind=how.norm)
        cur = self_attention(b, read, il, how.attn)
        if il == b.n_layer - 1:
            cur, x, normed = last_rows(b, cur, x, normed)
        made = feed_forward(b, normed, il, how)
        both = ops.add(made, cur) if residual_last else ops.add(cur, made)
        x = ops.add(both, x)
    finish(b, x, how)


def _falcon(b: Builder) -> None:
    how = Decoder(norm="layer", act="gelu")
    side_by_side(b, how, second_norm="attn_norm_2", residual_last=True)


def _plamo(b: Builder) -> None:
    side_by_side(b, Decoder(), second_norm="", residual_last=True)


def _phi2(b: Builder) -> None:
    how = Decoder(norm="layer", act="gelu", attn=Attention(q_scale=True))
    side_by_side(b, how, second_norm="", residual_last=False)


def _gptneox(b: Builder) -> None:
    how = Decoder(norm="layer", act="gelu")
    x = start(b, how)
    for il in range(b.n_layer):
        cur = self_attention(b, norm.layer(b, x, il, "attn_norm", kind="layer"), il, how.attn)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        if b.model.use_par_res:
            made = feed_forward(b, norm.layer(b, x, il, "ffn_norm", kind="layer"), il, how)
            x = ops.add(ops.add(made, x), cur)
        else:
            x = ops.add(cur, x)
            made = feed_forward(b, norm.layer(b, x, il, "ffn_norm", kind="layer"), il, how)
            x = ops.add(made, x)
    finish(b, x, how)


def _stablelm(b: Builder) -> None:
    """Without a feed-forward norm the network reads attention's norm (parallel residual)."""
    how = Decoder(norm="layer", attn=Attention(qk_norm="before", qk_kind="layer"))
    x = start(b, how)
    for il in range(b.n_layer):
        normed = norm.layer(b, x, il, "attn_norm", kind="layer")
        cur = self_attention(b, normed, il, how.attn)
        if il == b.n_layer - 1:
            cur, x, normed = last_rows(b, cur, x, normed)
        x = ops.add(cur, x)
        if b.has(il, "ffn_norm.weight"):
            normed = norm.layer(b, x, il, "ffn_norm", kind="layer")
        x = ops.add(feed_forward(b, normed, il, how), x)
    finish(b, x, how)


def _phi3(b: Builder) -> None:
    """Its last addition has the residual first."""
    how = Decoder(act="swiglu", attn=Attention(factors=True, q_scale=True), moe=EXPERTS)
    x = start(b, how)
    for il in range(b.n_layer):
        cur = self_attention(b, norm.layer(b, x, il, "attn_norm"), il, how.attn)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        x = ops.add(x, feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, how))
    finish(b, x, how)


def _temperature(b: Builder, il: int) -> Tensor | None:  # noqa: ARG001
    if not b.model.f_attn_temp_scale:
        return None
    return b.input("attn_scale", F32, 1, 1, b.n_tokens)


_GRANITE = plain(
    Attention(factors=True, rope=_has_rope), moe=EXPERTS, shared="plain",
    residual_scale=True, logit_scale="always", deepstack="before",
)  # fmt: skip

ROWS: dict[str, Build] = {
    "llama": plain(FACTORS, moe=EXPERTS),
    "mistral3": plain(Attention(factors=True, temperature=_temperature), moe=EXPERTS),
    "qwen": plain(),
    "qwen2": plain(),
    "qwen2vl": plain(),
    "qwen3": plain(Attention(qk_norm="before")),
    "internlm2": plain(),
    "xverse": plain(),
    "codeshell": plain(norm="layer", act="gelu"),
    "orion": plain(norm="layer"),
    "olmo": plain(norm="layer"),
    "refact": plain(NONE),
    "baichuan": plain(Attention(rope=_baichuan)),
    "starcoder": plain(NONE, norm="layer", act="gelu", positions=True),
    "gpt2": plain(NONE, norm="layer", act="gelu", positions=True),
    "starcoder2": plain(norm="layer", act="gelu"),
    "bloom": plain(NONE, norm="layer", act="gelu", embed_norm="weights"),
    "nemotron": plain(norm="layer", act="relu_sqr"),
    "jais": plain(NONE, norm="layer"),
    "jais2": plain(norm="layer", act="relu_sqr"),
    "chatglm": plain(act="swiglu"),
    "exaone": plain(FACTORS),
    "smollm3": plain(Attention(rope=_smollm3)),
    "seed_oss": plain(ffn_norm="post_attention_norm"),
    "arcee": plain(FACTORS, act="relu_sqr"),
    "ernie4_5": plain(),
    "paddleocr": plain(),
    "hunyuan-dense": plain(Attention(factors=True, qk_norm="after")),
    "hunyuan_vl": plain(Attention(factors=True, qk_norm="after")),
    "pangu-embedded": plain(),
    "maincoder": plain(Attention(qk_norm="after")),
    "granite": _GRANITE,
    "granitemoe": _GRANITE,
    "minicpm": _GRANITE,
    "gemma": plain(Attention(q_scale=True), act="gelu", embed_scale=True),
    "command-r": plain(
        Attention(qk_norm="before", qk_kind="layer"), norm="layer", parallel=True,
        logit_scale="given",
    ),
    "bitnet": plain(
        Attention(sub_norm="attn_sub_norm"), ffn_sub_norm="ffn_sub_norm", output="embeddings"
    ),
    "llama-embed": plain(Attention(factors=True, cached=False), moe=EXPERTS, output="none"),
    "dream": plain(Attention(cached=False)),
    "llada": plain(Attention(cached=False)),
    "falcon": _falcon,
    "plamo": _plamo,
    "phi2": _phi2,
    "phi3": _phi3,
    "phimoe": _phi3,
    "gptneox": _gptneox,
    "stablelm": _stablelm,
}  # fmt: skip
