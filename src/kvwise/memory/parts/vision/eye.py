"""An image encoder by its header: sizes, and the images it is made to look at.

Source: tools/mtmd/clip.cpp load_hparams, tools/mtmd/clip-model.h, b10605.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Literal

from kvwise.gguf.header import Header

Limit = tuple[int, int] | Literal["pixels", "none"]
PREFIX = "clip.vision."
TOO_LARGE = 1 << 31
"""No size of an encoder reaches this; the engine itself reads 32 bits."""


@dataclass(frozen=True, slots=True)
class Row:
    """How one kind of projector sizes its images.

    `merge` patches per side become one token unless the key says otherwise; `limit` are tokens
    (fewest, most), or `pixels` that the file gives, or `none` for a fixed size; `start` tokens
    of the image that is reserved for at start, 0 = the image size, -1 = the largest;
    `batched` = several tiles are encoded at once.
    """

    merge: int = 1
    key: str = "projector.scale_factor"
    limit: Limit = "none"
    start: int = 0
    batched: bool = False


_QWEN = Row(2, "spatial_merge_size", (8, 4096), 46 * 46)
_PIXTRAL = Row(1, "spatial_merge_size", (8, 1024), 256)

ROWS: dict[str, Row] = {
    "mlp": Row(), "ldp": Row(), "ldpv2": Row(), "cogvlm": Row(), "adapter": Row(),
    "resampler": Row(), "janus_pro": Row(), "yasa2": Row(), "granite4_vision": Row(),
    "gemma3": Row(4), "gemma3nv": Row(), "idefics3": Row(), "minicpmv4_6": Row(4),
    "internvl": Row(batched=True), "nemotron_v2_vl": Row(), "llama4": Row(),
    "lfm2": Row(limit=(64, 256), start=-1),
    "phi4": Row(key="", limit="pixels", start=256),
    "pixtral": _PIXTRAL, "lightonocr": Row(1, "spatial_merge_size", start=256),
    "dots_ocr": Row(limit="pixels", start=46 * 46),
    "dots3note_v": Row(1, "spatial_merge_size", "pixels", 46 * 46),
    "kimivl": Row(limit=(8, 1024), start=256), "kimik25": Row(limit=(2, 4096), start=-1),
    "gemma4v": Row(3, limit=(40, 280), start=256, batched=True),
    "gemma4uv": Row(3, limit=(40, 280), start=256),
    "qwen2vl_merger": _QWEN, "qwen2.5vl_merger": _QWEN, "qwen2.5o": _QWEN,
    "qwen3vl_merger": _QWEN, "glm4v": _QWEN,
    "minimax_m3": Row(2, "spatial_merge_size", (8, 576), 16 * 16),
    "muse-glimmer": Row(2, "spatial_merge_size", (1, 4096), 32 * 32),
    "mimovl": Row(2, "spatial_merge_size", "pixels", 46 * 46),
    "exaone4_5": Row(2, "spatial_merge_size", "pixels", 46 * 46),
    "youtuvl": Row(2, "spatial_merge_size", (1, 62500), 16 * 16),
    "paddleocr": Row(2, "", "pixels", 28 * 28),
    "hunyuanvl": Row(2, "spatial_merge_size", (256, 16384), 32 * 32),
    "step3vl": Row(4), "deepseekocr": Row(batched=True), "deepseekocr2": Row(batched=True),
}  # fmt: skip
"""By the projector's name in the file (clip-impl.h PROJECTOR_TYPE_NAMES)."""

DEEPSEEK_OCR = {"deepseekocr": (1024, 16), "deepseekocr2": (1024, 16)}
"""Kinds whose image and patch size the engine sets itself."""


WINDOWS = ("n_wa_pattern", "window_size", "wa_pattern_mode", "wa_layer_indexes")


@dataclass(frozen=True, slots=True)
class Eye:
    """An encoder. `side` is the image that is reserved for at start, in pixels; `most` the tokens
    of the largest image, 0 where the size is fixed; `tiles` encoded at once."""

    kind: str
    header: Header
    row: Row
    side: int
    patch: int
    merge: int
    most: int
    tiles: int
    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    d_head: int
    projection: int
    activation: str
    window_pattern: int
    masked: bool  # some layers look at windows through a mask of all patches
    feature_layers: tuple[int, ...]

    @property
    def start_grid(self) -> tuple[int, int]:
        """Patches per side of the image at start."""
        return self.side // self.patch, self.side // self.patch

    @property
    def largest_grid(self) -> tuple[int, int]:
        """Patches per side of the largest image, as near to a square as its tokens allow."""
        if not self.most:
            return self.start_grid
        short = next(n for n in range(isqrt(self.most), 0, -1) if self.most % n == 0)
        return self.most // short * self.merge, short * self.merge


def eye_of(header: Header, asked_tokens: int = 0, batch_tokens: int = 1024) -> Eye | None:
    """The image encoder of an mmproj file; None if it has none, or one of an unknown kind.

    `asked_tokens` is `--image-max-tokens`, `batch_tokens` `--mtmd-batch-max-tokens`.
    """
    kind = projector(header)
    row = ROWS.get(kind)
    sizes = {
        key: _number(header, name)
        for key, name in (
            ("embd", "embedding_length"), ("layers", "block_count"), ("patch", "patch_size"),
            ("heads", "attention.head_count"),
        )
    }  # fmt: skip
    if row is None or header.get("clip.has_vision_encoder") is not True:
        return None
    image = _number(header, "image_size")
    image, patch = DEEPSEEK_OCR.get(kind, (image, sizes["patch"]))
    if not (sizes["embd"] and patch and sizes["heads"]):
        return None
    merge = (_number(header, row.key) if row.key else 0) or row.merge
    if kind == "gemma4uv":  # its first layer merges the patches already
        patch, merge = patch * merge, 1
    most = _most_tokens(header, row, patch * merge, asked_tokens)
    side = _side(row, image, patch * merge, most)
    if not patch <= side < TOO_LARGE:
        return None
    per_tile = max(1, (image // (patch * merge)) ** 2) if image else 1
    per_tile = most or per_tile
    return Eye(
        kind=kind,
        header=header,
        row=row,
        side=side,
        patch=patch,
        merge=merge,
        most=most,
        tiles=max(1, batch_tokens // per_tile) if row.batched else 1,
        n_embd=sizes["embd"],
        n_layer=sizes["layers"],
        n_head=sizes["heads"],
        n_head_kv=_number(header, "attention.head_count_kv") or sizes["heads"],
        d_head=_number(header, "attention.head_dim") or sizes["embd"] // sizes["heads"],
        projection=_number(header, "projection_dim"),
        activation=_activation(header),
        window_pattern=_number(header, "n_wa_pattern"),
        masked=any(PREFIX + key in header.metadata for key in WINDOWS),
        feature_layers=_numbers(header, "feature_layer"),
    )


def projector(header: Header, modality: str = "vision") -> str:
    """The kind of a projector, empty if the file does not say."""
    for key in ("clip.projector_type", f"clip.{modality}.projector_type"):
        found = header.get(key)
        if isinstance(found, str) and found:
            return found
    return ""


def _most_tokens(header: Header, row: Row, side: int, asked: int) -> int:
    if row.limit == "none":
        return 0
    if row.limit == "pixels":
        return _number(header, "image_max_pixels") // (side * side)
    return asked or row.limit[1]


def _side(row: Row, image: int, side: int, most: int) -> int:
    if row.start > 0:
        return isqrt(row.start) * side
    if row.start < 0 and most:
        return isqrt(most * side * side)
    return image


def _activation(header: Header) -> str:
    if header.get("clip.use_gelu") is True:
        return "GELU"
    return "SILU" if header.get("clip.use_silu") is True else "GELU_QUICK"


def _number(header: Header, key: str) -> int:
    value = header.get(PREFIX + key)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value < TOO_LARGE else 0


def _numbers(header: Header, key: str) -> tuple[int, ...]:
    value = header.get(PREFIX + key)
    if not isinstance(value, tuple):
        return ()
    return tuple(each for each in value if isinstance(each, int))
