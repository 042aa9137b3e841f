"""Tokens per second from what a token costs and what devices can do: the roofline, both ends.

Generating: each device reads its weights and cache, one device after the other; beside the bytes
a layer costs a little time, and unpacking weights some arithmetic. Reading a prompt: each
micro-batch reads the weights once and is bound by arithmetic; what lies on the host is either
computed there or, where the device takes over large batches (op_offload), streamed over the bus,
whichever llama.cpp does. Several GPUs work one after the other, at best all at once (pipeline).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from kvwise.memory.backends import kind_of
from kvwise.memory.ledger import Ledger
from kvwise.memory.placement import HOST
from kvwise.plan.speed.factors import NARROW, SWITCH_S
from kvwise.plan.speed.rates import Rate, Rates
from kvwise.plan.speed.work import Work

_SLOW, _FAST = 0, 1


@dataclass(frozen=True, slots=True)
class Range:
    """Tokens per second, from what is slow to what is fast."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The geometric mean: what to compare by."""
        middle: float = (self.low * self.high) ** 0.5
        return middle

    def scaled(self, by: float) -> Range:
        return Range(self.low * by, self.high * by)


def decode(works: Sequence[Work], rates: Mapping[int, Rates], switches: int) -> Range | None:
    """Tokens generated per second for one request; None where a bandwidth is not known."""
    if not all(rates[each.device].knows_memory for each in works if each.read_bytes):
        return None
    ends = [
        sum(decode_seconds(each, _end(rates, each.device, end), bus) for each in works)
        + switches * SWITCH_S[end]
        for end, bus in ((_SLOW, _slowest_bus(rates, _SLOW)), (_FAST, _slowest_bus(rates, _FAST)))
    ]
    return Range(1 / ends[_SLOW], 1 / ends[_FAST]) if all(ends) else None


def decode_seconds(work: Work, rate: Rate, bus: float = 0) -> float:
    """Seconds of one device's part of one generated token.

    A processor reads and computes at the same time, and attention is work for it too.
    """
    if not work.read_bytes:
        return work.foreign_cache / bus if work.foreign_cache and bus else 0.0
    reads = work.read_bytes / rate.memory
    weights = (work.matrix_flops + work.output_flops) / 2
    unpacks = weights * rate.per_weight / rate.vector if rate.vector else 0.0
    if work.device == HOST:
        attends = work.attention_flops / rate.attention if rate.attention else 0.0
        seconds = max(reads, unpacks + attends)
    else:
        seconds = reads + unpacks
    seconds += work.layers * rate.layer_s
    return seconds + (work.foreign_cache / bus if work.foreign_cache and bus else 0.0)


def prompt(
    works: Sequence[Work], rates: Mapping[int, Rates], ledger: Ledger, tokens: int
) -> Range | None:
    """Prompt tokens read per second, for a prompt of `tokens` of which `works` has the middle.

    None where the arithmetic of a device that takes part is not known.
    """
    batch = max(1, min(ledger.context.n_ubatch, tokens))
    offloads = _offloads(ledger, batch)
    if not all(
        rates[each.device].knows_arithmetic
        for each in works
        if each.matrix_flops and not (offloads and each.device == HOST)
    ):
        return None
    if (
        any(each.attention_flops for each in works if each.device == HOST)
        and not rates[HOST].knows_arithmetic
    ):
        return None
    found = [
        _prompt_seconds(works, rates, ledger, batch, end, offloads=offloads)
        for end in (_SLOW, _FAST)
    ]
    if not all(found):
        return None
    batches = max(1, -(-tokens // batch))
    together = 1
    if ledger.placement.pipeline_parallel:  # at best every GPU works on a micro-batch of its own
        together = min(ledger.placement.n_gpu, batches)
    return Range(batch / found[_SLOW], batch * together / found[_FAST])


def _prompt_seconds(
    works: Sequence[Work],
    rates: Mapping[int, Rates],
    ledger: Ledger,
    batch: int,
    end: int,
    *,
    offloads: bool,
) -> float:
    """Seconds of one micro-batch at one end."""
    seconds = partial(batch_seconds, ledger=ledger, batch=batch)
    total = 0.0
    for each in works:
        own = _end(rates, each.device, end)
        if each.device != HOST or not offloads:
            total += seconds(each, own)
            continue
        first = _end(rates, 0, end)
        streamed = used_weights(each, ledger, batch) / first.bus
        attention = each.attention_flops * batch / own.attention if each.attention_flops else 0.0
        total += streamed + seconds(each, first, streamed=True) + attention
    return total


def batch_seconds(
    work: Work, rate: Rate, *, ledger: Ledger, batch: int, streamed: bool = False
) -> float:
    """Seconds of one device's part of one micro-batch of a prompt.

    `streamed`: a GPU computes with the host's weights; the host's attention stays where it is.
    """
    if not rate.matrix:
        return 0.0
    model = ledger.model
    width = max(1, model.n_embd)
    narrow = 0 if work.device == HOST and not streamed else NARROW
    matrix = rate.matrix * width / (width + narrow)
    plain = work.matrix_flops - work.expert_flops
    seconds = plain * (batch + rate.half_batch) / matrix
    if work.expert_flops:  # an expert sees its share of the tokens only
        seen = batch * model.n_expert_used / model.n_expert
        seconds += work.expert_flops * batch * (1 + rate.half_batch / seen) / matrix
    read = used_weights(work, ledger, batch) / rate.memory if rate.memory else 0.0
    seconds = max(seconds, read) + work.layers * rate.layer_s
    if work.attention_flops and not streamed:
        seconds += work.attention_flops * batch / rate.attention
    return seconds


def used_weights(work: Work, ledger: Ledger, batch: int) -> float:
    """Bytes of weights that a micro-batch reads: experts as if tokens chose them evenly."""
    model = ledger.model
    if not work.expert_bytes or not model.n_expert:
        return work.all_weights
    missed: float = (1 - model.n_expert_used / model.n_expert) ** batch
    return work.all_weights - work.expert_bytes * missed


def _offloads(ledger: Ledger, batch: int) -> bool:
    """Whether a GPU computes with the host's weights for a micro-batch of this size."""
    if not ledger.placement.n_gpu or not ledger.context.op_offload:
        return False
    least = kind_of(ledger.devices[0]).op_offload_batch
    return bool(least) and batch >= least


def _end(rates: Mapping[int, Rates], device: int, end: int) -> Rate:
    both = rates[device]
    return both.fast if end == _FAST else both.slow


def _slowest_bus(rates: Mapping[int, Rates], end: int) -> float:
    found = [_end(rates, device, end).bus for device in rates if device != HOST]
    return min((each for each in found if each), default=0.0)
