"""Small mmproj headers of many kinds, as converters write them: no data, real names and shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kvwise.gguf.header import Header, Tensor, Value
from kvwise.gguf.types import F16, F32, GGMLType

TEXT = 576
"""Width of the language model behind the projector."""


@dataclass
class Sizes:
    kind: str
    embd: int = 256
    heads: int = 4
    layers: int = 3
    ff: int = 512
    image: int = 224
    patch: int = 14
    merger: bool = False
    deep: bool = False
    keys: dict[str, Value] = field(default_factory=dict)
    rows: list[Tensor] = field(default_factory=list)

    @property
    def squares(self) -> int:
        return (self.image // self.patch) ** 2

    def add(self, name: str, *shape: int, kind: GGMLType | None = None) -> None:
        self.rows.append(Tensor(name, shape, kind or (F16 if len(shape) > 1 else F32)))

    def linear(self, name: str, inp: int, out: int, *, bias: bool = True) -> None:
        self.add(f"{name}.weight", inp, out)
        if bias:
            self.add(f"{name}.bias", out)

    def norm(self, name: str, width: int, *, bias: bool = True) -> None:
        self.add(f"{name}.weight", width)
        if bias:
            self.add(f"{name}.bias", width)

    def table(self, rows: int) -> None:
        self.add("v.position_embd.weight", self.embd, rows, kind=F32)

    def patches(self, *, bias: bool = True) -> None:
        self.add("v.patch_embd.weight", self.patch, self.patch, 3, self.embd)
        if bias:
            self.add("v.patch_embd.bias", self.embd)

    def tower(
        self,
        *,
        bias: bool = True,
        fused: bool = False,
        gate: bool = False,
        scaled: bool = False,
        gemma: bool = False,
    ) -> None:
        width = self.embd
        for il in range(self.layers):
            block = f"v.blk.{il}."
            self.norm(f"{block}ln1", width, bias=bias)
            self.norm(f"{block}ln2", width, bias=bias)
            if fused:
                self.linear(f"{block}attn_qkv", width, 3 * width, bias=bias)
            for side in "" if fused else "qkv":
                self.linear(f"{block}attn_{side}", width, width, bias=bias)
            self.linear(f"{block}attn_out", width, width, bias=bias)
            for name in ("ls1", "ls2") if scaled else ():
                self.add(f"{block}{name}.weight", width)
            for name in ("attn_post_norm", "ffn_post_norm") if gemma else ():
                self.add(f"{block}{name}.weight", width)
            for name in ("attn_q_norm", "attn_k_norm") if gemma else ():
                self.add(f"{block}{name}.weight", width // self.heads)
            for name in ("up", "gate") if gate else ("up",):
                self.linear(f"{block}ffn_{name}", width, self.ff, bias=bias)
            self.linear(f"{block}ffn_down", self.ff, width, bias=bias)

    def header(self) -> Header:
        metadata: dict[str, Value] = {
            "general.architecture": "clip",
            "clip.has_vision_encoder": True,
            "clip.projector_type": self.kind,
            "clip.use_gelu": True,
            "clip.vision.embedding_length": self.embd,
            "clip.vision.attention.head_count": self.heads,
            "clip.vision.feed_forward_length": self.ff,
            "clip.vision.block_count": self.layers,
            "clip.vision.projection_dim": TEXT,
            "clip.vision.attention.layer_norm_epsilon": 1e-6,
            "clip.vision.image_size": self.image,
            "clip.vision.patch_size": self.patch,
            "clip.vision.image_mean": (0.5, 0.5, 0.5),
            "clip.vision.image_std": (0.5, 0.5, 0.5),
        }
        metadata |= {f"clip.vision.{key}": value for key, value in self.keys.items()}
        return Header(3, metadata, tuple(self.rows))


def _siglip(s: Sizes, positions: int) -> None:
    s.tower()
    s.patches()
    s.table(positions)
    s.norm("v.post_ln", s.embd)


def _gemma3(s: Sizes) -> None:
    _siglip(s, s.squares)
    s.add("mm.input_projection.weight", TEXT, s.embd)
    s.add("mm.soft_emb_norm.weight", s.embd)


def _idefics3(s: Sizes) -> None:
    s.keys |= {"projector.scale_factor": 4, "preproc_image_size": 896}
    _siglip(s, s.squares)
    s.add("mm.model.fc.weight", 16 * s.embd, TEXT)


def _lfm2(s: Sizes) -> None:
    s.keys |= {"projector.scale_factor": 2}
    _siglip(s, 256)
    s.norm("mm.input_norm", 4 * s.embd)
    s.linear("mm.1", 4 * s.embd, 640)
    s.linear("mm.2", 640, TEXT)


def _janus(s: Sizes) -> None:
    _siglip(s, s.squares)
    s.linear("mm.0", s.embd, TEXT)
    s.linear("mm.1", TEXT, TEXT)


def _phi4(s: Sizes) -> None:
    area = s.patch * s.patch
    s.keys |= {"image_min_pixels": area * 16, "image_max_pixels": area * 3600}
    _siglip(s, 256)
    s.linear("mm.0", s.embd, TEXT)
    s.linear("mm.2", TEXT, TEXT)


def _pixtral(s: Sizes) -> None:
    s.tower(bias=False, gate=True)
    s.patches(bias=False)
    s.add("v.pre_ln.weight", s.embd)
    s.linear("mm.1", s.embd, TEXT)
    s.linear("mm.2", TEXT, TEXT)
    s.add("v.token_embd.img_break", TEXT)
    if s.merger:
        s.keys |= {"spatial_merge_size": 2}
        s.add("mm.input_norm.weight", s.embd)
        s.add("mm.patch_merger.weight", 4 * s.embd, s.embd)


def _kimi(s: Sizes) -> None:
    s.keys |= {"projector.scale_factor": 2}
    _siglip(s, 64 * 64)
    s.norm("mm.input_norm", s.embd)
    s.linear("mm.1", 4 * s.embd, 4 * s.embd)
    s.linear("mm.2", 4 * s.embd, TEXT)


def _dots(s: Sizes) -> None:
    s.keys |= {
        "projector.scale_factor": 2, "image_min_pixels": 3136, "image_max_pixels": 11289600,
    }  # fmt: skip
    s.tower(bias=False, fused=True, gate=True)
    s.patches()
    s.add("mm.post_norm.weight", s.embd)
    s.norm("mm.input_norm", s.embd)
    s.linear("mm.0", 4 * s.embd, 4 * s.embd)
    s.linear("mm.2", 4 * s.embd, TEXT)


def _gemma4(s: Sizes) -> None:
    s.tower(bias=False, gate=True, gemma=True)
    s.patches(bias=False)
    s.add("v.position_embd.weight", s.embd, 1024, 2, kind=F32)
    s.add("mm.input_projection.weight", s.embd, TEXT)
    s.add("v.std_bias", s.embd)
    s.add("v.std_scale", s.embd)


def _qwen(s: Sizes, *, windows: bool) -> None:
    if windows:
        s.keys |= {"n_wa_pattern": 2}
    s.tower(gate=windows)
    s.patches(bias=False)
    s.add("v.patch_embd.weight.1", s.patch, s.patch, 3, s.embd)
    s.norm("v.post_ln", s.embd, bias=not windows)
    s.linear("mm.0", 4 * s.embd, 4 * s.embd)
    s.linear("mm.2", 4 * s.embd, TEXT)


def _qwen3(s: Sizes) -> None:
    s.keys |= {"spatial_merge_size": 2}
    s.tower(fused=True)
    s.patches()
    s.add("v.patch_embd.weight.1", s.patch, s.patch, 3, s.embd)
    s.norm("v.post_ln", s.embd)
    s.table(48 * 48)
    s.linear("mm.0", 4 * s.embd, 4 * s.embd)
    s.linear("mm.2", 4 * s.embd, TEXT)
    for il in (0, 2) if s.deep else ():
        s.norm(f"v.deepstack.{il}.norm", 4 * s.embd)
        s.linear(f"v.deepstack.{il}.fc1", 4 * s.embd, 4 * s.embd)
        s.linear(f"v.deepstack.{il}.fc2", 4 * s.embd, TEXT)


def _paddle(s: Sizes) -> None:
    s.keys |= {"image_min_pixels": 147384, "image_max_pixels": 2822400}
    _siglip(s, 27 * 27)
    s.norm("mm.input_norm", s.embd)
    s.linear("mm.1", 4 * s.embd, 4 * s.embd)
    s.linear("mm.2", 4 * s.embd, TEXT)


def _llama4(s: Sizes) -> None:
    s.keys |= {"projector.scale_factor": 2}
    s.tower()
    s.add("v.patch_embd.weight", 3 * s.patch * s.patch, s.embd)
    s.add("v.class_embd", s.embd)
    s.table(s.squares + 1)
    s.norm("v.pre_ln", s.embd)
    s.norm("v.post_ln", s.embd)
    s.add("mm.model.mlp.1.weight", 4 * s.embd, 1024)
    s.add("mm.model.mlp.2.weight", 1024, 1024)
    s.add("mm.model.fc.weight", 1024, TEXT)


def _glm4(s: Sizes) -> None:
    s.keys |= {"spatial_merge_size": 2}
    s.tower(bias=False, fused=True, gate=True)
    s.patches()
    s.add("v.patch_embd.weight.1", s.patch, s.patch, 3, s.embd)
    s.add("v.norm_embd.weight", s.embd)
    s.add("v.post_ln.weight", s.embd)
    s.table(24 * 24)
    s.add("mm.patch_merger.weight", 2, 2, s.embd, 4 * s.embd)
    s.add("mm.patch_merger.bias", 4 * s.embd)
    s.add("mm.model.fc.weight", 4 * s.embd, TEXT)
    s.norm("mm.post_norm", TEXT)
    s.linear("mm.up", TEXT, 1024, bias=False)
    s.linear("mm.gate", TEXT, 1024, bias=False)
    s.linear("mm.down", 1024, TEXT, bias=False)


def _internvl(s: Sizes) -> None:
    s.keys |= {"projector.scale_factor": 2}
    s.tower(scaled=True)
    s.patches()
    s.table(s.squares + 1)
    s.add("v.class_embd", s.embd)
    s.norm("mm.model.mlp.0", 4 * s.embd)
    s.linear("mm.model.mlp.1", 4 * s.embd, TEXT)
    s.linear("mm.model.mlp.3", TEXT, TEXT)


def _nemotron(s: Sizes) -> None:
    s.keys |= {"projector.scale_factor": 2}
    s.tower(fused=True)
    s.patches(bias=False)
    s.table(s.squares)
    s.add("v.class_embd", s.embd, 10, kind=F32)
    s.add("mm.model.mlp.0.weight", 4 * s.embd)
    s.add("mm.model.mlp.1.weight", 4 * s.embd, 1024)
    s.add("mm.model.mlp.3.weight", 1024, TEXT)


def _llava(s: Sizes) -> None:
    s.tower()
    s.patches(bias=False)
    s.table(s.squares + 1)
    s.add("v.class_embd", s.embd)
    s.norm("v.pre_ln", s.embd)
    s.linear("mm.0", s.embd, TEXT)
    s.linear("mm.2", TEXT, TEXT)


MAKERS: dict[str, Callable[[Sizes], None]] = {
    "gemma3": _gemma3, "idefics3": _idefics3, "lfm2": _lfm2, "janus_pro": _janus, "phi4": _phi4,
    "pixtral": _pixtral, "kimivl": _kimi, "dots_ocr": _dots, "gemma4v": _gemma4,
    "qwen2vl_merger": lambda s: _qwen(s, windows=False),
    "qwen2.5vl_merger": lambda s: _qwen(s, windows=True), "qwen3vl_merger": _qwen3,
    "paddleocr": _paddle, "llama4": _llama4, "glm4v": _glm4,
    "internvl": _internvl, "nemotron_v2_vl": _nemotron, "mlp": _llava,
}  # fmt: skip


def encoder(kind: str, **sizes: int | bool) -> Header:
    """The header of one kind; `sizes` are fields of `Sizes`."""
    made = Sizes(kind, **sizes)  # type: ignore[arg-type]
    MAKERS[kind](made)
    return made.header()
