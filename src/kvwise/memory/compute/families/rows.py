"""Turns options of the plain decoder into a builder function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.pieces.decoder import Attention, Decoder, build
from kvwise.memory.compute.pieces.moe import Moe, gating_of

Build = Callable[[Builder], None]


def plain(attn: Attention | None = None, **options: object) -> Build:
    """A plain decoder; `options` are those of `Decoder`."""
    how = Decoder(attn=attn or Attention(), **options)  # type: ignore[arg-type]
    return partial(_build, how)


def _build(how: Decoder, b: Builder) -> None:
    build(b, how)


def weighted(**options: object) -> Callable[[Builder, int], Moe]:
    """Experts whose weights are scaled by the model's own factor.

    `norm`="given" and `gating`="given" take what the metadata says.
    """

    def of(b: Builder, il: int) -> Moe:  # noqa: ARG001
        model = b.model
        chosen = dict(options)
        if chosen.get("norm") == "given":
            chosen["norm"] = model.expert_weights_norm
        if chosen.get("gating") == "given":
            chosen["gating"] = gating_of(model)
        return Moe(scale=model.expert_weights_scale, **chosen)  # type: ignore[arg-type]

    return of
