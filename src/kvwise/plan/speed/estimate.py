"""The speed of one launch: ranges, what bounds them, and what they stand on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvwise.device import Host
from kvwise.memory.ledger import Ledger
from kvwise.memory.placement import HOST
from kvwise.plan.speed import roofline
from kvwise.plan.speed.measured import Measured, corrected_decode, corrected_prompt
from kvwise.plan.speed.penalties import Penalty, has_quantized_cache, penalties
from kvwise.plan.speed.rates import Rates, of_device, of_host
from kvwise.plan.speed.roofline import Range
from kvwise.plan.speed.work import Work, switches, work
from kvwise.text import Phrase, phrase

ROOFLINE, CORRECTED, MEASURED, UNKNOWN = "roofline", "corrected", "measured", "unknown"


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second of one request, with `depth` tokens in its slot.

    `decode` at that depth, `prompt` for a prompt of that length; None = not known. `basis` is
    `roofline` (from bytes, bandwidths and arithmetic), `corrected` (by results of this machine on
    other settings), `measured` (this setting was), or `unknown`. `parts` say what each device
    does, `seconds_...` the share of each in a generated token at the fast end.
    """

    decode: Range | None = None
    prompt: Range | None = None
    basis: str = UNKNOWN
    prompt_basis: str = UNKNOWN
    depth: int = 0
    parts: tuple[Work, ...] = ()
    penalties: tuple[Penalty, ...] = ()
    bound_by: Phrase | None = None
    stands_on: tuple[Phrase, ...] = ()

    @property
    def decode_tokens_per_s(self) -> float | None:
        """What to compare by; None = not known."""
        return round(self.decode.middle, 1) if self.decode else None

    @property
    def prompt_tokens_per_s(self) -> float | None:
        """What to compare by; None = not known."""
        return round(self.prompt.middle, 1) if self.prompt else None

    @property
    def read_bytes_gpu(self) -> int:
        """Bytes that a generated token reads from the GPUs' memory."""
        return sum(each.read_bytes for each in self.parts if each.device != HOST)

    @property
    def read_bytes_host(self) -> int:
        """Bytes that a generated token reads from the host's memory."""
        return sum(each.read_bytes for each in self.parts if each.device == HOST)


def estimate(
    ledger: Ledger, depth: int, *, host: Host | None = None, results: Sequence[Measured] = ()
) -> Speed:
    """The speed of a launch with `depth` tokens in one slot's context.

    `host` is the machine's memory and cores, `results` what was measured on it.
    """
    speed = _worked_out(ledger, depth, host, unpacks=has_quantized_cache(ledger))
    return _corrected(speed, ledger, host, results) if results else speed


def _worked_out(ledger: Ledger, depth: int, host: Host | None, *, unpacks: bool) -> Speed:
    """The roofline's; `unpacks`: with what a quantized cache costs to unpack."""
    parts = work(ledger, depth)
    rates = {number: of_device(ledger.devices[number]) for number in range(ledger.placement.n_gpu)}
    slow = penalties(ledger, unpacks=unpacks)
    rates[HOST] = of_host(host, quantized_cache=unpacks)
    decode = None
    if ledger.model.causal_attn:
        decode = roofline.decode(parts, rates, switches(ledger))
    middle = work(ledger, max(1, depth // 2))
    prompt = roofline.prompt(middle, rates, ledger, max(1, depth))
    decode = _slowed(decode, [each.decode for each in slow])
    prompt = _slowed(prompt, [each.prompt for each in slow])
    return Speed(
        decode=decode,
        prompt=prompt,
        basis=ROOFLINE if decode else UNKNOWN,
        prompt_basis=ROOFLINE if prompt else UNKNOWN,
        depth=depth,
        parts=parts,
        penalties=slow,
        bound_by=_bound(ledger, parts, rates) if decode else None,
        stands_on=tuple(_stands_on(ledger, parts, rates)),
    )


def _slowed(found: Range | None, by: Sequence[tuple[float, float]]) -> Range | None:
    for low, high in by:
        found = Range(found.low * low, found.high * high) if found else None
    return found


def _corrected(
    speed: Speed, ledger: Ledger, host: Host | None, results: Sequence[Measured]
) -> Speed:
    here = Measured.of(ledger, speed.depth)
    # what unpacking leaves, for results of launches that need not, or of those that must
    other = [_worked_out(ledger, speed.depth, host, unpacks=unpacks) for unpacks in (True, False)]
    if speed.decode:
        unpacking = _left(other[0].decode, other[1].decode)
        better = corrected_decode(speed.decode, here, results, unpacking)
        if better:
            basis = MEASURED if better.same else CORRECTED
            speed = replace(speed, decode=better.range, basis=basis)
    if speed.prompt:
        unpacking = _left(other[0].prompt, other[1].prompt)
        better = corrected_prompt(speed.prompt, here, results, unpacking)
        if better:
            basis = MEASURED if better.same else CORRECTED
            speed = replace(speed, prompt=better.range, prompt_basis=basis)
    return speed


def _left(of: Range | None, whole: Range | None) -> Range | None:
    """Shares at both ends, the lesser first, never more than all."""
    if of is None or whole is None:
        return None
    ends = sorted((min(1.0, of.low / whole.low), min(1.0, of.high / whole.high)))
    return Range(*ends)


def _bound(ledger: Ledger, parts: Sequence[Work], rates: dict[int, Rates]) -> Phrase | None:
    """Which device takes most of a generated token's time, and what of it."""
    times = [
        (roofline.decode_seconds(each, rates[each.device].fast), each)
        for each in parts
        if each.read_bytes
    ]
    whole = sum(seconds for seconds, _ in times)
    if not whole:
        return None
    seconds, most = max(times, key=lambda each: each[0])
    share = round(100 * seconds / whole)
    if most.device != HOST:
        name = ledger.devices[most.device].name
        return phrase("the memory of {name} takes {share} % of the time", name=name, share=share)
    return phrase("the host takes {share} % of the time", share=share)


def _stands_on(ledger: Ledger, parts: Sequence[Work], rates: dict[int, Rates]) -> list[Phrase]:
    found = []
    for each in parts:
        if not each.read_bytes:
            continue
        own = rates[each.device]
        name = phrase("host") if each.device == HOST else ledger.devices[each.device].name
        if not own.knows_memory:
            found.append(phrase("{name}: what its memory reads per second is not known", name=name))
            continue
        found.append(
            phrase(
                "{name}: memory {memory}, arithmetic {arithmetic}; shares of them from {rows}",
                name=name, memory=own.memory_basis, arithmetic=own.arithmetic_basis,
                rows=own.factors,
            )
        )  # fmt: skip
    return found
