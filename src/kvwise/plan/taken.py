"""What a launch takes at any context: one curve for all machines that answer alike.

Where a machine has one GPU, only the GPU's kind decides what goes where, so a curve serves every
such card, and what differs is only what each has free. With several GPUs, the shares follow their
free memory, and machines are alike only if these are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvwise.device import Device, Host
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory import flash
from kvwise.memory.account import account
from kvwise.memory.backends import BackendKind, kind_of
from kvwise.memory.ledger import Ledger
from kvwise.memory.overhead import overhead
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.memory.placement import HOST
from kvwise.options import change
from kvwise.plan.candidate import CELLS
from kvwise.plan.edge import edge
from kvwise.plan.offload import is_host

_STEPS_BEYOND = 2  # a longer context can need less: look so many blocks past the edge (search.py)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine to account for; `host` None means that its memory is no limit."""

    devices: tuple[Device, ...]
    host: Host | None = None

    @property
    def name(self) -> str:
        """Names of the GPUs, empty for the processor alone."""
        return " + ".join(device.name for device in self.devices)

    @property
    def total_bytes(self) -> int:
        """GPU memory there is; the host's where there is no GPU."""
        if self.devices:
            return sum(device.total_bytes for device in self.devices)
        return self.host.total_bytes if self.host else 0

    @property
    def usable_bytes(self) -> int:
        """What an engine may fill of it: reserve and driver set aside."""
        if self.devices:
            return sum(
                each.free_bytes - (each.reserve_bytes or 0) - overhead(each)[0]
                for each in self.devices
            )
        return self.host.usable_bytes if self.host else 0


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes of one launch at one context. `gpu` is per device in use, without what its driver
    takes, `block` the largest single allocation there, `unplaced` what finds no piece of a card
    whose memory lies in pieces, `places` their numbers in the machine;
    `beside` is what of it a draft, projector or adapter takes (on the host where there are none);
    `cache` lies on the GPUs (on the host where there are none), `cache_host` on the host although
    there are GPUs. A `bare` one leaves out the compute buffers."""

    n_ctx: int
    n_ctx_seq: int
    places: tuple[int, ...]
    gpu: tuple[int, ...]
    block: tuple[int, ...]
    unplaced: tuple[int, ...]
    host: int
    cache: int
    cache_host: int
    beside: int
    all_layers: bool
    no_attention: bool
    verified: bool
    bare: bool


@dataclass(slots=True)
class Curve:
    """A model's launch over the context, on machines that are alike."""

    model: Model
    launch: Launch
    machine: Machine
    companions: Companions = NONE
    asked: int = 0  # ledgers made
    _whole: dict[int, Taken | Refused] = field(default_factory=dict)
    _bare: dict[int, Taken | Refused] = field(default_factory=dict)
    _no_attention: bool | None = None

    def at(self, n_ctx: int) -> Taken | Refused:
        """What it takes with `-c n_ctx`, or why llama.cpp refuses it."""
        found = self._whole.get(n_ctx)
        if found is None:
            found = self._whole[n_ctx] = self._ask(n_ctx, bare=False)
        return found

    def bare(self, n_ctx: int) -> Taken | Refused:
        """The same without compute buffers, which take a graph: what misses so misses anyway."""
        found = self._whole.get(n_ctx) or self._bare.get(n_ctx)
        if found is None:
            found = self._bare[n_ctx] = self._ask(n_ctx, bare=True)
        return found

    def around(self, machine: Machine, low: int, high: int) -> tuple[int, int]:
        """The last known context from `low` to `high` that fits, and the next known that does
        not; `low` fits and `high` does not."""
        good, bad = low, high
        for n_ctx in sorted(known for known in self._whole if low < known < high):
            if fits(self._whole[n_ctx], machine):
                good = n_ctx
            elif good < n_ctx:
                bad = n_ctx
                break
        return good, bad

    def _ask(self, n_ctx: int, *, bare: bool) -> Taken | Refused:
        self.asked += 1
        try:
            ledger = account(
                self.model,
                change(self.launch, n_ctx=n_ctx),
                self.machine.devices,
                host=self.machine.host,
                compute_mode="none" if bare else "reserved",
                companions=self.companions,
            )
        except Refused as refused:
            return refused
        if self._no_attention is None:  # cache types decide, not the context
            self._no_attention = _attention_leaves(ledger)
        return _taken(ledger, self.machine, bare=bare, no_attention=self._no_attention)

    @property
    def step(self) -> int:
        """Tokens of `-c` that give every slot one more block of cells."""
        return CELLS if self.launch.kv_unified else CELLS * max(1, self.launch.n_seq_max)


def _taken(ledger: Ledger, machine: Machine, *, bare: bool, no_attention: bool) -> Taken:
    gpus = [line for line in ledger.lines if not line.host]
    on_host = ledger.host.context_bytes
    return Taken(
        n_ctx=ledger.context.n_ctx,
        n_ctx_seq=ledger.context.n_ctx_seq,
        places=tuple(machine.devices.index(device) for device in ledger.devices),
        gpu=tuple(line.total_bytes - line.overhead_bytes for line in gpus),
        block=tuple(line.largest_block_bytes for line in gpus),
        unplaced=tuple(line.unplaced_bytes for line in gpus),
        host=ledger.host.total_bytes - ledger.host.overhead_bytes,
        cache=sum(line.context_bytes for line in gpus) if gpus else on_host,
        cache_host=on_host if gpus else 0,
        beside=sum(line.extra_bytes for line in gpus or (ledger.host,)),
        all_layers=bool(gpus) and _keeps_all(ledger),
        no_attention=no_attention,
        verified=ledger.verified,
        bare=bare,
    )


def _keeps_all(ledger: Ledger) -> bool:
    """Every layer, expert and cache is on the GPUs."""
    launch, placement = ledger.launch, ledger.placement
    moved = any(is_host(target) for _, target in launch.override_tensor)
    return (
        HOST not in (*placement.layers, placement.output)
        and launch.n_cpu_moe <= 0
        and launch.offload_kqv
        and not moved
    )


def _attention_leaves(ledger: Ledger) -> bool:
    """Flash attention is on, and a GPU lacks it for these cache types: the processor does it."""
    return flash.attention_leaves(ledger.model, ledger.context, ledger.placement, ledger.devices)


def alike(machine: Machine) -> tuple[object, ...]:
    """Equal for machines that take the same for any launch."""
    kinds: tuple[BackendKind, ...] = tuple(kind_of(device) for device in machine.devices)
    blocks = tuple((device.max_block_bytes, device.pieces) for device in machine.devices)
    host = machine.host and (machine.host.cpu_features, machine.host.available_bytes)
    own = machine.devices if len(machine.devices) > 1 else ()
    return kinds, blocks, own, host


def slack(taken: Taken | Refused, machine: Machine) -> int | None:
    """Bytes left on the tightest device, reserve and driver set aside; None where refused."""
    if isinstance(taken, Refused):
        return None
    left = []
    each = zip(taken.places, taken.gpu, taken.block, taken.unplaced, strict=True)
    for place, size, block, unplaced in each:
        device = machine.devices[place]
        kept = (device.reserve_bytes or 0) + overhead(device)[0]
        left.append(device.free_bytes - kept - size)
        if device.max_block_bytes is not None and block > device.max_block_bytes:
            left.append(device.max_block_bytes - block)
        if unplaced:
            left.append(-unplaced)
    if machine.host is not None:
        left.append(machine.host.usable_bytes - taken.host)
    return min(left, default=0)


def fits(taken: Taken | Refused, machine: Machine) -> bool:
    """Whether a machine takes it with its reserve kept."""
    left = slack(taken, machine)
    return left is not None and left >= 0


def longest(curve: Curve, machine: Machine, least: int, most: int) -> int | None:
    """The longest `-c` from `least` to `most` (whole steps) that fits, None if none does."""
    step = curve.step

    def holds(steps: int) -> bool:
        n_ctx = steps * step
        return fits(curve.bare(n_ctx), machine) and fits(curve.at(n_ctx), machine)

    low = -(-least // step)
    high = max(low, most // step)
    if holds(high):
        return high * step
    whole = -(-curve.launch.n_ubatch // step)  # a shorter one has a smaller batch: another graph
    if low < whole < high and holds(whole):
        low = whole
    elif not holds(low):
        return None
    good, bad = curve.around(machine, low * step, high * step)
    last = edge(lambda steps: slack(curve.at(steps * step), machine), good // step, bad // step)
    beyond = [steps for steps in range(last + 2, last + 2 + _STEPS_BEYOND) if steps < high]
    return max([last, *filter(holds, beyond)]) * step
