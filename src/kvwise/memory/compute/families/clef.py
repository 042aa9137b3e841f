"""Clef: the layers of Qwen 3.5 without memory, and a head that scores options.

A batch that is reserved has no questions: the head is built for one with one option.
Source: src/models/clef.cpp, b11549.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute import state_ops as st
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor, contiguous_strides
from kvwise.memory.compute.pieces import attention, delta, embed, norm, output
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.rope import rope


def _clef(b: Builder) -> None:
    x = embed.tokens(b)
    for il in range(b.n_layer):
        cur = norm.layer(b, x, il, "attn_norm")
        cur = _linear(b, cur, il) if b.model.is_recr(il) else _attend(b, cur, il)
        x = ops.add(cur, x)
        cur = ffn(b, norm.layer(b, x, il, "post_attention_norm"), il, bias=False)
        x = ops.add(cur, x)
    x = norm.norm(b, x, b.top("output_norm.weight"))
    cur = ops.pad(_scores(b, x), 0, b.n_tokens - 1)
    b.embd = cur = ops.add(cur, b.input("status", F32, 1))
    b.expand(cur)


# --- layers: whole batches are one sequence, states begin empty and are not kept ---


def _attend(b: Builder, x: Tensor, il: int) -> Tensor:
    """Each head of Q stands beside its gate in one product."""
    model, n = b.model, b.n_tokens
    head, heads, heads_kv = model.n_embd_head_v(il), model.n_head[il], model.n_head_kv[il]
    both, k, v = (linear(b, x, il, f"attn_{side}", bias=False) for side in "qkv")
    size = both.type.size
    steps = (head * 2 * size, head * 2 * heads * size)
    q = norm.layer(b, ops.view(both, (head, heads, n), steps), il, "attn_q_norm")
    k = norm.layer(b, ops.reshape(k, head, heads_kv, n), il, "attn_k_norm")
    gate = ops.cont(ops.view(both, (head, heads, n), steps, head * size), head * heads, n)
    v = ops.reshape(v, head, heads_kv, n)
    cur = attention.uncached(b, rope(b, q, il), rope(b, k, il), v, il, out=None)
    return linear(b, ops.mul(cur, ops.unary("SIGMOID", gate)), il, "attn_output", bias=False)


def _linear(b: Builder, x: Tensor, il: int) -> Tensor:
    model, n = b.model, b.n_tokens
    head_k, heads_k, heads = model.ssm_d_state, model.ssm_n_group, model.ssm_dt_rank
    head = model.ssm_d_inner // heads
    mixed = linear(b, x, il, "attn_qkv", bias=False)
    mixed = ops.reshape(mixed, mixed.ne[0], n, 1)
    z = linear(b, x, il, "attn_gate", bias=False)
    beta = ops.reshape(linear(b, x, il, "ssm_beta", bias=False), 1, heads, n, 1)
    beta = ops.unary("SIGMOID", beta)
    alpha = ops.reshape(linear(b, x, il, "ssm_alpha", bias=False), heads, n, 1)
    stays = ops.unary("SOFTPLUS", ops.add(alpha, b.need(il, "ssm_dt.bias")))
    stays = ops.reshape(ops.mul(stays, b.need(il, "ssm_a")), 1, heads, n, 1)
    kernel = b.need(il, "ssm_conv1d.weight")
    start = _zeros(kernel.ne[0] - 1, model.ssm_d_inner + 2 * heads_k * head_k, 1, 1)
    rolled = ops.concat(start, ops.transpose(mixed), 0)
    mixed = ops.unary("SILU", st.ssm_conv(rolled, kernel))
    size, width = mixed.type.size, head_k * heads_k
    row = (2 * width + head * heads) * size
    keys = (head_k, heads_k, n, 1)
    nb_k, nb_v = (head_k * size, row, row * n), (head * size, row, row * n)
    q = delta.normed(b, ops.view(mixed, keys, nb_k))
    k = delta.normed(b, ops.view(mixed, keys, nb_k, width * size))
    v = ops.view(mixed, (head, heads, n, 1), nb_v, 2 * width * size)
    if heads_k != heads and not (delta.fused_steps(b) and delta.fused_chunks(b)):
        q, k = (ops.repeat(each, head_k, heads, n, 1) for each in (q, k))
    state = _zeros(head, head, heads, 1)
    out, _ = delta.once(b, delta.Net(q, k, v, stays, beta, state))
    out = norm.layer(b, out, il, "ssm_norm")
    out = ops.mul(out, ops.unary("SILU", ops.reshape(z, head, heads, n, 1)))
    cur = linear(b, ops.reshape(out, head * heads, n, 1), il, "ssm_out", bias=False)
    return ops.reshape(cur, b.n_embd, n)


def _zeros(*ne: int) -> Tensor:
    shape = (ne[0], ne[1], ne[2], ne[3])
    return ops.fill(Tensor("NONE", F32, shape, contiguous_strides(F32, shape)))


# --- the head ---


def _normed(b: Builder, x: Tensor, name: str) -> Tensor:
    return norm.norm(b, x, b.need_top(name + ".weight"), b.need_top(name + ".bias"), kind="layer")


def _times(b: Builder, name: str, x: Tensor) -> Tensor:
    return ops.mul_mat(b.need_top(f"decision.{name}.weight"), x)


def _biased(b: Builder, name: str, x: Tensor) -> Tensor:
    cur = ops.mul_mat(b.need_top(name + ".weight"), x)
    return ops.add(cur, b.need_top(name + ".bias"))


def _read(b: Builder, q: Tensor, kv: Tensor, name: str) -> Tensor:
    """Attention of the head, always spelled out: [width, queries]."""
    heads = _count(b, "head_count")
    width, n_q, n_kv = q.ne[0], q.ne[1], kv.ne[1]
    each = width // heads
    asked = ops.reshape(_biased(b, name + "_q", q), each, heads, n_q)
    k = ops.reshape(_biased(b, name + "_k", kv), each, heads, n_kv)
    v = ops.reshape(_biased(b, name + "_v", kv), each, heads, n_kv)
    asked, k = ops.permute(asked, 0, 2, 1, 3), ops.permute(k, 0, 2, 1, 3)
    v = ops.cont(ops.permute(v, 1, 2, 0, 3))
    cur = ops.mul_mat(v, ops.soft_max(ops.mul_mat(k, asked)))
    return _biased(b, name + "_o", ops.cont(ops.permute(cur, 0, 2, 1, 3), width, n_q))


def _network(b: Builder, x: Tensor, block: str) -> Tensor:
    cur = _biased(b, block + "ffn_up", _normed(b, x, block + "ffn_norm"))
    return _biased(b, block + "ffn_down", ops.unary("GELU_ERF", cur))


def _count(b: Builder, name: str) -> int:
    value = b.model.header.get(f".decision.{name}")
    return value if isinstance(value, int) else 0


def _scores(b: Builder, hidden: Tensor) -> Tensor:
    """One number per option."""
    n = b.n_tokens
    tokens = b.input("option tokens", I32, n)
    of_question, of_option = b.input("questions", F32, n, 1), b.input("options", F32, n, 1)
    owner = b.input("owner", I32, 1)
    hidden = _normed(b, hidden, "decision.hidden_norm")
    memory = _times(b, "proj_memory", hidden)
    last = ops.view_2d(hidden, b.n_embd, 1, hidden.nb[1], (n - 1) * hidden.nb[1])
    turned = ops.cont(ops.transpose(hidden))
    question, option = ops.mul_mat(turned, of_question), ops.mul_mat(turned, of_option)
    words = ops.get_rows(output.output_matrix(b), tokens)
    words = ops.mul_mat(ops.cont(ops.transpose(words)), of_option)
    options = _times(b, "proj_option_context", option)
    options = ops.add(options, _times(b, "proj_option_lexical", words))
    asked = ops.get_rows(_times(b, "proj_option_question", question), owner)
    options = _routed(b, ops.add(options, asked), memory)
    fields = _joined(b, _fields(b, question, options, last), memory)
    anchor = ops.get_rows(ops.l2_norm(ops.add(question, last)), owner)
    prior = ops.sum_rows(ops.mul(ops.l2_norm(words), anchor))
    return _joint(b, _normed(b, options, "decision.option_norm"), fields, owner, prior)


def _routed(b: Builder, options: Tensor, memory: Tensor) -> Tensor:
    """The options read the prompt."""
    for il in range(_count(b, "routing_block_count")):
        block = f"dec.blk.{il}."
        cur = _read(
            b,
            _normed(b, options, block + "cross_attn_norm"),
            _normed(b, memory, block + "cross_attn_norm_kv"),
            block + "cross_attn",
        )
        options = ops.add(options, cur)
        options = ops.add(options, _network(b, options, block))
    return options


def _fields(b: Builder, question: Tensor, options: Tensor, last: Tensor) -> Tensor:
    """One vector per question: its text, its options, the end of the prompt, its type."""
    fields = _times(b, "proj_question", question)
    weights = ops.scale(ops.mul_mat(options, fields))
    weights = ops.soft_max(ops.add(weights, b.input("option mask", F32, 1, 1)))
    summary = ops.mul_mat(ops.cont(ops.transpose(options)), weights)
    fields = ops.add(fields, _normed(b, summary, "decision.option_summary_norm"))
    fields = ops.add(fields, _times(b, "proj_global", last))
    kinds = b.need_top("token_types.weight")
    return ops.add(fields, ops.get_rows(kinds, b.input("question types", I32, 1)))


def _joined(b: Builder, fields: Tensor, memory: Tensor) -> Tensor:
    """The questions read each other and the prompt."""
    first = _count(b, "routing_block_count")
    for il in range(first, first + _count(b, "block_count")):
        block = f"dec.blk.{il}."
        cur = _normed(b, fields, block + "attn_norm")
        fields = ops.add(fields, _read(b, cur, cur, block + "attn"))
        cur = _normed(b, fields, block + "cross_attn_norm")
        fields = ops.add(fields, _read(b, cur, memory, block + "cross_attn"))
        fields = ops.add(fields, _network(b, fields, block))
    return _normed(b, fields, "decision.field_norm")


def _joint(b: Builder, options: Tensor, fields: Tensor, owner: Tensor, prior: Tensor) -> Tensor:
    """Each option against the vector of its question."""
    field = ops.get_rows(fields, owner)
    cosine = ops.sum_rows(ops.mul(ops.l2_norm(field), ops.l2_norm(options)))
    features = ops.concat(field, options, 0)
    features = ops.concat(features, ops.mul(field, options), 0)
    features = ops.concat(features, ops.unary("ABS", ops.sub(field, options)), 0)
    rest = ops.unary("GELU_ERF", _biased(b, "decision.scorer", features))
    rest = _biased(b, "decision.scorer_out", rest)
    scales = b.need_top("decision.scales")
    one, two, three = (ops.view_1d(scales, 1, i * scales.type.size) for i in (0, 1, 2))
    joint = ops.add(ops.mul(cosine, two), rest)
    return ops.add(ops.mul(prior, one), ops.mul(joint, three))


ROWS: dict[str, Build] = {"clef": _clef}
