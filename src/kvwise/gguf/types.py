"""One row per ggml type: id, name, elements per block, bytes per block.

Source: ggml/include/ggml.h, ggml/src/ggml.c and ggml-common.h of llama.cpp b10605.
Ids without a row were removed from ggml (4, 5, 31-33, 36-38) or never existed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GGMLType:
    """A ggml element type; `block` elements are stored in `size` bytes."""

    id: int
    name: str
    block: int
    size: int

    @property
    def quantized(self) -> bool:
        """Stored in blocks (ggml_is_quantized)."""
        return self.block > 1

    def row_bytes(self, elements: int) -> int:
        """Bytes of `elements` values (ggml_row_size); elements must be whole blocks."""
        return elements // self.block * self.size


_ROWS = (
    (0, "f32", 1, 4), (1, "f16", 1, 2), (2, "q4_0", 32, 18), (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22), (7, "q5_1", 32, 24), (8, "q8_0", 32, 34), (9, "q8_1", 32, 36),
    (10, "q2_K", 256, 84), (11, "q3_K", 256, 110), (12, "q4_K", 256, 144), (13, "q5_K", 256, 176),
    (14, "q6_K", 256, 210), (15, "q8_K", 256, 292), (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74), (18, "iq3_xxs", 256, 98), (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18), (21, "iq3_s", 256, 110), (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136), (24, "i8", 1, 1), (25, "i16", 1, 2), (26, "i32", 1, 4),
    (27, "i64", 1, 8), (28, "f64", 1, 8), (29, "iq1_m", 256, 56), (30, "bf16", 1, 2),
    (34, "tq1_0", 256, 54), (35, "tq2_0", 256, 66), (39, "mxfp4", 32, 17), (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18), (42, "q2_0", 64, 18),
)  # fmt: skip

BY_ID: dict[int, GGMLType] = {row[0]: GGMLType(*row) for row in _ROWS}
BY_NAME: dict[str, GGMLType] = {kind.name.lower(): kind for kind in BY_ID.values()}

F32, F16, I32 = BY_NAME["f32"], BY_NAME["f16"], BY_NAME["i32"]

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""What llama.cpp's `-ctk` and `-ctv` accept (common/arg.cpp, b10605)."""


def by_name(name: str) -> GGMLType | None:
    """The type of a name in any letter case, or None."""
    return BY_NAME.get(name.lower())
