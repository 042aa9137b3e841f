"""Draft heads that guess token by token for a larger model: EAGLE-3 and Gemma 4's assistant.

What they lack is the target's: embeddings, the output matrix, for the assistant its caches, too.
Source: src/models/eagle3.cpp and gemma4-assistant.cpp, b10605. What is reserved is the decoder's
graph.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, head, norm, output
from kvwise.memory.compute.pieces.decoder import last_rows
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.rope import rope


def _eagle3(b: Builder) -> None:
    """One layer that reads the token's embedding beside the target's features."""
    if b.n_layer != 1:
        raise Unbuildable(f"{b.n_layer} layers, llama.cpp allows one")
    head.leave_encoder(b)
    model, n, il = b.model, b.n_tokens, 0
    words = head.token_rows(b)
    features = b.input("embd", F32, b.n_embd, n)
    words = norm.layer(b, words, il, "attn_norm")
    normed = norm.norm(b, features, b.w(il, "attn_norm_2.weight"))
    cur = ops.concat(words, normed, 0)
    size, heads_kv = model.n_embd_head_k(il), model.n_head_kv[il]
    q = ops.reshape(linear(b, cur, il, "attn_q", bias=False), size, model.n_head[il], n)
    k = ops.reshape(linear(b, cur, il, "attn_k", bias=False), size, heads_kv, n)
    v = ops.reshape(linear(b, cur, il, "attn_v", bias=False), size, heads_kv, n)
    q, k = (rope(b, t, il, scaled=True) for t in (q, k))
    cur = attention.cached(b, q, k, v, il)
    x = ops.add(cur, normed if model.norm_before_residual else features)
    x = ops.add(ffn(b, norm.layer(b, x, il, "ffn_norm"), il, bias=False), x)
    b.outputs.append(x)
    cur = norm.norm(b, x, b.top("output_norm.weight"))
    output.hand_out(b, head.scores(b, cur, scaled=False))


def _assistant(b: Builder) -> None:
    """Gemma 4's: small layers that ask the target's last two caches and write nothing."""
    model, n, width = b.model, b.n_tokens, b.model.n_embd_inp
    words = ops.get_rows(head.found(b.of_target(head.WORDS)), b.input("tokens", I32, n))
    x = ops.concat(ops.scale(words), b.input("hidden", F32, width, n), 0)
    x = ops.mul_mat(b.need_top("nextn.pre_projection.weight"), x)
    last = model.n_layer_nextn - 1
    for il in range(model.n_layer_nextn):
        factors = None if model.is_swa(il) else b.top("rope_freqs.weight", il)
        cur = _asked(b, norm.layer(b, x, il, "attn_norm"), il, factors)
        if il == last:
            cur, x = last_rows(b, cur, x)
        x = ops.add(norm.layer(b, cur, il, "post_attention_norm"), x)
        cur = ffn(b, norm.layer(b, x, il, "ffn_norm"), il, "gelu", bias=False)
        cur = norm.norm(b, cur, b.w(il, "post_ffw_norm.weight"))
        x = ops.mul(ops.add(cur, x), b.need(il, "layer_output_scale.weight"))
    cur = norm.norm(b, x, b.need_top("output_norm.weight"))
    output.hand_out(b, ops.mul_mat(b.tied_output(), cur))
    b.leave_all("masked_embd_")
    b.outputs.append(ops.mul_mat(b.need_top("nextn.post_projection.weight"), cur))
    b.expand(b.outputs[-1])


def _asked(b: Builder, x: Tensor, il: int, factors: Tensor | None) -> Tensor:
    """Attention over the target's cache."""
    size, heads = b.model.n_embd_head_k(il), b.model.n_head[il]
    q = ops.reshape(linear(b, x, il, "attn_q", bias=False), size, heads, b.n_tokens)
    q = ops.rope(norm.layer(b, q, il, "attn_q_norm"), b.positions(), factors)
    return attention.cached(b, q, None, None, il, owner=b.cache_of(il).layers[0])


ROWS: dict[str, Build] = {"eagle3": _eagle3, "gemma4-assistant": _assistant}
