"""Operations of recurrent layers: convolutions, scans, delta nets, and what they are made of.

Kept apart from `ops` only by subject. Source: ggml/src/ggml.c, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F32
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.ops import Unbuildable, like, new, onto


def cumsum(x: Tensor) -> Tensor:
    return like("CUMSUM", x)


def tri(x: Tensor) -> Tensor:
    """A triangle of `x`, the rest zero."""
    return like("TRI", x)


def diag(x: Tensor) -> Tensor:
    """A square matrix with `x` on its diagonal."""
    return new("DIAG", x.type, (x.ne[0], x.ne[0], x.ne[2], x.ne[3]), (x,))


def solve_tri(a: Tensor, x: Tensor) -> Tensor:
    return new("SOLVE_TRI", F32, x.ne, (a, x))


def set_inplace(x: Tensor, part: Tensor) -> Tensor:
    """`x` with `part` written into it."""
    return onto("SET", x, x, part)


def ssm_conv(x: Tensor, kernel: Tensor) -> Tensor:
    """A causal convolution per channel: [channels, tokens per sequence, sequences]."""
    steps, channels = x.ne[0] - kernel.ne[0] + 1, kernel.ne[1]
    if x.ne[1] != channels:
        raise Unbuildable(f"cannot convolve {x} with {kernel}")
    return new("SSM_CONV", F32, (channels, steps, x.ne[2], 1), (x, kernel))


def ssm_scan(  # noqa: PLR0917  (ggml's sources, in its order)
    s: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, ids: Tensor, kept: int = 1
) -> Tensor:
    """Mamba's scan: results and `kept` new states of each sequence, in one row."""
    states = kept * s.ne[0] * s.ne[1] * s.ne[2] * ids.ne[0]
    return new("SSM_SCAN", F32, (x.elements + states, 1, 1, 1), (s, x, dt, a, b, c, ids), kept)


def attention_state(op: str, x: Tensor, *src: Tensor) -> Tensor:
    """RWKV_WKV6, RWKV_WKV7, GATED_LINEAR_ATTN: results, and below them the new states.

    `x` is a source with [head, heads, tokens]; the last source is the state, one row a sequence.
    """
    head, heads, n, _ = x.ne
    return new(op, F32, (head * heads, n + head * src[-1].ne[1], 1, 1), src)


def gated_delta_net(  # noqa: PLR0917  (ggml's sources, in its order)
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, kept: int = 1
) -> Tensor:
    """The fused delta net: results, and below them `kept` new states of each sequence."""
    head, heads, n, n_seqs = v.ne
    ne = (head * heads, n * n_seqs + kept * head * n_seqs, 1, 1)
    return new("GATED_DELTA_NET", F32, ne, (q, k, v, g, beta, state))


def hc_pre(x: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum over the second dimension of `x`: [n_embd, tokens]."""
    return new("DSV4_HC_PRE", F32, (x.ne[0], x.ne[2], 1, 1), (x, weights))
