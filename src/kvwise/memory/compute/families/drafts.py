"""Draft heads that guess for a larger model: EAGLE-3 and DFlash, with embeddings of their own.

Source: src/models/eagle3.cpp and dflash.cpp, b10605. What is reserved is the decoder's graph.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, norm, output
from kvwise.memory.compute.pieces.decoder import Attention, self_attention
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.rope import rope


def _token_rows(b: Builder) -> Tensor:
    """Embeddings of the drafted tokens, without the twin that other models have."""
    return ops.get_rows(b.need_top("token_embd.weight"), b.input("tokens", I32, b.n_tokens))


def _leave_encoder(b: Builder) -> None:
    for prefix in ("fc.", "enc."):
        b.leave_all(prefix)


def _scattered(b: Builder, x: Tensor, table: Tensor) -> Tensor:
    """Scores of the draft's vocabulary in the rows of the target's."""
    few, rows, many = x.ne[0], x.ne[1], b.model.n_vocab
    empty = ops.fill(ops.new("NONE", F32, (1, many, rows, 1)))
    cur = ops.set_rows(empty, ops.reshape(x, 1, few, rows), ops.reshape(table, few, 1, 1))
    return ops.reshape(cur, many, rows)


def _scores(b: Builder, x: Tensor, *, scaled: bool) -> Tensor:
    cur = output.logits(b, x, bias=False) if scaled else ops.mul_mat(output.output_matrix(b), x)
    table = b.top("d2t")
    return cur if table is None else _scattered(b, cur, table)


def _eagle3(b: Builder) -> None:
    """One layer that reads the token's embedding beside the target's features."""
    if b.n_layer != 1:
        raise Unbuildable(f"{b.n_layer} layers, llama.cpp allows one")
    _leave_encoder(b)
    model, n, il = b.model, b.n_tokens, 0
    words = _token_rows(b)
    features = b.input("embd", F32, b.n_embd, n)
    words = norm.layer(b, words, il, "attn_norm")
    normed = norm.norm(b, features, b.w(il, "attn_norm_2.weight"))
    cur = ops.concat(words, normed, 0)
    head, heads_kv = model.n_embd_head_k(il), model.n_head_kv[il]
    q = ops.reshape(linear(b, cur, il, "attn_q", bias=False), head, model.n_head[il], n)
    k = ops.reshape(linear(b, cur, il, "attn_k", bias=False), head, heads_kv, n)
    v = ops.reshape(linear(b, cur, il, "attn_v", bias=False), head, heads_kv, n)
    q, k = (rope(b, t, il, scaled=True) for t in (q, k))
    cur = attention.cached(b, q, k, v, il)
    x = ops.add(cur, normed if model.norm_before_residual else features)
    x = ops.add(ffn(b, norm.layer(b, x, il, "ffn_norm"), il, bias=False), x)
    b.outputs.append(x)
    cur = norm.norm(b, x, b.top("output_norm.weight"))
    output.hand_out(b, _scores(b, cur, scaled=False))


def _dflash(b: Builder) -> None:
    """A block of masked tokens against the target's features in the cache."""
    if b.model.dsv4_hc_mult:
        raise Unbuildable("DFlash on DeepSeek-V4 blocks")
    _leave_encoder(b)
    x = _token_rows(b)
    for il in range(b.n_layer):
        cur = norm.layer(b, x, il, "attn_norm")
        x = ops.add(self_attention(b, cur, il, Attention(qk_norm="before")), x)
        x = ops.add(ffn(b, norm.layer(b, x, il, "ffn_norm"), il, bias=False), x)
    cur = output.final_norm(b, x)
    scores = _scores(b, cur, scaled=True)
    b.expand(scores)
    if b.top("markov_w1.weight") is not None:
        scores = _markov(b, scores, cur)
    output.hand_out(b, scores)


def _markov(b: Builder, base: Tensor, hidden: Tensor) -> Tensor:
    """DSpark: each position's scores depend on the token guessed before it.

    Batches longer than the blocks it was trained on pass it by.
    """
    size = b.model.header.get("dflash.block_size")
    if not isinstance(size, int) or size <= 0 or base.ne[1] % b.n_seqs:
        raise Unbuildable("dflash.block_size")
    blocks, length = b.n_seqs, base.ne[1] // b.n_seqs
    if length > size:
        b.leave_all("markov_")
        b.leave_all("conf_proj")
        return base
    tokens = b.input("tokens", I32, b.n_tokens)
    before = ops.cont(ops.view_2d(tokens, 1, blocks, length * tokens.nb[0]), blocks)
    many, stride = base.ne[0], length * base.nb[1]
    scores: list[Tensor] = []
    trust: list[Tensor] = []
    if b.model.header.get("dflash.sample_from_anchor") is False:
        scores.append(ops.cont(ops.view_2d(base, many, blocks, stride)))
        trust.append(ops.unary("SIGMOID", ops.cont(ops.view_2d(base, 1, blocks, stride))))
    for place in range(len(scores), length):
        known = ops.get_rows(b.need_top("markov_w1.weight"), before)
        bias = ops.mul_mat(b.need_top("markov_w2.weight"), known)
        table = b.top("d2t")
        bias = bias if table is None else _scattered(b, bias, table)
        here = ops.view_2d(base, many, blocks, stride, place * base.nb[1])
        here = ops.add(here, bias)
        scores.append(here)
        trust.append(_trust(b, hidden, known, place))
        before = ops.new("ARGMAX", I32, (blocks, 1, 1, 1), (here,))
    b.outputs.append(ops.repeat(_block_major(trust, blocks), *hidden.ne))
    b.expand(b.outputs[-1])
    return _block_major(scores, blocks)


def _trust(b: Builder, hidden: Tensor, known: Tensor, place: int) -> Tensor:
    """How likely a position's token is accepted."""
    length, blocks = hidden.ne[1] // b.n_seqs, b.n_seqs
    x = ops.view_2d(hidden, hidden.ne[0], blocks, length * hidden.nb[1], place * hidden.nb[1])
    cur = ops.mul_mat(b.need_top("conf_proj.weight"), ops.concat(ops.cont(x), known, 0))
    bias = b.top("conf_proj.bias")
    return ops.unary("SIGMOID", cur if bias is None else ops.add(cur, bias))


def _block_major(parts: list[Tensor], blocks: int) -> Tensor:
    """Positions of all blocks, put back in the order of the batch."""
    cur, width = parts[0], parts[0].ne[0]
    for part in parts[1:]:
        cur = ops.concat(cur, part, 1)
    cur = ops.cont(ops.permute(ops.reshape(cur, width, blocks, len(parts)), 0, 2, 1, 3))
    return ops.reshape(cur, width, blocks * len(parts))


ROWS: dict[str, Build] = {"dflash": _dflash, "eagle3": _eagle3}
