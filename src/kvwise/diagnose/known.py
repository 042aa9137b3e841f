"""Builds of llama.cpp with known bugs that look like something else. Each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.text import Phrase, phrase, template


@dataclass(frozen=True, slots=True)
class BadBuild:
    """Builds `first` to `last` (inclusive), what is wrong, and with which caches it shows."""

    first: int
    last: int
    kind: str
    sentence: str
    good_builds: str
    source: str
    quantized_only: bool = False

    @property
    def what(self) -> Phrase:
        return phrase(self.sentence)

    @property
    def good(self) -> Phrase:
        return phrase(self.good_builds)

    def applies(self, type_k: str | None, type_v: str | None) -> bool:
        """Does it show with these cache types (None = f16, the default)?"""
        quantized = any((each or "f16").startswith(("q", "iq")) for each in (type_k, type_v))
        return quantized or not self.quantized_only


BAD_BUILDS: tuple[BadBuild, ...] = (
    BadBuild(
        9310, 9333, "kernel-bug-garbage",
        template("CUDA flash attention with a quantized cache writes nonsense"),
        template("b9174 and later fixes are good"),
        "ggml-org/llama.cpp#23693, #23717, #23689", quantized_only=True,
    ),
    BadBuild(
        9410, 9426, "fit-gap-mtp",
        template("the MTP draft reserves its compute buffer only at the first request"),
        template("b9246 is good"), "ggml-org/llama.cpp#23903",
    ),
    BadBuild(
        8248, 8352, "fit-after-leak",
        template("router mode holds memory of every GPU itself"),
        template("builds before b8248 are good"), "ggml-org/llama.cpp#20582",
    ),
)  # fmt: skip


def bad_build(number: int) -> BadBuild | None:
    """The entry of a build, if it has one."""
    return next((bad for bad in BAD_BUILDS if bad.first <= number <= bad.last), None)
