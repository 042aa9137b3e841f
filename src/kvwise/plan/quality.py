"""How much a cache type costs in quality: classes, until a measurement on the model says more.

The order was measured (KL divergence against f16 at llama.cpp b10605, SmolLM2 135M and
Gemma 3 270M, 512-token chunks): q8_0 on either side stays at the noise of a changed batch size;
4 bits on V alone cost 3 times that, 5 bits on both 4 times, 4 bits on K 12 times. Public figures
agree on the order and differ widely in size between models (docs/quality.md lists them with
their sources, `FRAGILE` the models that lose most): the class is a floor to plan with,
`Grades.measured` takes what this machine found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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

PAIRS_WITHOUT_FLASH = (("f16", "f16"), ("q8_0", "f16"), ("q5_1", "f16"), ("q4_0", "f16"))
"""The same where flash attention is off: V cannot be quantized."""

_MOST_DIVERGENCE = (0.001, 0.01, 0.1)
"""Mean KL divergence from f16, in nats, up to which a pair is lossless, high, medium. The first is
the noise of another batch size; Llama 3 8B lies at 0.001 with q8_0 and at 0.01 to 0.02 with 4 bits
on V (ggml-org/llama.cpp#7412)."""

_LEAST_AGREEMENT = (0.98, 0.94, 0.82)
"""Share of tokens whose most likely successor stays the same, for the same classes: what goes with
such a divergence (SmolLM2 and Gemma 3 at b10605: 98.4 % at 0.0003, 93.2 % at 0.011, 86 % at 0.057,
80.8 % at 0.12). Stricter ones would let the share alone decide."""

_ROUNDING = 1e-9
"""1 - 0.99 is no 0.01 in binary."""


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


@dataclass(frozen=True, slots=True)
class Fidelity:
    """What a measurement found of a pair of cache types on one model, against f16.

    `divergence` is the mean KL divergence in nats, `agreement` the share of equal top tokens
    (0 to 1), None = not measured. `noise` and `noise_agreement` are the same of f16 against f16
    with another batch size: what the model's own rounding does. `broken` = its answers were empty
    or ran in circles where those of f16 did not.
    """

    type_k: str
    type_v: str
    divergence: float
    agreement: float | None = None
    noise: float = 0.0
    noise_agreement: float | None = None
    broken: bool = False

    @property
    def excess(self) -> float:
        """Divergence beyond the noise, in nats."""
        return max(0.0, self.divergence - self.noise)

    @property
    def changed(self) -> float | None:
        """Share of top tokens that change beyond the noise; None = not measured."""
        if self.agreement is None:
            return None
        noise = 0.0 if self.noise_agreement is None else 1 - self.noise_agreement
        return max(0.0, 1 - self.agreement - noise)


def class_of(found: Fidelity) -> str:
    """The class that a measurement earns: by the worse of its two figures, beyond the noise."""
    by_divergence = sum(found.excess > most for most in _MOST_DIVERGENCE)
    changed = found.changed or 0.0
    by_agreement = sum(changed > 1 - least + _ROUNDING for least in _LEAST_AGREEMENT)
    return CLASSES[-1 if found.broken else max(by_divergence, by_agreement)]


@dataclass(frozen=True, slots=True)
class Fragile:
    """Models of an architecture that lose far more than others: K in a type that is not among
    `spared` is class `low` there. `source` = who measured it."""

    spared: frozenset[str]
    source: str


FRAGILE = {
    "gpt-oss": Fragile(
        frozenset(_PLAIN),
        "TheTom/llama-cpp-turboquant#305: gpt-oss-20b with q8_0 for K and V keeps 74.9 % of the "
        "top tokens (median divergence 0.055); attention sinks make its K sensitive",
    ),
    "qwen2": Fragile(
        frozenset(_NEAR),
        "ggml-org/llama.cpp#21591: Qwen2.5-7B breaks with few bits for K; with q8_0 its "
        "perplexity rises by 0.0043 only (ollama/ollama#6279)",
    ),
}
"""Public measurements of single models, kept for their whole architecture until one says more."""


@dataclass(frozen=True, slots=True)
class Grades:
    """The class of each pair of cache types on one model: as measured, else by the sourced rules.

    `architecture` empty = any model.
    """

    known: Mapping[tuple[str, str], str] = field(default_factory=dict)
    architecture: str = ""

    @classmethod
    def measured(cls, results: Iterable[Fidelity], architecture: str = "") -> Grades:
        """Grades out of measurements of the model in question on this machine; the last counts."""
        known = {(each.type_k, each.type_v): class_of(each) for each in results}
        return cls(known, architecture)

    def of(self, type_k: str, type_v: str) -> str:
        """The class of a pair."""
        if (type_k, type_v) in self.known:
            return self.known[type_k, type_v]
        fragile = FRAGILE.get(self.architecture)
        if fragile and type_k not in fragile.spared:
            return CLASSES[-1]
        return quality_of(type_k, type_v)

    def basis(self, type_k: str, type_v: str) -> str:
        """`measured`, `model family` (others measured it) or `cache types` (the general rule)."""
        if (type_k, type_v) in self.known:
            return "measured"
        fragile = FRAGILE.get(self.architecture)
        return "model family" if fragile and type_k not in fragile.spared else "cache types"

    def rank(self, pair: tuple[str, str]) -> int:
        """Smaller is better; among equals as `PAIRS` has them."""
        place = PAIRS.index(pair) if pair in PAIRS else len(PAIRS)
        return CLASSES.index(self.of(*pair)) * (len(PAIRS) + 1) + place


SOURCED = Grades()
