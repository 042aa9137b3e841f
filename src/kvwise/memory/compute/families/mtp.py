"""Draft contexts of next-token-prediction (MTP) layers: one layer behind the model's own.

It reads the drafted token and the hidden state that came before it, runs one block, and ends in
its own head, or in the model's. Architectures that are not here have no such graph in llama.cpp:
their draft context runs the whole model. What is no plain block is in `mtp_own`.
Source: graph_mtp in src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families import delta_nets, gated, latent
from kvwise.memory.compute.families.rows import Build, weighted
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import norm, output
from kvwise.memory.compute.pieces.decoder import (
    Attention,
    Decoder,
    feed_forward,
    last_rows,
    self_attention,
)
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.linear import linear, scaled
from kvwise.memory.compute.pieces.moe import moe
from kvwise.memory.compute.pieces.norm import Norm

AS_GIVEN = weighted(norm="given", gating="given")

Attend = Callable[[Builder, Tensor, int], Tensor]


def start(b: Builder, il: int, kind: Norm = "rms") -> Tensor:
    """Token and hidden state, normed, side by side, projected to one row."""
    table = b.w(il, "nextn.embed_tokens.weight")
    table = b.need_top("token_embd.weight") if table is None else table
    words = ops.get_rows(table, b.input("tokens", I32, b.n_tokens))
    hidden = b.input("hidden", F32, b.n_embd, b.n_tokens)
    words = norm.norm(b, words, b.need(il, "nextn.enorm.weight"), kind=kind, il=il)
    hidden = norm.norm(b, hidden, b.need(il, "nextn.hnorm.weight"), kind=kind, il=il)
    return linear(b, ops.concat(words, hidden, 0), il, "nextn.eh_proj", bias=False)


def head_norm(b: Builder, x: Tensor, il: int, kind: Norm = "rms") -> Tensor:
    """The head's own norm, else the layer's last, else the model's."""
    for weight in (b.w(il, "nextn.shared_head_norm.weight"), b.w(il, "layer_output_norm.weight")):
        if weight is not None:
            return norm.norm(b, x, weight, kind=kind)
    return norm.norm(b, x, b.need_top("output_norm.weight"), kind=kind)


def logits(b: Builder, x: Tensor, il: int, *, scale: bool = False) -> None:
    """The head's own matrix, else the model's."""
    matrix = b.w(il, "nextn.shared_head_head.weight")
    if matrix is None:
        cur = scaled(ops.mul_mat(output.output_matrix(b), x), b.top("output.scale"))
    else:
        cur = scaled(ops.mul_mat(matrix, x), b.w(il, "nextn.shared_head_head.scale"))
    output.hand_out(b, ops.scale(cur) if scale else cur)


def _finish(b: Builder, x: Tensor, il: int, kind: Norm = "rms") -> None:
    """Norm, hidden state handed out, rows, logits."""
    cur = head_norm(b, x, il, kind)
    b.outputs.append(cur)
    logits(b, ops.get_rows(cur, b.out_rows()), il)


def _finish_early(b: Builder, x: Tensor, il: int) -> None:
    """Rows, hidden state handed out before its norm, logits."""
    cur = ops.get_rows(x, b.out_rows())
    b.outputs.append(cur)
    logits(b, head_norm(b, cur, il), il)


def _plain(
    b: Builder, *, attend: Attend, how: Decoder, finish: Callable[[Builder, Tensor, int], None]
) -> None:
    il = b.n_layer
    x = start(b, il)
    x = ops.add(attend(b, norm.layer(b, x, il, "attn_norm"), il), x)
    x = ops.add(feed_forward(b, norm.layer(b, x, il, how.ffn_norm), il, how), x)
    finish(b, x, il)


def plain(
    attend: Attend,
    finish: Callable[[Builder, Tensor, int], None] = _finish,
    ffn_norm: str = "ffn_norm",
    shared: Literal["plain", "always"] = "plain",
) -> Build:
    """A block of attention and experts (or a dense network) in the usual order."""
    how = Decoder(moe=AS_GIVEN, shared=shared, ffn_norm=ffn_norm)
    return partial(_plain, attend=attend, how=how, finish=finish)


def _by(how: Attention) -> Attend:
    def run(b: Builder, x: Tensor, il: int) -> Tensor:
        return self_attention(b, x, il, how)

    return run


def _latent(b: Builder, x: Tensor, il: int) -> Tensor:
    """Dense: the indexer of sparse models rests."""
    if not b.model.is_mla:
        raise Unbuildable("MTP without latent attention")
    b.leave(il, "indexer")
    return latent.attend(b, x, il)


def _qwen(b: Builder, *, early_rows: bool) -> None:
    il = b.n_layer
    x = start(b, il)
    cur = delta_nets.attend(b, norm.layer(b, x, il, "attn_norm"), il, next_=False)
    if early_rows:
        cur, x = last_rows(b, cur, x)
    x = ops.add(cur, x)
    cur = delta_nets.feed_forward(b, norm.layer(b, x, il, "post_attention_norm"), il)
    x = ops.add(cur, x)
    if not early_rows:
        _finish(b, x, il)
        return
    cur = head_norm(b, x, il)
    b.outputs.append(cur)
    logits(b, cur, il)


def _cohere2moe(b: Builder) -> None:
    """Attention and experts in parallel."""
    il, model = b.n_layer, b.model
    kind: Norm = "rms" if model.f_norm_rms_eps else "layer"
    x = start(b, il, kind)
    read = norm.layer(b, x, il, "attn_norm", kind=kind)
    cur = self_attention(b, read, il, Attention(factors=True))
    made = moe(b, read, il, AS_GIVEN(b, il))
    if b.has(il, "ffn_up_shexp.weight"):
        made = ops.scale(ops.add(made, ffn(b, read, il, suffix="_shexp", bias=False)))
    cur = head_norm(b, ops.add(ops.add(made, x), cur), il, kind)
    b.outputs.append(cur)
    logits(b, ops.get_rows(cur, b.out_rows()), il, scale=bool(model.f_logit_scale))


def _nemotron(b: Builder) -> None:
    """Attention without positions; rows are picked before the experts."""
    il = b.n_layer
    x = start(b, il)
    cur = self_attention(b, norm.layer(b, x, il, "attn_norm"), il, Attention(rope=False))
    x = ops.get_rows(ops.add(cur, x), b.out_rows())
    read = norm.layer(b, x, il, "post_attention_norm")
    router = ops.mul_mat(b.need(il, "ffn_gate_inp.weight"), read)
    experts = weighted(norm="given", gating="sigmoid", act="relu_sqr", router=router)
    made = moe(b, read, il, experts(b, il))
    beside = ffn(b, read, il, "relu_sqr", suffix="_shexp", gate=False, bias=False)
    cur = head_norm(b, ops.add(ops.add(made, beside), x), il, "layer")
    b.outputs.append(cur)
    logits(b, cur, il)


ROWS: dict[str, Build] = {
    "glm4moe": plain(_by(Attention(qk_norm="before")), ffn_norm="post_attention_norm"),
    "hy_v3": plain(_by(Attention(qk_norm="before", factors=True)), shared="always"),
    "deepseek2": plain(_latent),
    "deepseek32": plain(_latent),
    "glm-dsa": plain(_latent),
    "mimo2": plain(
        _by(Attention(two_sizes=True, sinks=True, value_scale=True)), _finish_early
    ),
    "step35": plain(_by(gated.STEP35), _finish_early, shared="always"),
    "qwen35": partial(_qwen, early_rows=False),
    "qwen35moe": partial(_qwen, early_rows=False),
    "qwen3next": partial(_qwen, early_rows=True),
    "cohere2moe": _cohere2moe,
    "nemotron_h_moe": _nemotron,
}  # fmt: skip
