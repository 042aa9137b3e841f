"""Speeds measured on this machine, and how they correct what was worked out.

Whoever measures (a benchmark run) keeps one `Measured` per result. Bytes and operations per token
stand in it, so a result corrects other models and settings on the same devices too: what counts is
the rate that the devices reached, not the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvwise.memory.ledger import Ledger
from kvwise.plan.speed.roofline import Range
from kvwise.plan.speed.work import work

FLOATS = frozenset({"f32", "f16", "bf16"})
_SPREAD = 0.05  # a run differs from the next by so much on a quiet machine
_SAME = 0.05  # bytes per token this close are the same setting


@dataclass(frozen=True, slots=True)
class Measured:
    """One result. `devices` are their names in order, empty = the processor alone.

    `read_bytes` and `flops` are per token at `depth` (see `of`); None = that speed was not
    measured. `spread` is the share of it by which its samples lay apart. `same_build` false =
    another build of the engine was measured, which corrects an estimate but is no measurement of
    this one.
    """

    devices: tuple[str, ...]
    read_bytes: int
    host_bytes: int
    flops: int
    depth: int
    type_k: str
    type_v: str
    n_ubatch: int
    decode_tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    same_build: bool = True
    spread: float = 0.0

    @property
    def unpacks(self) -> bool:
        """Whether attention reads blocks that must be unpacked."""
        return not {self.type_k, self.type_v} <= FLOATS

    @classmethod
    def of(
        cls,
        ledger: Ledger,
        depth: int,
        *,
        decode_tokens_per_s: float | None = None,
        prompt_tokens_per_s: float | None = None,
    ) -> Measured:
        """The result of running a launch with `depth` tokens in the context."""
        parts = work(ledger, depth)
        return cls(
            devices=tuple(device.name for device in ledger.devices),
            read_bytes=sum(each.read_bytes for each in parts),
            host_bytes=parts[-1].read_bytes,
            flops=sum(each.matrix_flops + each.attention_flops for each in parts),
            depth=depth,
            type_k=ledger.context.type_k,
            type_v=ledger.context.type_v,
            n_ubatch=ledger.context.n_ubatch,
            decode_tokens_per_s=decode_tokens_per_s,
            prompt_tokens_per_s=prompt_tokens_per_s,
        )


@dataclass(frozen=True, slots=True)
class Corrected:
    """A range after correction: how many results stand behind it, and whether it is that very
    setting that was measured."""

    range: Range
    results: int
    same: bool


def corrected_decode(
    estimate: Range, here: Measured, results: Sequence[Measured], unpacking: Range | None = None
) -> Corrected | None:
    """The range of generating as the results on the same devices have it; None without any.

    `here` is the setting asked about, without speeds. `unpacking`: what is left of the speed where
    attention must unpack its cache, as it was worked out; None = all of it.
    """
    alike = [each for each in _alike(here, results) if each.decode_tokens_per_s]
    found = [
        _scaled(each, here, each.decode_tokens_per_s or 0, each.read_bytes / here.read_bytes)
        for each in alike
    ]
    return _within(estimate, found, here, alike, unpacking)


def corrected_prompt(
    estimate: Range, here: Measured, results: Sequence[Measured], unpacking: Range | None = None
) -> Corrected | None:
    """The same for reading a prompt."""
    alike = [
        each
        for each in _alike(here, results)
        if each.prompt_tokens_per_s and each.n_ubatch == here.n_ubatch
    ]
    found = [
        _scaled(each, here, each.prompt_tokens_per_s or 0, each.flops / here.flops)
        for each in alike
    ]
    return _within(estimate, found, here, alike, unpacking)


def _alike(here: Measured, results: Sequence[Measured]) -> list[Measured]:
    """Results on the same devices with a like share on the host; with the same cache types where
    there are such, else with a cache that must be unpacked as well, or as little."""
    found = [
        each
        for each in results
        if each.devices == here.devices and bool(each.host_bytes) == bool(here.host_bytes)
    ]
    types = [each for each in found if _types(each) == _types(here)]
    return types or [each for each in found if each.unpacks == here.unpacks] or found


def _types(found: Measured) -> tuple[str, str]:
    return found.type_k, found.type_v


def _scaled(found: Measured, here: Measured, speed: float, by: float) -> Range:
    """A speed as it would be here. A smaller cache takes fewer bytes, yet no less arithmetic: with
    other types it gains between nothing and all that its bytes promise."""
    ends = (by, found.flops / here.flops if here.flops else by)
    if _types(found) == _types(here):
        ends = (by, by)
    around = max(_SPREAD, found.spread)
    return Range(speed * min(ends) * max(0.0, 1 - around), speed * max(ends) * (1 + around))


def _same(here: Measured, alike: Sequence[Measured]) -> bool:
    return any(
        each.same_build
        and _types(each) == _types(here)
        and abs(each.read_bytes - here.read_bytes) <= _SAME * here.read_bytes
        and abs(each.flops - here.flops) <= _SAME * here.flops
        for each in alike
    )


def _within(
    estimate: Range,
    found: Sequence[Range],
    here: Measured,
    alike: Sequence[Measured],
    unpacking: Range | None,
) -> Corrected | None:
    """From the least to the greatest that the results make of it, never above what is possible."""
    if not found:
        return None
    low, high = min(each.low for each in found), max(each.high for each in found)
    if unpacking and alike[0].unpacks != here.unpacks:
        left = unpacking if here.unpacks else Range(1 / unpacking.high, 1 / unpacking.low)
        low, high = low * left.low, high * left.high
    same = _same(here, alike)
    if not same:  # other sizes reach other shares: keep to what is possible at all
        low, high = min(low, estimate.high), min(high, estimate.high)
    return Corrected(Range(low, high), len(found), same)
