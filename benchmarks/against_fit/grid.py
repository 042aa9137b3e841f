"""The cases: models of the zoo, cards of 2 to 80 GiB, alone and in pairs, two sets of rules."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.errors import Refused
from kvwise.gguf.header import Header
from kvwise.gguf.open import open_header
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.units import GIB, MIB

ZOO = Path(__file__).resolve().parents[2] / "tests" / "zoo"
ONE: tuple[tuple[float, ...], ...] = (
    (2,),
    (4,),
    (6,),
    (8,),
    (10,),
    (12,),
    (16,),
    (24,),
    (32,),
    (48,),
    (80,),
)
TWO: tuple[tuple[float, ...], ...] = (
    (4, 4),
    (8, 8),
    (12, 12),
    (24, 24),
    (12, 6),
    (6, 12),
    (24, 8),
    (48, 24),
)
SAMPLE = ((4,), (8,), (12,), (24,), (8, 8), (12, 6))
SCARCE = ((0.4,), (0.7,), (0.5, 0.3))
"""Shares of what a small model needs."""
KINDS = ("generic", "cuda")


@dataclass(frozen=True, slots=True)
class Case:
    """One question: a model of the zoo, cards in GiB, their rules, and bytes to keep free."""

    model: str
    cards: tuple[float, ...]
    kind: str
    margin: int = 256 * MIB

    def __post_init__(self) -> None:
        object.__setattr__(self, "cards", tuple(self.cards))  # a list when it comes out of JSON

    @property
    def devices(self) -> tuple[Device, ...]:
        """The cards: all of each is free, and no driver takes anything beside the buffers."""
        return tuple(
            Device(
                f"{size:g} GiB",
                self.kind,
                round(size * GIB),
                round(size * GIB),
                index=number,
                reserve_bytes=self.margin,
                overhead_bytes=0,
            )
            for number, size in enumerate(self.cards)
        )

    @property
    def name(self) -> str:
        cards = "+".join(f"{size:g}" for size in self.cards)
        return f"{self.model}, {cards} GiB, {self.kind}, margin {self.margin // MIB} MiB"


def header_of(name: str) -> Header:
    return open_header(str(ZOO / "models" / f"{name}.json.gz"))


def generating(*, tiny: bool) -> list[str]:
    """Models that generate; the `tiny` ones have an architecture's shape and no size."""
    names = sorted(path.name.removesuffix(".json.gz") for path in (ZOO / "models").glob("*.gz"))
    wanted = [name for name in names if tiny or not name.startswith("tiny-")]
    return [name for name in wanted if describe(header_of(name)).causal_attn]


def cases(which: str) -> Iterator[Case]:
    """`sample`: 60 models and 6 sets of cards; `full`: every model of a real size, every set;
    `tiny`: one small model of every architecture on cards smaller than its need.

    In an order that makes any first part a fair sample.
    """
    models, dice = generating(tiny=which == "tiny"), random.Random("against fit")
    if which == "tiny":
        models = [name for name in models if name.startswith("tiny-")]
        found = [case for model in models for case in _scarce(model)]
    else:
        cards: tuple[tuple[float, ...], ...] = ONE + TWO
        if which == "sample":
            models, cards = dice.sample(models, min(60, len(models))), SAMPLE
        found = [Case(model, each, kind) for model in models for each in cards for kind in KINDS]
    dice.shuffle(found)
    yield from found


def _scarce(name: str) -> Iterator[Case]:
    """Cards that hold a part of what the model takes at its full context, in whole MiB."""
    model, vast = describe(header_of(name)), Device("vast", "generic", 1 << 40, 1 << 40)
    try:
        need = account(model, Launch(n_seq_max=1), [vast]).lines[0].total_bytes
    except Refused:
        return
    for shares in SCARCE:
        cards = tuple(max(1, round(share * need / MIB)) * MIB / GIB for share in shares)
        for kind in KINDS:
            yield Case(name, cards, kind, 2 * MIB)
