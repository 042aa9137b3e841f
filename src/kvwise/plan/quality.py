"""How much a cache type costs in quality: classes, until a measurement on the model says more.

The order was measured (KL divergence against f16 at llama.cpp b10605, SmolLM2 135M and
Gemma 3 270M, 512-token chunks): q8_0 on either side stays at the noise of a changed batch size;
4 bits on V alone cost 3 times that, 5 bits on both 4 times, 4 bits on K 12 times. Models differ:
the class is a floor to plan with, `kvwise bench --quality` measures.
"""

from __future__ import annotations

from kvwise.text import template

QUALITIES = ("lossless", "high", "medium", "any")
"""From strict to lax; `any` also admits what a class `low` cache loses."""

CLASSES = (template("lossless"), template("high"), template("medium"), template("low"))
"""What a pair of cache types is called, best first."""

_PLAIN = {"f32", "f16", "bf16"}
_NEAR = _PLAIN | {"q8_0"}
_FIVE_BITS = _NEAR | {"q5_0", "q5_1"}

PAIRS = (
    ("f16", "f16"),
    ("q8_0", "q8_0"),
    ("q8_0", "q5_1"),
    ("q8_0", "q4_0"),
    ("q5_1", "q4_0"),
    ("q4_0", "q4_0"),
)
"""K and V types worth planning with, best quality first."""


def quality_of(type_k: str, type_v: str) -> str:
    """The class of a pair of cache types; K weighs more than V."""
    if type_k in _PLAIN and type_v in _PLAIN:
        return "lossless"
    if type_k in _NEAR and type_v in _NEAR:
        return "high"
    if type_k in _FIVE_BITS:
        return "medium"
    return "low"


def meets(quality: str, floor: str) -> bool:
    """Whether a class is good enough for `--min-quality`."""
    return CLASSES.index(quality) <= QUALITIES.index(floor)
