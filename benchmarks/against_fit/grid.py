"""The cases: models of the zoo, cards of 2 to 80 GiB, alone and in pairs, two sets of rules."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.gguf.header import Header
from kvwise.gguf.open import open_header
from kvwise.units import GIB, MIB

ZOO = Path(__file__).resolve().parents[2] / "tests" / "zoo"
ONE = ((2,), (4,), (6,), (8,), (10,), (12,), (16,), (24,), (32,), (48,), (80,))
TWO = ((4, 4), (8, 8), (12, 12), (24, 24), (12, 6), (6, 12), (24, 8), (48, 24))
SAMPLE = ((4,), (8,), (12,), (24,), (8, 8), (12, 6))
KINDS = ("generic", "cuda")


@dataclass(frozen=True, slots=True)
class Case:
    """One question: a model of the zoo, cards in GiB, their rules, and bytes to keep free."""

    model: str
    cards: tuple[int, ...]
    kind: str
    margin: int = 256 * MIB

    def __post_init__(self) -> None:
        object.__setattr__(self, "cards", tuple(self.cards))  # a list when it comes out of JSON

    @property
    def devices(self) -> tuple[Device, ...]:
        """The cards: all of each is free, and no driver takes anything beside the buffers."""
        return tuple(
            Device(
                f"{size} GiB",
                self.kind,
                size * GIB,
                size * GIB,
                index=number,
                reserve_bytes=self.margin,
                overhead_bytes=0,
            )
            for number, size in enumerate(self.cards)
        )

    @property
    def name(self) -> str:
        cards = "+".join(map(str, self.cards))
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
    `tiny`: the others on two sets. In an order that makes any first part a fair sample."""
    models = generating(tiny=which == "tiny")
    cards: tuple[tuple[int, ...], ...] = ONE + TWO
    if which == "tiny":
        models, cards = [name for name in models if name.startswith("tiny-")], ((2,), (4, 4))
    dice = random.Random("against fit")
    if which == "sample":
        models, cards = dice.sample(models, min(60, len(models))), SAMPLE
    found = [Case(model, each, kind) for model in models for each in cards for kind in KINDS]
    dice.shuffle(found)
    yield from found
