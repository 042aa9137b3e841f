"""A ledger beside what an engine said: one row per buffer and per side of a cache.

Weights, caches and the output buffer decide; compute buffers are shown. Nothing is matched by
model: caches are met in the order in which the engine creates them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from kvwise.device import Device
from kvwise.engine import events as ev
from kvwise.engine.loaded import Amounts, CacheLoad, ContextLoad, Loaded
from kvwise.engine.printed import Printed, Total
from kvwise.engine.simulated_beside import DRAFTS
from kvwise.memory.ledger import Cache, Extra, Ledger, Line, Part
from kvwise.memory.loader import CPU
from kvwise.simulate import Simulation
from kvwise.units import MIB

Kind = Literal["weights", "cache", "context", "output", "compute"]
DECISIVE: frozenset[str] = frozenset({"weights", "cache", "context", "output"})

_KINDS = {"CUDA": "cuda", "ROCm": "hip", "Vulkan": "vulkan", "MTL": "metal", "Metal": "metal",
          "RPC": "rpc"}  # fmt: skip
_FEATURES = {"AVX2": "avx2", "AVX512": "avx512f", "DOTPROD": "asimddp"}
_DEVICE = re.compile(r"([A-Za-z]+?)(\d+)\Z")
_REMOTE = re.compile(r"RPC(\d*)\[(.+)\]\Z")
DRAFT = "draft "
"""Before the names of a draft's rows."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the comparison, in bytes. None = that side does not have it.

    `name` is the buffer (`CPU_Mapped`, `CUDA0`), or for a cache its role and side (`main K`).
    `simulated` is what the engine's own no-alloc pass said of the same.
    """

    kind: Kind
    name: str
    computed: int | None
    measured: Total | None
    simulated: Total | None = None

    @property
    def agrees(self) -> bool:
        """Would the computed figure print as the engine's did?"""
        if self.measured is None:
            return not self.computed
        return self.measured.agrees(self.computed or 0)

    @property
    def difference(self) -> int:
        """Computed minus measured; 0 when they agree."""
        if self.agrees:
            return 0
        return (self.computed or 0) - (self.measured.bytes if self.measured else 0)

    @property
    def decisive(self) -> bool:
        return self.kind in DECISIVE

    @property
    def engine_misjudged(self) -> bool:
        """Did the engine reserve what was computed, and its own pass say something else?

        The pass prints no finer than the load: figures that print alike are the same.
        """
        said, real = self.simulated, self.measured
        if self.kind != "compute" or said is None or real is None or not self.agrees:
            return False
        return said.low > real.high or said.high < real.low

    @property
    def measured_bytes(self) -> int:
        """The computed bytes where they agree (the print is coarser), else what was printed."""
        if self.agrees:
            return self.computed or 0
        return self.measured.bytes if self.measured else 0


def engine_devices(loaded: Loaded) -> tuple[Device, ...]:
    """The GPUs that the engine says it uses, as devices whose rules we know."""
    totals = {row.name: row.total for row in loaded.device_list}
    devices = []
    for used in loaded.devices:
        match = _DEVICE.match(used.name)
        prefix, index = (match[1], int(match[2])) if match else (used.name, 0)
        total = totals.get(used.name)
        devices.append(
            Device(
                name=used.description.split(") (")[0] or used.name,
                kind=_KINDS.get(prefix, "generic"),
                total_bytes=total.units * MIB if total else used.free.units * MIB,
                free_bytes=used.free.units * MIB,
                index=index,
                source="engine",
            )
        )
    return tuple(devices)


def engine_features(loaded: Loaded) -> tuple[str, ...] | None:
    """Processor features that decide which weights the engine repacks; None = it did not say."""
    if not loaded.features:
        return None
    if not loaded.features & {"REPACK", "AARCH64_REPACK"}:
        return ()
    return tuple(ours for theirs, ours in _FEATURES.items() if theirs in loaded.features)


def compare(ledger: Ledger, loaded: Loaded) -> tuple[Row, ...]:
    """All rows, in the order weights, caches, context buffers, output, compute."""
    context = loaded.main or ContextLoad()
    weights = dict(loaded.model.weights) if loaded.model else {}
    kept: Amounts = {}
    for cache in context.caches:
        for name, total in cache.by_buffer.items():
            kept[name] = Total((*kept.get(name, Total()).parts, *total.parts))
    remote = _remote_names(loaded)
    sides = (
        ("weights", "weights_bytes", weights),
        ("context", "context_bytes", kept),
        ("output", "output_bytes", context.output),
        ("compute", "compute_bytes", context.compute),
    )
    rows: dict[str, list[Row]] = {}
    for kind, field, amounts in sides:
        named = {_plain(name, remote): total for name, total in amounts.items()}
        rows[kind] = list(_buffers(ledger, kind, field, named))  # type: ignore[arg-type]
    caches = list(_caches(ledger.caches, context.caches))
    mine = (*rows["weights"], *caches, *rows["context"], *rows["output"], *rows["compute"])
    return (*mine, *_draft_rows(ledger, loaded, remote))


def _draft_rows(ledger: Ledger, loaded: Loaded, remote: dict[str, list[str]]) -> Iterator[Row]:
    """The buffers of a draft that is in the ledger, beside what the engine said of it."""
    extras = [extra for extra in ledger.extras if extra.of in DRAFTS]
    contexts = [context for context in loaded.contexts if context.draft]
    if not extras or not contexts:
        return
    models = [model for model in loaded.models if model.draft]
    context = contexts[-1]
    kept: Amounts = {}
    for cache in context.caches:
        for name, total in cache.by_buffer.items():
            kept[name] = Total((*kept.get(name, Total()).parts, *total.parts))
    sides: tuple[tuple[Kind, str, Amounts], ...] = (
        ("weights", "weights_bytes", models[-1].weights if models else {}),
        ("context", "context_bytes", kept),
        ("output", "output_bytes", context.output),
        ("compute", "compute_bytes", context.compute),
    )
    for kind, field, amounts in sides:
        computed: dict[str, int] = {}
        for extra in extras:
            size = getattr(extra, field)
            if size:
                computed[extra.buffer] = computed.get(extra.buffer, 0) + size
        measured = {_plain(name, remote): total for name, total in amounts.items()}
        for name in dict.fromkeys((*computed, *measured)):
            yield Row(kind, DRAFT + name, computed.get(name), measured.get(name))


def _remote_names(loaded: Loaded) -> dict[str, list[str]]:
    """RPC endpoint -> names of its devices: buffer lines say RPC0[endpoint] for the first of each,
    RPC1[endpoint] for the next."""
    names: dict[str, list[str]] = {}
    for device in loaded.devices:
        if device.name.startswith("RPC"):
            mine = names.setdefault(device.description.split(") (")[0], [])
            mine += [device.name] * (device.name not in mine)  # a draft's are said again
    return names


def _plain(name: str, remote: dict[str, list[str]]) -> str:
    match = _REMOTE.match(name)
    if match is None:
        return name
    names, number = remote.get(match[2], []), int(match[1] or 0)
    return names[number] if number < len(names) else name


def _buffers(ledger: Ledger, kind: Kind, field: str, measured: Amounts) -> Iterator[Row]:
    computed: dict[str, int] = {}
    for line in ledger.lines:
        for part in line.parts:
            size = getattr(part, field)
            if size:
                computed[part.buffer] = computed.get(part.buffer, 0) + size
    for name in dict.fromkeys((*computed, *measured)):
        yield Row(kind, name, computed.get(name), measured.get(name))


def _caches(computed: tuple[Cache, ...], measured: list[CacheLoad]) -> Iterator[Row]:
    kinds = (
        ("kv", ev.KVCache),
        ("recurrent", ev.RecurrentState),
        ("dsv4_state", ev.CompressorState),
    )
    for kind, said in kinds:
        ours = [cache for cache in computed if cache.kind == kind and cache.nbytes]
        totals = [load.total for load in measured if isinstance(load.total, said)]
        theirs = [total for total in totals if total.layers != 0]  # a cache that nobody uses
        for number in range(max(len(ours), len(theirs))):
            cache = ours[number] if number < len(ours) else None
            total = theirs[number] if number < len(theirs) else None
            yield from _sides(cache, total)


def _sides(
    cache: Cache | None, total: ev.KVCache | ev.RecurrentState | ev.CompressorState | None
) -> Iterator[Row]:
    role = cache.role if cache else "?"
    pairs: list[tuple[str, int | None, Printed | None]]
    match total:
        case ev.RecurrentState(r=Printed() as r, s=Printed() as s):
            pairs = [("R", cache.r_bytes if cache else None, r),
                     ("S", cache.s_bytes if cache else None, s)]  # fmt: skip
        case ev.KVCache(k=Printed() as k, v=Printed() as v):
            pairs = [("K", cache.k_bytes if cache else None, k),
                     ("V", cache.v_bytes if cache else None, v)]  # fmt: skip
        case None:
            pairs = [("", cache.nbytes if cache else None, None)]
        case _:  # builds that print only the total
            pairs = [("", cache.nbytes if cache else None, total.size)]
    for side, ours, theirs in pairs:
        measured = None if theirs is None else Total((theirs,))
        yield Row("cache", f"{role} {side}".strip(), ours, measured)


def with_simulated(rows: tuple[Row, ...], said: Simulation) -> tuple[Row, ...]:
    """The rows with what the engine's pass said of each.

    The pass does not map files: `CPU_Mapped` is its `CPU`. It puts all compute of the host in one.
    """
    told = {each.buffer: each for line in said.told for each in line}
    told |= {DRAFT + each.buffer: each for line in said.beside.get("draft", ()) for each in line}
    caches: dict[str, int] = {}
    for cache in said.ledger.caches:
        sides = {"K": cache.k_bytes, "V": cache.v_bytes, "R": cache.r_bytes, "S": cache.s_bytes}
        caches |= {f"{cache.role} {side}": size for side, size in sides.items()}
    host = {part.buffer for part in said.ledger.host.parts}
    unknown = [row.name for row in rows if row.kind == "compute" and row.name not in told]

    def of(row: Row) -> Total | None:
        if row.kind == "cache":
            size = caches.get(row.name)
            return None if size is None else Total((_cents(size),))
        whose = DRAFT if row.name.startswith(DRAFT) else ""
        outside = [name for name in unknown if name.startswith(DRAFT) is bool(whose)]
        each = told.get(row.name.removesuffix("_Mapped"))
        if each is None and row.kind in {"compute", "output"} and len(outside) <= 1:
            each = told.get(whose + CPU)  # pinned memory of the host
        if each is None or (row.kind == "compute" and each.buffer in host and len(outside) > 1):
            return None
        return {
            "weights": each.weights, "context": each.context,
            "compute": each.compute, "output": each.output,
        }[row.kind]  # fmt: skip

    return tuple(replace(row, simulated=of(row)) for row in rows)


def _cents(size: int) -> Printed:
    """A size as it was printed, with two decimals."""
    return Printed(round(size * 100 / MIB))


def measured_ledger(ledger: Ledger, rows: tuple[Row, ...]) -> Ledger:
    """The ledger with the engine's figures in place of ours, basis `measured`."""
    found = {(row.kind, row.name): row for row in rows}
    known = {part.buffer for line in ledger.lines for part in line.parts}
    strange = dict.fromkeys(
        row.name
        for row in rows
        if row.kind != "cache" and row.name not in known and not row.name.startswith(DRAFT)
    )
    lines = []
    for line in ledger.lines:
        parts = [part.buffer for part in line.parts] + (list(strange) if line.host else [])
        lines.append(_measured_line(line, tuple(_part(name, found) for name in parts), found))
    return replace(
        ledger, lines=tuple(lines), caches=tuple(_cache(each, found) for each in ledger.caches)
    )


def _part(name: str, found: dict[tuple[Kind, str], Row]) -> Part:
    def size(kind: Kind) -> int:
        row = found.get((kind, name))
        return row.measured_bytes if row else 0

    return Part(name, size("weights"), size("context"), size("compute"), size("output"))


def _measured_line(line: Line, parts: tuple[Part, ...], found: dict[tuple[Kind, str], Row]) -> Line:
    extras = tuple(_measured_extra(extra, line.extras, found) for extra in line.extras)
    line = replace(line, basis=dict.fromkeys(line.basis, "measured"), reasons={})
    return replace(line, parts=parts, extras=extras)


def _measured_extra(
    extra: Extra, all_of_them: tuple[Extra, ...], found: dict[tuple[Kind, str], Row]
) -> Extra:
    """A draft's buffer as the engine said it; what else there is stays computed, and so do drafts
    that share a buffer: the engine tells them together."""
    name = DRAFT + extra.buffer
    sharing = [each for each in all_of_them if each.of in DRAFTS and each.buffer == extra.buffer]
    if sharing != [extra] or not any(row.name == name for row in found.values()):
        return extra
    part = _part(name, found)
    return replace(
        extra,
        weights_bytes=part.weights_bytes,
        context_bytes=part.context_bytes,
        compute_bytes=part.compute_bytes,
        output_bytes=part.output_bytes,
        basis=dict.fromkeys(extra.basis, "measured"),
        reasons={},
    )


def _cache(cache: Cache, found: dict[tuple[Kind, str], Row]) -> Cache:
    def size(side: str, ours: int) -> int:
        row = found.get(("cache", f"{cache.role} {side}"))
        return row.measured_bytes if row else ours

    return replace(
        cache,
        k_bytes=size("K", cache.k_bytes),
        v_bytes=size("V", cache.v_bytes),
        r_bytes=size("R", cache.r_bytes),
        s_bytes=size("S", cache.s_bytes),
    )
