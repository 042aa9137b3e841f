"""One row or short function per architecture: how its graph is put together.

Each module has `ROWS`: architecture -> function that builds the graph into a `Builder`. To add
one, write its row into the module it is nearest to, or a module of its own, listed here.
"""

from __future__ import annotations

from collections.abc import Callable

from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families import (
    adapters,
    blocks,
    codec,
    deepseek4,
    delta_nets,
    dense,
    drafts,
    encoders,
    experts,
    gated,
    indexed,
    kimi,
    latent,
    lightning,
    mamba,
    mixtures,
    mtp,
    per_layer,
    plamo2,
    rwkv,
    short_conv,
    singles,
    t5,
    variants,
    windowed,
)

Build = Callable[[Builder], None]

BUILDERS: dict[str, Build] = {
    **dense.ROWS,
    **windowed.ROWS,
    **experts.ROWS,
    **variants.ROWS,
    **per_layer.ROWS,
    **latent.ROWS,
    **delta_nets.ROWS,
    **encoders.ROWS,
    **t5.ROWS,
    **gated.ROWS,
    **mixtures.ROWS,
    **singles.ROWS,
    **adapters.ROWS,
    **codec.ROWS,
    **indexed.ROWS,
    **mamba.ROWS,
    **drafts.ROWS,
    **blocks.ROWS,
    **short_conv.ROWS,
    **rwkv.ROWS,
    **lightning.ROWS,
    **plamo2.ROWS,
    **deepseek4.ROWS,
    **kimi.ROWS,
}
"""Architecture -> its graph."""

DRAFTS: dict[str, Build] = {**BUILDERS, **mtp.ROWS}
"""Architecture -> the graph of a draft context: of its MTP layers, or the whole model's again."""

UNPROVEN = frozenset(
    {
        "chameleon",
        "codeshell",
        "gemma",
        "gemma-embedding",
        "grovemoe",
        "jina-bert-v2",
        "nanbeige",
        "openelm",
        "paddleocr",
        "qwen3vl",
        "talkie",
    }
)
"""Architectures whose graph is made from llama.cpp's source alone: no recorded one proves it."""
