"""One function per kind of image encoder: its tower and its projector, node by node.

Source: tools/mtmd/models/*.cpp, b10605.
"""

from __future__ import annotations

from collections.abc import Callable

from kvwise.gguf.types import F16, F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.parts.vision.sight import Rotate, Sight, pool_2d

Tower = Callable[[Sight], Tensor]


# -- SigLIP -----------------------------------------------------------------------------------


def _siglip(s: Sight, *, resized: bool = False) -> Tensor:
    x = s.embedded()
    positions = s.resized_positions() if resized else s.need("v.position_embd.weight")
    return s.vit(x, s.picture.patches, positions=positions)


def _gemma3(s: Sight) -> Tensor:
    x, side = _siglip(s), s.picture.wide
    x = ops.cont(ops.transpose(x), side, side, s.eye.n_embd, 1)
    x = pool_2d(x, s.eye.merge)
    x = ops.reshape(x, x.ne[0] * x.ne[0], s.eye.n_embd)
    x = ops.cont(ops.transpose(x))
    x = ops.mul(ops.rms_norm(x), s.need("mm.soft_emb_norm.weight"))
    weight = s.need("mm.input_projection.weight")
    return ops.mul_mat(ops.cont(ops.transpose(weight)), x)


def _idefics3(s: Sight) -> Tensor:
    return s.mm(s.need("mm.model.fc.weight"), s.merged(_siglip(s), s.eye.merge))


def _lfm2(s: Sight) -> Tensor:
    x = s.merged(_siglip(s, resized=True), s.eye.merge)
    if s.w("mm.input_norm.weight") is not None:
        x = s.norm(x, "mm.input_norm")
    return s.mlp(x, "mm.1", "mm.2", "GELU")


def _phi4(s: Sight) -> Tensor:
    return s.mlp(_siglip(s, resized=True), "mm.0", "mm.2", "GELU")


def _janus(s: Sight) -> Tensor:
    return s.mlp(_siglip(s), "mm.0", "mm.1", s.eye.activation)


# -- rotated positions ------------------------------------------------------------------------


def _two_ropes(first: Tensor, second: Tensor) -> Rotate:
    """Half of a head turns with one position, half with the other."""
    return lambda x: ops.rope(ops.rope(x, first), second)


def _pixtral(s: Sight) -> Tensor:
    high, wide = s.grid_positions("pos_h", "pos_w")
    x = s.vit(s.embedded(), s.picture.patches, rms=True, rotate=_two_ropes(high, wide))
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


def _kimi(s: Sight) -> Tensor:
    high, wide = s.grid_positions("pos_h", "pos_w")
    positions = s.resized_positions()
    x = s.vit(s.embedded(), s.picture.patches, positions=positions, rotate=_two_ropes(wide, high))
    merge = s.eye.merge
    x = s.merged(x, merge)
    width, n_embd = x.ne[0], s.eye.n_embd
    x = ops.view_2d(x, n_embd, x.ne[1] * merge * merge, n_embd * 4)
    x = s.norm(x, "mm.input_norm")
    x = ops.view_2d(x, width, x.ne[1] // merge // merge, width * 4)
    return s.mlp(x, "mm.1", "mm.2", "GELU")


def _dots(s: Sight) -> Tensor:
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


def _gemma4(s: Sight) -> Tensor:
    s.clamped = True
    eye, picture = s.eye, s.picture
    x = s.patches(ops.scale(s.raw()))
    x = ops.reshape(x, picture.patches, eye.n_embd, picture.tiles)
    x = ops.cont(ops.transpose(x))
    across, down = s.grid_positions("pos_x", "pos_y")
    x = _add_tables(s, x, across, down)
    x = s.vit(x, picture.patches, rms=True, rotate=_two_ropes(across, down), norm_v=True)
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


# -- Qwen -------------------------------------------------------------------------------------


def _two_frames(s: Sight) -> Tensor:
    """A still image is both frames of a pair."""
    raw = s.raw()
    return ops.add(s.patches(raw), s.patches(raw, "v.patch_embd.weight.1"))


def _by_squares(s: Sight, x: Tensor) -> Tensor:
    """Rows in the order of squares of two by two patches."""
    n_embd, wide, high = s.eye.n_embd, s.picture.wide, s.picture.high
    x = ops.cont(x, n_embd * 2, wide // 2, high)
    x = ops.permute(ops.reshape(x, n_embd * 2, wide // 2, 2, high // 2), 0, 2, 1, 3)
    return ops.cont(x, n_embd, wide * high)


def _qwen2(s: Sight) -> Tensor:
    eye, n_pos = s.eye, s.picture.patches
    rms = eye.kind != "qwen2vl_merger"
    windows = eye.window_pattern
    x = _by_squares(s, ops.permute(_two_frames(s), 1, 2, 0, 3))
    positions = s.input("positions", I32, n_pos * 4)
    if s.w("v.pre_ln.weight") is not None:
        x = s.norm(x, "v.pre_ln", rms=rms)
    mask = None
    if windows:
        order = s.input("inv_window_idx", I32, n_pos // 4)
        mask = s.input("window_mask", F32, n_pos, n_pos)
        if s.picture.flash:
            mask = ops.cast(mask, F16)
        x = ops.get_rows(ops.reshape(x, eye.n_embd * 4, n_pos // 4), order)
        x = ops.reshape(x, eye.n_embd, n_pos)
    for il in range(eye.n_layer):
        whole = not windows or (il + 1) % windows == 0
        x = _qwen_block(s, x, il, positions, None if whole else mask, rms=rms)
    if s.w("v.post_ln.weight") is not None:
        x = s.norm(x, "v.post_ln", rms=rms)
    x = s.mlp(ops.reshape(x, eye.n_embd * 4, n_pos // 4), "mm.0", "mm.2", "GELU")
    if windows:
        x = ops.reshape(x, x.ne[0], n_pos // 4)
        x = ops.get_rows(x, s.input("window_idx", I32, n_pos // 4))
        x = ops.reshape(x, x.ne[0], n_pos // 4, 1)
    return x


def _qwen_block(
    s: Sight, x: Tensor, il: int, positions: Tensor, mask: Tensor | None, *, rms: bool
) -> Tensor:
    block, eye, n_pos = f"v.blk.{il}.", s.eye, s.picture.patches
    cur = s.norm(x, f"{block}ln1", rms=rms)
    if s.w(f"{block}attn_qkv.weight") is not None:
        cur = s.linear(cur, f"{block}attn_qkv")
        ne, step = (eye.d_head, eye.n_head, n_pos), (eye.d_head * 4, cur.nb[1])
        q, k, v = (ops.view(cur, ne, step, part * eye.n_embd * 4) for part in range(3))
    else:
        q, k, v = (s.linear(cur, f"{block}attn_{side}") for side in "qkv")
        q, k, v = (ops.reshape(t, eye.d_head, eye.n_head, n_pos) for t in (q, k, v))
    q, k = ops.rope(q, positions), ops.rope(k, positions)
    x = ops.add(s.attention(q, k, v, il, mask), x)
    return ops.add(x, s.feed_forward(s.norm(x, f"{block}ln2", rms=rms), il))


def _qwen3(s: Sight) -> Tensor:
    eye, n_pos = s.eye, s.picture.patches
    x = _by_squares(s, ops.permute(_two_frames(s), 1, 2, 0, 3))
    x = ops.add(x, s.need("v.patch_embd.bias"))
    x = ops.add(x, _by_squares(s, s.resized_positions()))
    positions = s.input("positions", I32, n_pos * 4)
    if s.w("v.pre_ln.weight") is not None:
        x = s.norm(x, "v.pre_ln")
    square = eye.merge * eye.merge
    deep: Tensor | None = None
    for il in range(eye.n_layer):
        x = _qwen_block(s, x, il, positions, None, rms=False)
        name = f"v.deepstack.{il}."
        if s.w(f"{name}fc1.weight") is not None:
            part = s.norm(ops.reshape(x, eye.n_embd * square, n_pos // square), f"{name}norm")
            part = s.mlp(part, f"{name}fc1", f"{name}fc2", "GELU")
            deep = part if deep is None else ops.concat(deep, part, 0)
    if s.w("v.post_ln.weight") is not None:
        x = s.norm(x, "v.post_ln")
    x = s.mlp(ops.reshape(x, eye.n_embd * 4, n_pos // 4), "mm.0", "mm.2", "GELU")
    return x if deep is None else ops.concat(x, deep, 0)


# -- with class tokens ------------------------------------------------------------------------


def _internvl(s: Sight) -> Tensor:
    eye, picture = s.eye, s.picture
    token = s.need("v.class_embd")
    repeated = ops.repeat(token, token.ne[0], 1, picture.tiles, 1)
    x = ops.concat(s.embedded(), repeated, 1)
    rms = (eye.n_embd, eye.n_layer) == (3200, 45)
    positions = s.need("v.position_embd.weight")
    x = s.vit(x, picture.patches + 1, rms=rms, positions=positions)
    x = ops.view(x, (eye.n_embd, picture.patches, picture.tiles), (x.nb[1], x.nb[2]))
    x, merge = ops.cont(x), eye.merge
    x = ops.reshape(x, eye.n_embd * merge, picture.high // merge, picture.wide, picture.tiles)
    x = ops.cont(
        ops.permute(x, 0, 2, 1, 3),
        eye.n_embd * merge * merge, picture.high // merge, picture.wide // merge, picture.tiles,
    )  # fmt: skip
    x = ops.permute(x, 0, 2, 1, 3)
    x = ops.cont(x, eye.n_embd * merge * merge, x.ne[1] * x.ne[2], x.ne[3])
    return s.mlp(s.norm(x, "mm.model.mlp.0"), "mm.model.mlp.1", "mm.model.mlp.3", "GELU")


def _nemotron(s: Sight) -> Tensor:
    eye, patches = s.eye, s.picture.patches
    token = s.need("v.class_embd")
    x = ops.add(s.embedded(), s.need("v.position_embd.weight"))
    x = s.vit(ops.concat(token, x, 1), patches + token.ne[1])
    row = eye.n_embd * 4
    x = ops.view_2d(x, eye.n_embd, patches, row, token.ne[1] * row)
    x = s.merged(x, eye.merge)
    x = s.norm(x, "mm.model.mlp.0", rms=True)
    return s.mlp(x, "mm.model.mlp.1", "mm.model.mlp.3", "RELU_SQR")


def _llava(s: Sight) -> Tensor:
    eye, patches = s.eye, s.picture.patches
    x, token = s.embedded(), s.w("v.class_embd")
    n_pos = patches + (token is not None)
    if token is not None:
        x = ops.concat(x, token, 1)
    positions = s.input("positions", I32, n_pos)
    x = ops.add(x, ops.get_rows(s.need("v.position_embd.weight"), positions))
    if s.w("v.pre_ln.weight") is not None:
        x = s.norm(x, "v.pre_ln")
    wanted = set(eye.feature_layers)
    depth = max(wanted) if wanted else eye.n_layer - 1
    kept: list[Tensor] = []
    for il in range(depth):
        if il in wanted:
            kept.append(x)
        x = _llava_block(s, x, il, n_pos)
    if s.w("v.post_ln.weight") is not None:
        x = s.norm(x, "v.post_ln")
    if depth in wanted:
        kept.append(x)
    if kept:
        x, *rest = kept
        for more in rest:
            x = ops.concat(x, more, 0)
    x = ops.reshape(x, x.ne[0], x.ne[1])
    x = ops.get_rows(x, s.input("patches", I32, patches))
    return _llava_projector(s, x)


def _llava_block(s: Sight, x: Tensor, il: int, n_pos: int) -> Tensor:
    block, eye = f"v.blk.{il}.", s.eye
    cur = s.norm(x, f"{block}ln1")
    q, k, v = (s.linear(cur, f"{block}attn_{side}") for side in "qkv")
    q, k, v = (ops.reshape(t, eye.d_head, eye.n_head, n_pos) for t in (q, k, v))
    x = ops.add(s.attention(q, k, v, il), x)
    return ops.add(x, s.feed_forward(s.norm(x, f"{block}ln2"), il))


def _llava_projector(s: Sight, x: Tensor) -> Tensor:
    if s.w("mm.3.weight") is not None:  # with norms
        x = ops.add(s.mm(s.need("mm.0.weight"), x), s.need("mm.0.bias"))
        x = ops.add(ops.mul(ops.layer_norm(x), s.need("mm.1.weight")), s.need("mm.1.bias"))
        x = s.linear(ops.unary("GELU", x), "mm.3")
        return ops.add(ops.mul(ops.layer_norm(x), s.need("mm.4.weight")), s.need("mm.4.bias"))
    x = ops.unary("GELU", s.linear(x, "mm.0"))
    return s.linear(x, "mm.2") if s.w("mm.2.weight") is not None else x


TOWERS: dict[str, Tower] = {
    "gemma3": _gemma3, "idefics3": _idefics3, "lfm2": _lfm2, "phi4": _phi4, "janus_pro": _janus,
    "pixtral": _pixtral, "lightonocr": _pixtral, "kimivl": _kimi, "dots_ocr": _dots,
    "gemma4v": _gemma4, "qwen2vl_merger": _qwen2, "qwen2.5vl_merger": _qwen2, "qwen2.5o": _qwen2,
    "qwen3vl_merger": _qwen3, "internvl": _internvl, "nemotron_v2_vl": _nemotron, "mlp": _llava,
}  # fmt: skip
"""Kinds whose graph is known, by the projector's name in the file."""
