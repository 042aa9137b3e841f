"""The ledger beside a log: what failed, what it asked, what was free, what would fit.

With the model's file everything is recomputed and a plan is made. From the log alone only caches,
states and the output buffer are: they need no tensor. Sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvwise.device import Device, Host
from kvwise.diagnose.case import Case
from kvwise.diagnose.claims import claims_of
from kvwise.diagnose.context_of import length_of
from kvwise.diagnose.finding import Diagnosis
from kvwise.diagnose.from_log import asked_in, launch_of, model_of, with_settings
from kvwise.diagnose.room import host_of
from kvwise.diagnose.rules.asking import asked_bytes, failed, free_of, taken_of
from kvwise.diagnose.rules.parts import part
from kvwise.errors import KvwiseError
from kvwise.gguf.model import Model
from kvwise.here import with_reserve
from kvwise.launch import Launch
from kvwise.memory.account import ComputeMode, account
from kvwise.memory.ledger import Ledger
from kvwise.plan.choose import Impossible, Plan
from kvwise.plan.choose import plan as make_plan
from kvwise.plan.goal import Goal
from kvwise.text import Phrase, phrase
from kvwise.verify.compare import Row, compare, engine_devices

_SHORTEST = 2048
_FROM_HEADER_ALONE = frozenset({"cache", "context", "output"})
_CACHE_KINDS = frozenset({"kv-alloc-oom", "kv-oversize", "recurrent-state-oom", "compute-oom",
                          "weights-oom", "fit-abort"})  # fmt: skip
_PLANNED = _CACHE_KINDS | {
    "moe-placement", "metal-working-set", "runtime-vram-growth", "fit-gap-mtp", "fit-gap-mmproj",
    "vram-spill-slow", "single-allocation-limit",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refusal:
    """The allocation that failed: as the log has it, and what we compute for that part."""

    buffer: str | None
    part: str  # weights, kv, rs, compute, output, or "" if the log does not tell
    asked_bytes: int | None
    free_bytes: int | None  # on the device before the load
    taken_bytes: int | None  # by this load before the failure, as printed
    computed_bytes: int | None


@dataclass(frozen=True, slots=True)
class Option:
    """Other settings and what the context would take with them."""

    flags: tuple[str, ...]
    context_bytes: int
    saved_bytes: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """What could be recomputed. `basis`: "file" or "log", where the model's numbers come from."""

    basis: str
    model: Model
    launch: Launch
    ledger: Ledger | None
    rows: tuple[Row, ...] = ()
    refusal: Refusal | None = None
    options: tuple[Option, ...] = ()
    plan: Plan | None = None
    note: Phrase | None = None


@dataclass(frozen=True, slots=True)
class _Ask:
    """What is recomputed: the model from a file or from the log, its settings, the devices."""

    basis: str
    model: Model
    launch: Launch
    devices: tuple[Device, ...]
    host: Host | None
    kinds: frozenset[str]  # of the findings that blame
    fixed: frozenset[str]  # fields of the launch that a plan keeps if it can


def with_numbers(
    found: Diagnosis,
    *,
    model: Model | None = None,
    launch: Launch | None = None,
    settings: Mapping[str, object] | None = None,
    devices: Sequence[Device] = (),
    host: Host | None = None,
) -> Diagnosis:
    """The diagnosis with its numbers, and with claims of the log that cannot be true.

    `launch` stands instead of what the log tells; `settings` (fields of a launch) before it.
    """
    case = found.case
    if case is None:
        return found
    told = model or model_of(case.loaded.model)
    numbers = None
    if told:
        on = tuple(devices) or tuple(map(with_reserve, engine_devices(case.loaded)))
        asked = with_settings(launch or launch_of(case), settings or {})
        length = None if asked.n_ctx else _length(case, told, asked, on)
        kinds = {finding.kind for finding in found.findings[:3] if finding.blames}
        numbers = _numbers(
            case,
            _Ask(
                basis="file" if model else "log",
                model=told,
                launch=replace(asked, n_ctx=length) if length else asked,
                devices=on,
                host=host_of(_of_one_run(found, case), host),
                kinds=frozenset(kinds),
                fixed=frozenset(settings or ()) - {"tool", "build"},
            ),
        )
        if length:
            said = phrase(
                "the cache that was refused is that of {length} tokens", length=f"{length:,}"
            )
            numbers = replace(numbers, note=numbers.note or said)
    refusal, claims = refusal_of(case, numbers), claims_of(case)
    loads = tuple(
        replace(each, numbers=numbers, refusal=refusal, claims=claims)
        if each.case is case
        else each
        for each in found.loads
    )
    return replace(found, numbers=numbers, refusal=refusal, claims=claims, loads=loads)


def _length(case: Case, model: Model, launch: Launch, devices: tuple[Device, ...]) -> int | None:
    """The context's length, where the log tells it only by the size of the cache it was refused."""
    refusal = refusal_of(case, None)
    if refusal is None or refusal.part != "kv" or refusal.asked_bytes is None:
        return None
    return length_of(refusal.asked_bytes, refusal.buffer, model, launch, devices)


def _of_one_run(found: Diagnosis, case: Case) -> list[Case]:
    """The loads of a log, one engine tried again: what one was refused, none can have."""
    return [each.case for each in found.loads if each.case] or [case]


def _numbers(case: Case, ask: _Ask) -> Numbers:
    mode: ComputeMode = "reserved" if ask.basis == "file" else "none"
    try:
        ledger = account(ask.model, ask.launch, ask.devices, host=ask.host, compute_mode=mode)
    except KvwiseError as refused:
        return Numbers(
            ask.basis, ask.model, ask.launch, None, plan=_plan(case, ask), note=refused.phrase
        )
    rows = tuple(
        row
        for row in compare(ledger, case.loaded)
        if row.measured is not None
        and row.computed is not None
        and (ask.basis == "file" or row.kind in _FROM_HEADER_ALONE)
    )
    options = _options(ask, ledger) if ask.kinds & _CACHE_KINDS else ()
    return Numbers(
        ask.basis, ask.model, ask.launch, ledger, rows, options=options, plan=_plan(case, ask)
    )


def refusal_of(case: Case, numbers: Numbers | None) -> Refusal | None:
    """Which buffer failed, how much it asked, what was free."""
    lines = failed(case)
    if not lines:
        return None
    sized = [each for each in lines if asked_bytes(each) is not None] or lines
    each = next((one for one in reversed(sized) if one.fields.get("buffer")), sized[-1])
    what = next((name for name, own in part(case).items() if each in own), "")
    buffer = each.fields.get("buffer")
    free = free_of(case, buffer) if buffer else None
    taken = taken_of(case, buffer) if buffer else None
    return Refusal(buffer, what, asked_bytes(each), free, taken, _computed(numbers, buffer, what))


def _computed(numbers: Numbers | None, buffer: str | None, what: str) -> int | None:
    """Our figure for that part on that device."""
    ledger = numbers.ledger if numbers else None
    if ledger is None or buffer is None or numbers is None:
        return None
    for line in ledger.lines:
        if line.buffer != buffer and buffer not in [part.buffer for part in line.parts]:
            continue
        if what in ("kv", "rs"):
            return line.context_bytes
        if numbers.basis == "file" and what in ("weights", "compute"):
            return line.weights_bytes if what == "weights" else line.compute_bytes
    return None


def _options(ask: _Ask, ledger: Ledger) -> tuple[Option, ...]:
    """What the context takes with other cache types, fewer slots, half the length."""
    launch, now, n_ctx = ask.launch, _context_bytes(ledger), ledger.context.n_ctx
    tries: list[tuple[tuple[str, ...], dict[str, Any]]] = []
    if launch.type_k in ("f16", "bf16", "f32"):
        tries.append((("-ctk", "q8_0", "-ctv", "q8_0"), {"type_k": "q8_0", "type_v": "q8_0"}))
    if launch.n_seq_max > 1:
        tries.append((("-np", "1"), {"n_seq_max": 1, "n_outputs_max": 1}))
    shorter = [n_ctx // share for share in (2, 4) if n_ctx // share >= _SHORTEST]
    tries += [(("-c", str(length)), {"n_ctx": length}) for length in shorter]
    options = []
    for flags, changes in tries:
        try:
            other = account(ask.model, replace(launch, **changes), ask.devices, compute_mode="none")
        except KvwiseError:
            continue
        size = _context_bytes(other)
        beyond = ask.host and not ask.devices and size > ask.host.usable_bytes
        if size < now and not beyond:
            options.append(Option(flags, size, now - size))
    return tuple(options)


def _context_bytes(ledger: Ledger) -> int:
    return sum(line.context_bytes for line in ledger.lines)


def _plan(case: Case, ask: _Ask) -> Plan | None:
    """Settings that fit a model whose tensors are known; the asked context stays if it can."""
    if ask.basis != "file" or not ask.kinds & _PLANNED:
        return None
    words = asked_in(case)
    keeps = set(ask.fixed)
    if ask.launch.n_ctx and ("-c" in words or "--ctx-size" in words):
        keeps.add("n_ctx")
    named = replace(ask.launch, model=ask.launch.model or ask.model.loadable)
    goal = Goal(slots=max(1, ask.launch.n_seq_max))
    for fixed in (keeps, set[str]()):
        try:
            return make_plan(ask.model, ask.devices, goal, launch=named, fixed=fixed, host=ask.host)
        except Impossible as impossible:
            if not fixed:
                return impossible.nearest
        except KvwiseError:
            return None
    return None
