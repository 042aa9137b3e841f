"""Image encoders whose attention turns with two positions: Pixtral, Kimi-VL, dots.ocr, PaddleOCR,
Gemma 4 and Llama 4.

Source: tools/mtmd/models/{pixtral,kimivl,dotsocr,paddleocr,gemma4v,llama4}.cpp, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.parts.vision.sight import Rotate, Sight, pool_2d


def two_ropes(first: Tensor, second: Tensor) -> Rotate:
    """Half of a head turns with one position, half with the other."""
    return lambda x: ops.rope(ops.rope(x, first), second)


def pixtral(s: Sight) -> Tensor:
    high, wide = s.grid_positions("pos_h", "pos_w")
    x = s.vit(s.embedded(), s.picture.patches, rms=True, rotate=two_ropes(high, wide))
    merge = s.eye.merge
    if s.w("mm.patch_merger.weight") is not None:
        x = ops.mul(ops.rms_norm(x), s.need("mm.input_norm.weight"))
        x = ops.reshape(x, s.eye.n_embd, s.picture.wide, s.picture.high)
        x = ops.cont(ops.permute(x, 2, 0, 1, 3))
        kernel = ops.view(x, (merge, merge, x.ne[2]), (0, 0))
        row = merge * merge * x.ne[2]
        wide_, high_ = (side // merge for side in x.ne[:2])
        x = ops.new("IM2COL", F32, (row, wide_, high_, 1), (kernel, x))
        x = s.mm(s.need("mm.patch_merger.weight"), ops.reshape(x, row, wide_ * high_))
    x = s.mlp(x, "mm.1", "mm.2", "GELU")
    return _with_breaks(s, x) if s.w("v.token_embd.img_break") is not None else x


def _with_breaks(s: Sight, x: Tensor) -> Tensor:
    """A break after every row of tokens but the last."""
    wide, high = s.picture.wide // s.eye.merge, s.picture.high // s.eye.merge
    width = x.ne[0]
    rows = ops.reshape(x, width, wide, high)
    empty = ops.new("NONE", F32, (width, 1, high, 1))
    token = ops.add(ops.scale(empty), s.need("v.token_embd.img_break"))
    x = ops.concat(rows, token, 1)
    return ops.view_2d(x, width, wide * high + high - 1, width * 4)


def kimi(s: Sight) -> Tensor:
    high, wide = s.grid_positions("pos_h", "pos_w")
    positions = s.resized_positions()
    x = s.vit(s.embedded(), s.picture.patches, positions=positions, rotate=two_ropes(wide, high))
    merge = s.eye.merge
    x = s.merged(x, merge)
    width, n_embd = x.ne[0], s.eye.n_embd
    x = ops.view_2d(x, n_embd, x.ne[1] * merge * merge, n_embd * 4)
    x = s.norm(x, "mm.input_norm")
    x = ops.view_2d(x, width, x.ne[1] // merge // merge, width * 4)
    return s.mlp(x, "mm.1", "mm.2", "GELU")


def dots(s: Sight) -> Tensor:
    positions = s.input("positions", I32, s.picture.patches * 4)
    x = s.vit(
        s.embedded(),
        s.picture.patches,
        rms=True,
        rotate=lambda t: ops.rope(t, positions),
        post="mm.post_norm",
    )
    x = s.merged(s.norm(x, "mm.input_norm"), s.eye.merge)
    return s.mlp(x, "mm.0", "mm.2", "GELU_ERF")


def gemma4(s: Sight) -> Tensor:
    s.clamped = True
    eye, picture = s.eye, s.picture
    x = s.patches(ops.scale(s.raw()))
    x = ops.reshape(x, picture.patches, eye.n_embd, picture.tiles)
    x = ops.cont(ops.transpose(x))
    across, down = s.grid_positions("pos_x", "pos_y")
    x = _add_tables(s, x, across, down)
    x = s.vit(x, picture.patches, rms=True, rotate=two_ropes(across, down), norm_v=True)
    x = ops.cont(ops.transpose(x), picture.wide, picture.high, eye.n_embd, picture.tiles)
    x = pool_2d(x, eye.merge)
    x = ops.reshape(x, x.ne[0] * x.ne[1], eye.n_embd, picture.tiles)
    x = ops.scale(ops.cont(ops.transpose(x)))
    bias, scale = s.w("v.std_bias"), s.w("v.std_scale")
    if bias is not None and scale is not None:
        x = ops.mul(ops.sub(x, bias), scale)
    return s.mm(s.need("mm.input_projection.weight"), ops.rms_norm(x))


def _add_tables(s: Sight, x: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Learned positions from two tables in one weight."""
    table = s.need("v.position_embd.weight")
    n_embd, rows, step = s.eye.n_embd, table.ne[1], table.nb[1]
    one = ops.get_rows(ops.view_2d(table, n_embd, rows, step), across)
    two = ops.get_rows(ops.view_2d(table, n_embd, rows, step, rows * step), down)
    return ops.add(ops.add(x, one), two)


def paddle(s: Sight) -> Tensor:
    """PaddleOCR: learned positions and rotated ones."""
    positions = s.input("positions", I32, s.picture.patches * 4)
    learned = s.resized_positions()
    x = s.vit(
        s.embedded(),
        s.picture.patches,
        positions=learned,
        rotate=lambda t: ops.rope(t, positions),
    )
    x = s.merged(s.norm(x, "mm.input_norm"), s.eye.merge)
    return s.mlp(x, "mm.1", "mm.2", s.eye.activation)


def llama4(s: Sight) -> Tensor:
    """Patches unfolded by hand, a class token at the end, pixels shuffled."""
    eye, picture = s.eye, s.picture
    n_pos = picture.patches + 1
    high, wide = s.input("pos_h", I32, n_pos), s.input("pos_w", I32, n_pos)
    weight, side = s.need("v.patch_embd.weight"), eye.patch
    kernel = ops.reshape(weight, side, side, 3, eye.n_embd)
    row = 3 * side * side
    x = ops.new("IM2COL", F32, (row, picture.wide, picture.high, 1), (kernel, s.raw()))
    x = ops.reshape(s.mm(weight, x), eye.n_embd, picture.patches)
    x = ops.concat(x, s.need("v.class_embd"), 1)
    learned = s.need("v.position_embd.weight")
    x = s.vit(x, n_pos, positions=learned, rotate=two_ropes(wide, high))
    x = ops.view_2d(x, eye.n_embd, picture.patches, eye.n_embd * 4)
    merge = eye.merge
    x = ops.reshape(x, eye.n_embd * merge, picture.wide // merge, picture.high)
    x = ops.cont(
        ops.permute(x, 0, 2, 1, 3),
        eye.n_embd * merge * merge,
        picture.wide // merge,
        picture.high // merge,
    )
    x = ops.cont(x, eye.n_embd * merge * merge, picture.patches // merge // merge)
    for name in ("mm.model.mlp.1.weight", "mm.model.mlp.2.weight"):
        x = ops.unary("GELU", s.mm(s.need(name), x))
    return s.mm(s.need("mm.model.fc.weight"), x)
