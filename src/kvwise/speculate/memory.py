"""What the model and its draft take together: computed, simulated by the engine, measured.

The engine prints the draft's buffers after the line that says it loads one, in the same words as
the target's; `Loaded` keeps them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvwise.device import Device, Host
from kvwise.errors import DoesNotFit
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Extra, Ledger, Line, Part
from kvwise.memory.parts.companions import Companions
from kvwise.speculate.attempt import Measured
from kvwise.units import MIB, mib

_DRAFTS = frozenset({"draft", "mtp"})
PARTS = ("weights", "context", "compute", "output")


@dataclass(frozen=True, slots=True)
class Sum:
    """Bytes of the model alone, of what drafts for it, and what speculation adds to the model's
    own output. None = that basis does not tell."""

    model: int
    draft: int
    speculation: int | None

    @property
    def total(self) -> int:
        return self.model + self.draft + (self.speculation or 0)


@dataclass(frozen=True, slots=True)
class Row:
    """One buffer: whose it is (model, draft), which part, computed and measured bytes."""

    whose: str
    part: str
    buffer: str
    computed: int | None
    measured: int | None

    @property
    def agrees(self) -> bool:
        """Would the computed figure print as the engine's did? It prints hundredths of a MiB."""
        if self.computed is None or self.measured is None:
            return not (self.computed or self.measured)
        return abs(self.computed - self.measured) <= MIB // 200 + 1


def ledger_of(
    model: Model,
    draft: Model | None,
    launch: Launch,
    *,
    devices: Sequence[Device],
    host: Host | None,
    features: tuple[str, ...] | None = None,
) -> Ledger:
    """The ledger of one way of speculating; `features` are those that the engine was seen to be
    compiled for (they decide which weights it repacks). Raises what `account` raises."""
    if features is not None and host is not None:
        host = replace(host, cpu_features=features)
        launch = replace(launch, repack=launch.repack and bool(features))
    mine = draft if launch.model_draft else None
    return account(model, launch, devices, host=host, companions=Companions(draft=mine))


def sum_of(ledger: Ledger) -> Sum:
    """A ledger's bytes, what may come with use left out."""
    surely = [extra for extra in ledger.extras if not extra.up_to]
    draft = sum(extra.total_bytes for extra in surely if extra.of in _DRAFTS)
    more = sum(extra.total_bytes for extra in surely if extra.of == "speculation")
    everything = sum(line.total_bytes for line in ledger.lines)
    others = sum(extra.total_bytes for extra in surely) - draft - more
    return Sum(everything - draft - more - others, draft, more)


def measured_sum(unit: Measured) -> Sum | None:
    """What the engine printed at the start; the output grows later and is not printed again."""
    if not unit.memory:
        return None
    sizes = {"model": 0, "draft": 0}
    for whose, _, _, size in unit.memory:
        sizes[whose] += size
    return Sum(sizes["model"], sizes["draft"], None)


def rows(ledger: Ledger, unit: Measured) -> tuple[Row, ...]:
    """Every buffer of both, computed beside measured."""
    computed: dict[tuple[str, str, str], int] = {}
    for line in ledger.lines:
        for whose, piece in _pieces(line):
            for part in PARTS:
                size = getattr(piece, f"{part}_bytes")
                if size:
                    key = (whose, part, piece.buffer)
                    computed[key] = computed.get(key, 0) + size
    measured: dict[tuple[str, str, str], int] = {}
    for whose, part, buffer, size in unit.memory:
        measured[whose, part, buffer] = measured.get((whose, part, buffer), 0) + size
    keys = sorted({*computed, *measured}, key=lambda key: (key[0] != "model", PARTS.index(key[1])))
    return tuple(Row(*key, computed.get(key), measured.get(key)) for key in keys)


def _pieces(line: Line) -> Iterator[tuple[str, Part | Extra]]:
    yield from (("model", part) for part in line.parts)
    yield from (("draft", extra) for extra in line.extras if extra.of in _DRAFTS)


def check_fits(ledger: Ledger, host: Host | None) -> None:
    """Raises DoesNotFit when a device or the host would run out: the engine dies of the first and
    is killed for the second without a word."""
    both = sum_of(ledger)
    for line in ledger.lines:
        if line.misses_bytes and not line.host:
            raise DoesNotFit(
                "model and draft together miss {missing} on {device}",
                missing=mib(line.misses_bytes), device=line.device,
                hint="take a smaller context (-c), a smaller draft, or leave it on the processor "
                "(-ngld 0)",
            )  # fmt: skip
    available = host.available_bytes if host else 0
    needed = ledger.host.unmapped_bytes
    if available and needed > available:
        raise DoesNotFit(
            "model and draft together need {needed} of the host's memory and {available} are "
            "available",
            needed=mib(needed), available=mib(available), both=mib(both.total),
            hint="take a smaller context (-c)",
        )  # fmt: skip
