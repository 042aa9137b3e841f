"""The graph of an image encoder under construction, and the pieces that encoders share.

Source: tools/mtmd/clip.cpp (clip_graph), ggml/src/ggml.c, b10605.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvwise.gguf.types import F16, F32, I32, GGMLType
from kvwise.memory.compute import ops
from kvwise.memory.compute.graph import FLAG_INPUT, Graph, Shape, Tensor, contiguous_strides
from kvwise.memory.compute.ops import Unbuildable
from kvwise.memory.parts.vision.eye import Eye

Rotate = Callable[[Tensor], Tensor]
SWAPPED = frozenset(
    {
        "mlp", "ldp", "ldpv2", "qwen2vl_merger", "qwen2.5vl_merger", "qwen2.5o", "exaone4_5",
        "adapter", "gemma3", "idefics3", "resampler", "minicpmv4_6",
    }
)  # fmt: skip
"""Kinds of which old files name the two feed-forward matrices the wrong way round."""


_GATED = {"SILU": "SWIGLU", "GELU": "GEGLU", "GELU_QUICK": "GEGLU_QUICK"}


@dataclass(frozen=True, slots=True)
class Picture:
    """What is encoded: patches per side, tiles at once, and whether flash attention is on."""

    wide: int
    high: int
    tiles: int = 1
    flash: bool = True

    @property
    def patches(self) -> int:
        return self.wide * self.high


class Sight:
    """What a tower needs to build its graph; one makes one graph."""

    def __init__(self, eye: Eye, picture: Picture) -> None:
        self.eye = eye
        self.picture = picture
        self.graph = Graph()
        self.clamped = False  # products between two clamps
        self._weights: dict[str, Tensor] = {}
        self._table = eye.header.by_name

    # -- order, weights, inputs -------------------------------------------------------------

    def expand(self, *tensors: Tensor) -> None:
        """Add tensors and all that they need, sources first."""
        for tensor in tensors:
            if tensor.index >= 0:
                continue
            tensor.index = 0
            self.expand(*(source for source in tensor.src if source is not None))
            (self.graph.leafs if tensor.op == "NONE" else self.graph.nodes).append(tensor)

    def finish(self, result: Tensor) -> Graph:
        self.expand(result)
        self.graph.number()
        self.graph.weights = set(self._weights)
        return self.graph

    def w(self, name: str) -> Tensor | None:
        """A weight, if the file has it."""
        row = self._table.get(name)
        if row is None:
            return None
        made = self._weights.get(name)
        if made is None:
            ne: Shape = (*row.shape, 1, 1, 1, 1)[:4]  # type: ignore[assignment]
            made = Tensor("NONE", row.type, ne, contiguous_strides(row.type, ne))
            made.buffer, made.weight, made.name = 0, True, name
            self._weights[name] = made
        return made

    def need(self, name: str) -> Tensor:
        """A weight without which there is no graph."""
        made = self.w(name)
        if made is None:
            raise Unbuildable(f"{name} is missing")
        return made

    def input(self, name: str, kind: GGMLType, *ne: int) -> Tensor:
        shape: Shape = (*ne, 1, 1, 1)[:4]  # type: ignore[assignment]
        made = Tensor("NONE", kind, shape, contiguous_strides(kind, shape))
        made.flags, made.name = FLAG_INPUT, name
        return made

    # -- pieces -----------------------------------------------------------------------------

    def raw(self) -> Tensor:
        """The image itself."""
        side, picture = self.eye.patch, self.picture
        ne = (picture.wide * side, picture.high * side, 3, picture.tiles)
        return self.input("inp_raw", F32, *ne)

    def patches(self, image: Tensor, weight: str = "v.patch_embd.weight") -> Tensor:
        """ggml_conv_2d with a stride of one patch: [wide, high, n_embd, tiles]."""
        kernel, side = self.need(weight), self.eye.patch
        if kernel.ne[2] != image.ne[2] or kernel.ne[0] != side:
            raise Unbuildable(f"{weight} is no kernel of {side} pixels")
        return conv_2d(kernel, image, side)

    def embedded(self) -> Tensor:
        """Patches as rows, with their bias: [n_embd, patches, tiles]."""
        x = self.patches(self.raw())
        x = ops.reshape(x, self.picture.patches, self.eye.n_embd, self.picture.tiles)
        x = ops.cont(ops.transpose(x))
        bias = self.w("v.patch_embd.bias")
        return x if bias is None else ops.add(x, bias)

    def mm(self, weight: Tensor, x: Tensor) -> Tensor:
        if not self.clamped:
            return ops.mul_mat(weight, x)
        return ops.clamp(ops.mul_mat(weight, ops.clamp(x)))

    def linear(self, x: Tensor, name: str) -> Tensor:
        """A product with `NAME.weight` and `NAME.bias` added if there is one."""
        x = self.mm(self.need(f"{name}.weight"), x)
        bias = self.w(f"{name}.bias")
        return x if bias is None else ops.add(x, bias)

    def norm(self, x: Tensor, name: str = "", *, rms: bool = False) -> Tensor:
        x = ops.rms_norm(x) if rms else ops.layer_norm(x)
        weight, bias = self.w(f"{name}.weight"), self.w(f"{name}.bias")
        x = x if weight is None else ops.mul(x, weight)
        return x if bias is None else ops.add(x, bias)

    def mlp(self, x: Tensor, first: str, second: str, activation: str) -> Tensor:
        """Two products with an activation between them."""
        return self.linear(activate(self.linear(x, first), activation), second)

    def gated(self, x: Tensor, up: str, gate: str, down: str) -> Tensor:
        """Two products joined by a gated activation, and a third."""
        wide = self.linear(x, up)
        return self.linear(ops.glu(_GATED[self.eye.activation], self.linear(x, gate), wide), down)

    def feed_forward(self, x: Tensor, il: int) -> Tensor:
        up, gate, down = (f"v.blk.{il}.ffn_{part}" for part in ("up", "gate", "down"))
        if self.eye.kind in SWAPPED and self.need(f"{down}.weight").ne[0] == self.eye.n_embd:
            up, down = down, up
        if self.w(f"{gate}.weight") is not None:
            return self.gated(x, up, gate, down)
        return self.mlp(x, up, down, self.eye.activation)

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, il: int, mask: Tensor | None = None
    ) -> Tensor:
        """Q, K and V are [d_head, heads, positions, tiles]."""
        self.expand(q, k, v)
        q, k = ops.permute(q, 0, 2, 1, 3), ops.permute(k, 0, 2, 1, 3)
        if self.picture.flash:
            k = ops.cast(k, F16)
            v = ops.cast(ops.permute(v, 0, 2, 1, 3), F16)
            mask = None if mask is None else ops.cast(mask, F16)
            x = ops.flash_attn(q, k, v, mask)
            x = ops.reshape(x, x.ne[0] * x.ne[1], x.ne[2] * x.ne[3])
        else:
            v = ops.cont(ops.permute(v, 1, 2, 0, 3))
            scores = ops.soft_max(ops.mul_mat(k, q), mask)
            x = ops.permute(ops.mul_mat(v, scores), 0, 2, 1, 3)
            x = ops.cont(x, x.ne[0] * x.ne[1], x.ne[2] * x.ne[3])
        return self.linear(x, f"v.blk.{il}.attn_out")

    def qkv(self, x: Tensor, il: int, n_pos: int, *, rms: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Fused or apart, with norms per head or over all heads."""
        eye, block = self.eye, f"v.blk.{il}."
        head, tiles = eye.d_head, self.picture.tiles
        if self.w(f"{block}attn_qkv.weight") is not None:
            x = self.linear(x, f"{block}attn_qkv")
            step = (head * 4, x.nb[1], x.nb[1] * n_pos)
            ne = (head, eye.n_head, n_pos, tiles)
            q, k, v = (ops.view(x, ne, step, part * eye.n_head * head * 4) for part in range(3))
            return self._normed(q, il, "q", rms=rms), self._normed(k, il, "k", rms=rms), v
        q, k, v = (self.linear(x, f"{block}attn_{side}") for side in "qkv")
        weight = self.w(f"{block}attn_q_norm.weight")
        per_head = weight is not None and weight.ne[0] == head
        if not per_head:
            q, k = self._normed(q, il, "q", rms=rms), self._normed(k, il, "k", rms=rms)
        q = ops.reshape(q, head, eye.n_head, n_pos, tiles)
        k = ops.reshape(k, head, eye.n_head_kv, n_pos, tiles)
        v = ops.reshape(v, head, eye.n_head_kv, n_pos, tiles)
        if per_head:
            q, k = self._normed(q, il, "q", rms=rms), self._normed(k, il, "k", rms=rms)
        return q, k, v

    def _normed(self, x: Tensor, il: int, side: str, *, rms: bool) -> Tensor:
        weight = self.w(f"v.blk.{il}.attn_{side}_norm.weight")
        if weight is None:
            return x
        return ops.mul(ops.rms_norm(x) if rms else ops.layer_norm(x), weight)

    def vit(
        self,
        x: Tensor,
        n_pos: int,
        *,
        rms: bool = False,
        positions: Tensor | None = None,
        rotate: Rotate | None = None,
        norm_v: bool = False,
        post: str = "v.post_ln",
    ) -> Tensor:
        """All layers of a vision transformer (clip_graph::build_vit)."""
        tiles = x.ne[2]
        if positions is not None:
            x = ops.add(x, positions)
        x = ops.reshape(x, self.eye.n_embd, n_pos * tiles)
        if self.w("v.pre_ln.weight") is not None:
            x = self.norm(x, "v.pre_ln", rms=rms)
        for il in range(self.eye.n_layer):
            x = self._block(x, il, n_pos, rms=rms, rotate=rotate, norm_v=norm_v)
        if self.w(f"{post}.weight") is not None:
            x = self.norm(x, post, rms=rms)
        return ops.reshape(x, self.eye.n_embd, x.ne[1] // tiles, tiles)

    def _block(
        self, x: Tensor, il: int, n_pos: int, *, rms: bool, rotate: Rotate | None, norm_v: bool
    ) -> Tensor:
        block = f"v.blk.{il}."
        if self.w(f"{block}ffn_gate_exps.weight") is not None:
            raise Unbuildable("experts in a vision transformer")
        q, k, v = self.qkv(self.norm(x, f"{block}ln1", rms=rms), il, n_pos, rms=rms)
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        if norm_v:
            v = ops.rms_norm(v)
        cur = self._scaled(self.attention(q, k, v, il), f"{block}ls1.weight")
        if self.w(f"{block}attn_post_norm.weight") is not None:
            cur = self.norm(cur, f"{block}attn_post_norm", rms=rms)
        x = ops.add(cur, x)
        cur = self.feed_forward(self.norm(x, f"{block}ln2", rms=rms), il)
        if self.w(f"{block}ffn_post_norm.weight") is not None:
            cur = self.norm(cur, f"{block}ffn_post_norm", rms=rms)
        x = ops.add(x, self._scaled(cur, f"{block}ls2.weight"))
        return self._scaled(x, f"{block}out_scale.weight")

    def _scaled(self, x: Tensor, name: str) -> Tensor:
        weight = self.w(name)
        return x if weight is None else ops.mul(x, weight)

    def resized_positions(self) -> Tensor:
        """Learned positions, stretched when the image has another size."""
        table = self.need("v.position_embd.weight")
        picture, n_embd = self.picture, self.eye.n_embd
        side = int(table.ne[1] ** 0.5)
        if (picture.high, picture.wide) == (side, side):
            return table
        x = ops.permute(ops.reshape(table, n_embd, side, side), 2, 0, 1, 3)
        x = ops.new("UPSCALE", table.type, (picture.wide, picture.high, n_embd, 1), (x,))
        return ops.cont(ops.permute(x, 1, 2, 0, 3), n_embd, picture.patches)

    def merged(self, x: Tensor, factor: int) -> Tensor:
        """Patches of a square side by side in one row (build_patch_merge_permute)."""
        n_embd, wide, high = x.ne[0], self.picture.wide, self.picture.high
        x = ops.reshape(x, n_embd, wide, high)
        more = (-wide % factor, -high % factor)
        if any(more):
            x = ops.pad(x, 0, *more)
            wide, high = wide + more[0], high + more[1]
        x = ops.reshape(x, n_embd * factor, wide // factor, high)
        x = ops.permute(x, 0, 2, 1, 3)
        x = ops.cont(x, n_embd * factor * factor, high // factor, wide // factor)
        x = ops.permute(x, 0, 2, 1, 3)
        return ops.cont(x, x.ne[0], x.ne[1] * x.ne[2])

    def grid_positions(self, *names: str) -> list[Tensor]:
        """One position per patch for each name."""
        return [self.input(name, I32, self.picture.patches) for name in names]


def activate(x: Tensor, activation: str) -> Tensor:
    if activation == "RELU_SQR":
        return ops.sqr(ops.unary("RELU", x))
    return ops.unary(activation, x)


def conv_2d(kernel: Tensor, x: Tensor, stride: int) -> Tensor:
    """A convolution without padding, as ggml makes it: columns, a product, and a copy."""
    wide = (x.ne[0] - kernel.ne[0]) // stride + 1
    high = (x.ne[1] - kernel.ne[1]) // stride + 1
    kind = F32 if kernel.type.name == "bf16" else F16
    row = kernel.ne[0] * kernel.ne[1] * kernel.ne[2]
    columns = ops.new("IM2COL", kind, (row, wide, high, x.ne[3]), (kernel, x))
    flat = ops.reshape(columns, row, wide * high * x.ne[3])
    made = ops.mul_mat(flat, ops.reshape(kernel, row, kernel.ne[3]))
    made = ops.reshape(made, wide, high, x.ne[3], kernel.ne[3])
    return ops.cont(ops.permute(made, 0, 1, 3, 2))


def pool_2d(x: Tensor, size: int) -> Tensor:
    return ops.new("POOL_2D", F32, (x.ne[0] // size, x.ne[1] // size, x.ne[2], x.ne[3]), (x,))
