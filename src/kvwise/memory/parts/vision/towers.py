"""Which graph belongs to which projector; SigLIP's, and those with class tokens.

Source: tools/mtmd/clip.cpp clip_get_graph_builder, tools/mtmd/models/{siglip,internvl,
nemotron-v2-vl,llava}.cpp, b10605.
"""

from __future__ import annotations

from collections.abc import Callable

from kvwise.gguf.types import I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.parts.vision import pairs, rotated
from kvwise.memory.parts.vision.sight import Sight, pool_2d

Tower = Callable[[Sight], Tensor]


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
    "pixtral": rotated.pixtral, "lightonocr": rotated.pixtral, "kimivl": rotated.kimi,
    "dots_ocr": rotated.dots, "paddleocr": rotated.paddle, "gemma4v": rotated.gemma4,
    "llama4": rotated.llama4, "qwen2vl_merger": pairs.qwen2, "qwen2.5vl_merger": pairs.qwen2,
    "qwen2.5o": pairs.qwen2, "qwen3vl_merger": pairs.qwen3, "glm4v": pairs.glm4,
    "internvl": _internvl, "nemotron_v2_vl": _nemotron, "mlp": _llava,
}  # fmt: skip
"""Kinds whose graph is known, by the projector's name in the file."""
