"""WavTokenizer's decoder: convolutions over time instead of layers with a cache.

Source: src/models/wavtokenizer-dec.cpp; ggml.c ggml_conv_1d, ggml_conv_1d_dw, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import BY_NAME, F16, F32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import embed, norm, output
from kvwise.memory.compute.pieces.norm import Norm

BF16 = BY_NAME["bf16"]

POSNET = 6
"""Blocks of the position network: residual ones, attention in the middle, a norm at the end."""


def _columns(kernel: Tensor, x: Tensor) -> Tensor:
    """Windows of `x` as rows; half a kernel is padded, so the length stays for odd kernels."""
    length = x.ne[0] + 2 * (kernel.ne[0] // 2) - kernel.ne[0] + 1
    kind = F32 if kernel.type is BF16 else F16
    return ops.new("IM2COL", kind, (kernel.ne[0] * kernel.ne[1], length, x.ne[2], 1), (kernel, x))


def _conv(b: Builder, x: Tensor, name: str) -> Tensor:
    """A convolution over time, with its bias."""
    kernel = b.need_top(name + ".weight")
    rows = _columns(kernel, x)
    flat = ops.reshape(kernel, kernel.ne[0] * kernel.ne[1], kernel.ne[2])
    cur = ops.mul_mat(ops.reshape(rows, rows.ne[0], rows.ne[1] * rows.ne[2]), flat)
    cur = ops.reshape(cur, rows.ne[1], kernel.ne[2], rows.ne[2])
    return ops.add(cur, b.need_top(name + ".bias"))


def _conv_each(b: Builder, x: Tensor, name: str) -> Tensor:
    """One kernel per channel."""
    kernel = b.need_top(name + ".weight")
    cur = ops.mul_mat(_columns(kernel, ops.reshape(x, x.ne[0], 1, x.ne[1], x.ne[2])), kernel)
    cur = ops.reshape(cur, cur.ne[0], cur.ne[2], 1)
    return ops.add(cur, b.need_top(name + ".bias"))


def _norm(b: Builder, x: Tensor, name: str, *, kind: Norm, il: int) -> Tensor:
    weight, bias = b.need_top(name + ".weight"), b.need_top(name + ".bias")
    return norm.norm(b, x, weight, bias, kind=kind, il=il)


def _turned(x: Tensor) -> Tensor:
    return ops.cont(ops.transpose(x))


def _residual(b: Builder, x: Tensor, name: str) -> Tensor:
    cur = x
    for number in (1, 2):
        cur = _norm(b, cur, f"{name}.norm{number}", kind="group", il=0)
        cur = ops.mul(ops.unary("SIGMOID", cur), cur)
        cur = _conv(b, cur, f"{name}.conv{number}")
    return ops.add(cur, x)


def _attention(b: Builder, x: Tensor, name: str) -> Tensor:
    cur = _norm(b, x, f"{name}.attn_norm", kind="group", il=0)
    q, k, v = (_conv(b, cur, f"{name}.attn_{letter}") for letter in "qkv")
    scores = ops.soft_max(ops.mul_mat(_turned(k), _turned(q)))
    cur = ops.mul_mat(scores, v)
    return ops.add(_conv(b, cur, f"{name}.attn_output"), x)


def _next_block(b: Builder, x: Tensor, name: str) -> Tensor:
    """ConvNeXt: each channel over time, then a network over the channels."""
    cur = _turned(_conv_each(b, x, f"{name}.dw"))
    cur = _norm(b, cur, f"{name}.norm", kind="layer", il=-1)
    for matrix in ("pw1", "pw2"):
        cur = ops.mul_mat(b.need_top(f"{name}.{matrix}.weight"), cur)
        cur = ops.add(cur, b.need_top(f"{name}.{matrix}.bias"))
        cur = ops.unary("GELU", cur) if matrix == "pw1" else cur
    cur = _turned(ops.mul(cur, b.need_top(f"{name}.gamma.weight")))
    return ops.add(cur, x)


def _wavtokenizer(b: Builder) -> None:
    if b.model.posnet_n_layer > POSNET:
        raise Unbuildable(f"{b.model.posnet_n_layer} posnet blocks")
    x = _conv(b, _turned(embed.tokens(b)), "conv1d")
    for il in range(b.model.posnet_n_layer):
        name = f"posnet.{il}"
        if il == 2:
            x = _attention(b, x, name)
        elif il == POSNET - 1:
            x = _norm(b, x, f"{name}.attn_norm", kind="group", il=0)
        else:
            x = _residual(b, x, name)
    x = _turned(_norm(b, _turned(x), "token_embd_norm", kind="layer", il=0))
    for il in range(b.model.convnext_n_layer):
        x = _next_block(b, x, f"convnext.{il}")
    cur = _norm(b, _turned(x), "output_norm", kind="layer", il=-1)
    b.embd = output.logits(b, cur)
    b.expand(b.embd)


ROWS: dict[str, Build] = {"wavtokenizer-dec": _wavtokenizer}
