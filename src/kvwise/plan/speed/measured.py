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

_SPREAD = 0.05  # a run differs from the next by so much on a quiet machine
_SAME = 0.05  # bytes per token this close are the same setting


@dataclass(frozen=True, slots=True)
class Measured:
    """One result. `devices` are their names in order, empty = the processor alone.

    `read_bytes` and `flops` are per token at `depth` (see `of`); None = that speed was not
    measured. `same_build` false = another build of the engine was measured, which corrects an
    estimate but is no measurement of this one.
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
    estimate: Range, here: Measured, results: Sequence[Measured]
) -> Corrected | None:
    """The range of generating as the results on the same devices have it; None without any.

    `here` is the setting asked about, without speeds.
    """
    alike = [each for each in _alike(here, results) if each.decode_tokens_per_s]
    if not alike:
        return None
    rates = [each.read_bytes * (each.decode_tokens_per_s or 0) for each in alike]
    return _within(estimate, rates, here.read_bytes, _same(here, alike))


def corrected_prompt(
    estimate: Range, here: Measured, results: Sequence[Measured]
) -> Corrected | None:
    """The same for reading a prompt."""
    alike = [
        each
        for each in _alike(here, results)
        if each.prompt_tokens_per_s and each.n_ubatch == here.n_ubatch
    ]
    if not alike:
        return None
    rates = [each.flops * (each.prompt_tokens_per_s or 0) for each in alike]
    return _within(estimate, rates, here.flops, _same(here, alike))


def _alike(here: Measured, results: Sequence[Measured]) -> list[Measured]:
    """Results on the same devices with a like share on the host; with the same cache types where
    there are such."""
    found = [
        each
        for each in results
        if each.devices == here.devices and bool(each.host_bytes) == bool(here.host_bytes)
    ]
    types = [each for each in found if (each.type_k, each.type_v) == (here.type_k, here.type_v)]
    return types or found


def _same(here: Measured, alike: Sequence[Measured]) -> bool:
    return any(
        each.same_build
        and abs(each.read_bytes - here.read_bytes) <= _SAME * here.read_bytes
        and abs(each.flops - here.flops) <= _SAME * here.flops
        for each in alike
    )


def _within(estimate: Range, rates: Sequence[float], per_token: int, same: bool) -> Corrected:
    """From the least to the greatest rate that was reached, never wider than the estimate was."""
    low = min(rates) / per_token * (1 - _SPREAD)
    high = max(rates) / per_token * (1 + _SPREAD)
    if not same:  # other sizes reach other shares: keep to what is possible at all
        low, high = min(low, estimate.high), min(high, estimate.high)
    return Corrected(Range(low, high), len(rates), same)
