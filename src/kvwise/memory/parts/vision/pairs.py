"""Image encoders that see an image as a pair of frames, in squares of patches: Qwen-VL and GLM-4V.

Source: tools/mtmd/models/{qwen2vl,qwen3vl,glm4v}.cpp, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F16, F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.parts.vision.sight import Sight, conv_2d


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


def qwen2(s: Sight) -> Tensor:
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


def qwen3(s: Sight) -> Tensor:
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


def glm4(s: Sight) -> Tensor:
    """GLM-4V: the same squares, merged by a convolution, and a gated projector."""
    eye, patches, merge = s.eye, s.picture.patches, s.eye.merge
    raw = s.raw()
    first = s.patches(raw)
    positions = s.input("positions", I32, patches * 4)
    x = ops.add(first, s.patches(raw, "v.patch_embd.weight.1"))
    x = _by_squares(s, ops.permute(x, 1, 2, 0, 3))
    x = s.norm(ops.add(x, s.need("v.patch_embd.bias")), "v.norm_embd", rms=True)
    learned = None
    if s.w("v.position_embd.weight") is not None:
        learned = _by_squares(s, s.resized_positions())
    x = s.vit(x, patches, rms=True, positions=learned, rotate=lambda t: ops.rope(t, positions))
    count = patches // merge // merge
    x = ops.reshape(x, eye.n_embd, merge, merge, count)
    x = ops.cont(ops.permute(x, 2, 0, 1, 3))
    x = conv_2d(s.need("mm.patch_merger.weight"), x, merge)
    x = ops.reshape(x, x.ne[2], count)
    x = ops.add(x, s.need("mm.patch_merger.bias"))
    x = s.norm(s.mm(s.need("mm.model.fc.weight"), x), "mm.post_norm")
    return s.gated(ops.unary("GELU_ERF", x), "mm.up", "mm.gate", "mm.down")
