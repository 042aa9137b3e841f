"""RWKV: time mixing of versions 6 and 7, channel mixing, and the token shift between them.

Source: src/models/rwkv6-base.cpp, rwkv7-base.cpp; src/llama-graph.cpp
build_rwkv_token_shift_load and _store, b10605.
"""

from __future__ import annotations

from kvwise.memory.compute import ops
from kvwise.memory.compute import state_ops as st
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import recurrent


def load_shift(b: Builder, il: int) -> Tensor:
    """The last token of each sequence as the layer's parts saw it."""
    count = b.model.token_shift_count
    return ops.reshape(recurrent.read(b, "r", il), b.n_embd, count, b.n_seqs)


def store_shift(b: Builder, il: int, shift: Tensor) -> None:
    whole = b.n_embd * b.n_seqs * b.model.token_shift_count
    recurrent.write(b, "r", il, ops.view_1d(shift, whole))


def before(x: Tensor, shift: Tensor) -> Tensor:
    """Each token's predecessor: `shift` first, then all of `x` but the last."""
    width, steps, n_seqs, _ = x.ne
    return ops.concat(shift, ops.view(x, (width, steps - 1, n_seqs), x.nb[1:3]), 1)


def last(x: Tensor) -> Tensor:
    """The last token of each sequence."""
    width, steps, n_seqs, _ = x.ne
    return ops.view(x, (width, 1, n_seqs), x.nb[1:3], (steps - 1) * width * x.type.size)


def _weight(b: Builder, il: int, name: str) -> Tensor:
    return b.need(il, f"time_mix_{name}.weight")


def _times(b: Builder, x: Tensor, il: int, name: str) -> Tensor:
    """A product; RWKV on Qwen2 has biases for some."""
    cur = ops.mul_mat(_weight(b, il, name), x)
    extra = b.w(il, f"time_mix_{name}.bias")
    return cur if extra is None else ops.add(cur, extra)


def time_mix_6(b: Builder, x: Tensor, previous: Tensor, il: int) -> Tensor:
    """Version 6; without `time_mix_first` it is gated linear attention (on Qwen2)."""
    n, n_embd, head = b.n_tokens, b.n_embd, b.model.wkv_head_size
    steps = recurrent.sequence_tokens(b)
    first = b.w(il, "time_mix_first.weight")
    step = ops.reshape(ops.sub(previous, x), n_embd, n)
    x = ops.reshape(x, n_embd, n)
    xw, xk, xv, xr, xg = _mixed_6(b, x, step, il)
    r = _times(b, xr, il, "receptance")
    k = _times(b, xk, il, "key")
    v = _times(b, xv, il, "value")
    gate = ops.unary("SIGMOID" if first is None else "SILU", _times(b, xg, il, "gate"))
    heads, heads_kv = n_embd // head, b.model.n_head_kv[il]
    if heads_kv not in (0, heads):
        k, v = (
            ops.repeat(ops.reshape(t, head, 1, heads_kv, n), head, heads // heads_kv, heads_kv, n)
            for t in (k, v)
        )
    k, v, r = (ops.reshape(t, head, heads, n) for t in (k, v, r))
    w = _times(b, ops.unary("TANH", _times(b, xw, il, "decay_w1")), il, "decay_w2")
    w = ops.unary("EXP", ops.add(w, _weight(b, il, "decay")))
    w = ops.reshape(ops.unary("EXP", ops.unary("NEG", w)), head, heads, n)
    if first is None:
        k = ops.sub(k, ops.mul(k, w))
    state = recurrent.read(b, "s", il)
    if first is None:
        made = st.attention_state("GATED_LINEAR_ATTN", k, k, v, r, w, state)
    else:
        made = st.attention_state("RWKV_WKV6", k, k, v, r, first, w, state)
    cur = _kept(b, made, il)
    cur = ops.reshape(cur, n_embd, n) if first is None else _normed(b, cur, il, heads)
    cur = _times(b, ops.mul(cur, gate), il, "output")
    return ops.reshape(cur, n_embd, steps, b.n_seqs)


def _mixed_6(b: Builder, x: Tensor, step: Tensor, il: int) -> list[Tensor]:
    """Five mixtures of each token with its predecessor."""
    n, n_embd = b.n_tokens, b.n_embd
    w1, w2 = _weight(b, il, "w1"), _weight(b, il, "w2")
    cur = ops.add(ops.mul(step, _weight(b, il, "lerp_x")), x)
    cur = ops.reshape(ops.unary("TANH", ops.mul_mat(w1, cur)), w1.ne[1] // 5, 1, 5, n)
    cur = ops.cont(ops.permute(cur, 0, 1, 3, 2))
    cur = ops.mul_mat(ops.reshape(w2, w2.ne[0], w2.ne[1], 1, 5), cur)
    fused = b.w(il, "time_mix_lerp_fused.weight")
    if fused is not None:
        for name in "wkvrg":
            b.leave(il, f"time_mix_lerp_{name}.")
        step, x = ops.reshape(step, n_embd, 1, n), ops.reshape(x, n_embd, 1, n)
        cur = ops.add(ops.mul(ops.add(cur, fused), step), x)
    parts = _parts(cur, n_embd, n, 5)
    if fused is not None:
        return parts
    return [
        ops.add(ops.mul(ops.add(part, _weight(b, il, "lerp_" + name)), step), x)
        for part, name in zip(parts, "wkvrg", strict=True)
    ]


def _parts(x: Tensor, width: int, n: int, count: int) -> list[Tensor]:
    plane = width * n * x.type.size
    return [ops.view_2d(x, width, n, x.nb[1], plane * part) for part in range(count)]


def _kept(b: Builder, made: Tensor, il: int) -> Tensor:
    """The results; the new states go into the cache."""
    width, n = b.n_embd, b.n_tokens
    cur = ops.view_1d(made, width * n)
    size = width * b.model.wkv_head_size * b.n_seqs
    recurrent.write(b, "s", il, ops.view_1d(made, size, width * n * made.type.size))
    return cur


def _normed(b: Builder, x: Tensor, il: int, heads: int) -> Tensor:
    """Each head normed by itself."""
    n, width = b.n_tokens, b.n_embd
    cur = ops.layer_norm(ops.reshape(x, width // heads, heads, n))
    cur = ops.mul(ops.reshape(cur, width, n), _weight(b, il, "ln"))
    return ops.add(cur, b.need(il, "time_mix_ln.bias"))


def time_mix_7(
    b: Builder, x: Tensor, previous: Tensor, il: int, first_value: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Version 7, and the values of the first layer, which all later layers look at."""
    n, n_embd, head = b.n_tokens, b.n_embd, b.model.wkv_head_size
    steps, n_seqs, heads = recurrent.sequence_tokens(b), b.n_seqs, b.n_embd // head
    gated = b.has(il, "time_mix_g1.weight") and b.has(il, "time_mix_g2.weight")
    if not gated:
        b.leave(il, "time_mix_g")
    count = 6 if gated else 5
    step = ops.repeat(ops.sub(previous, x), n_embd, steps, n_seqs, count)
    mixed = ops.add(ops.mul(step, _weight(b, il, "lerp_fused")), x)
    parts = _parts(mixed, n_embd, n, count)
    xr, xw, xk, xv, xa = parts[:5]
    r = _times(b, xr, il, "receptance")
    w = _times(b, ops.unary("TANH", _times(b, xw, il, "w1")), il, "w2")
    w = ops.scale(ops.unary("SIGMOID", ops.add(w, _weight(b, il, "w0"))))
    w = ops.unary("EXP", w)
    k = _times(b, xk, il, "key")
    v, first_value = _values_7(b, xv, il, first_value)
    gate = None
    if gated:
        gate = _times(b, ops.unary("SIGMOID", _times(b, parts[5], il, "g1")), il, "g2")
    a = ops.unary("SIGMOID", _low_rank(b, xa, il, "a"))
    kk = ops.l2_norm(ops.reshape(ops.mul(k, _weight(b, il, "k_k")), head, heads, n))
    ka = ops.mul(k, _weight(b, il, "k_a"))
    k = ops.add(k, ops.sub(ops.mul(a, ka), ka))
    r, w, k, v, a = (ops.reshape(t, head, heads, n) for t in (r, w, k, v, a))
    state = recurrent.read(b, "s", il)
    made = st.attention_state(
        "RWKV_WKV7", r, r, w, k, v, ops.unary("NEG", kk), ops.mul(kk, a), state
    )
    cur = _kept(b, made, il)
    if b.has(il, "time_mix_ln.weight") and b.has(il, "time_mix_ln.bias"):
        cur = _normed(b, cur, il, heads)
    else:  # one without the other stays unused, as with the gate's two
        b.leave(il, "time_mix_ln.")
        cur = ops.reshape(cur, n_embd, n)
    rk = ops.mul(ops.mul(k, r), ops.reshape(_weight(b, il, "r_k"), head, heads))
    cur = ops.add(cur, ops.reshape(ops.mul(v, ops.sum_rows(rk)), n_embd, n))
    if gate is not None:
        cur = ops.mul(cur, gate)
    cur = ops.reshape(_times(b, cur, il, "output"), n_embd, steps, n_seqs)
    return cur, first_value


def _values_7(b: Builder, x: Tensor, il: int, first: Tensor | None) -> tuple[Tensor, Tensor]:
    """Values, mixed with those of the first layer."""
    v = _times(b, x, il, "value")
    if first is None:
        for name in ("v0", "v1", "v2"):
            b.leave(il, f"time_mix_{name}.")
        return v, v
    share = ops.unary("SIGMOID", _low_rank(b, x, il, "v"))
    return ops.add(v, ops.mul(ops.sub(first, v), share)), first


def _low_rank(b: Builder, x: Tensor, il: int, name: str) -> Tensor:
    cur = _times(b, _times(b, x, il, name + "1"), il, name + "2")
    return ops.add(cur, _weight(b, il, name + "0"))


def channel_mix(b: Builder, x: Tensor, previous: Tensor, il: int, *, gated: bool) -> Tensor:
    """RWKV's feed-forward part; version 6 has a gate."""
    step = ops.sub(previous, x)

    def mixed(name: str) -> Tensor:
        return ops.add(ops.mul(step, b.need(il, f"channel_mix_lerp_{name}.weight")), x)

    key = ops.mul_mat(b.need(il, "channel_mix_key.weight"), mixed("k"))
    value_of = b.need(il, "channel_mix_value.weight")
    key = ops.sqr(ops.unary("RELU", key))
    if not gated:
        return ops.mul_mat(value_of, key)
    gate = ops.mul_mat(b.need(il, "channel_mix_receptance.weight"), mixed("r"))
    return ops.mul(ops.unary("SIGMOID", gate), ops.mul_mat(value_of, key))
