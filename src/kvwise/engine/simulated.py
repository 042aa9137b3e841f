"""What a no-alloc pass said -> Ledger (basis `simulated`); starts nothing.

The engine's table has whole MiB, cut off. Where its log says the same in 0.01 MiB, the log counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kvwise import builds
from kvwise.device import Device, Host
from kvwise.engine import events as ev
from kvwise.engine.loaded import CacheLoad, ContextLoad
from kvwise.engine.noalloc import HOST, Pass, Row
from kvwise.engine.printed import Printed, Total
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.context import Context
from kvwise.memory.ledger import Basis, Cache, Ledger, Line, Note, Part
from kvwise.memory.loader import CPU
from kvwise.memory.overhead import overhead
from kvwise.memory.placement import buffer_name, place
from kvwise.text import Phrase, phrase

_UNSEEN: dict[str, str] = {
    "cuda": "an RPC device stands in for CUDA: it takes every operation, lends no pinned memory, "
    "borrows no host weights and (in older builds) copies synchronously, so compute is exact only "
    "when everything is on one GPU",
}
_BASIS: dict[str, Basis] = {
    "weights": "simulated",
    "context": "simulated",
    "compute": "simulated",
}
_STAND_IN = "an RPC device stands in for {kind}; only its alignment and sizes are imitated"


_NOTHING = Total()


@dataclass(frozen=True, slots=True)
class Told:
    """What a pass printed of one buffer: ranges of bytes, each as fine as the engine says it.

    `kept` are the caches in it without their padding, where the log says them finer; `whole` is
    the sum where nothing finer is said.
    """

    buffer: str
    weights: Total = _NOTHING
    context: Total = _NOTHING
    compute: Total = _NOTHING
    output: Total = _NOTHING
    kept: Total = _NOTHING
    whole: Total = _NOTHING

    @property
    def part(self) -> Part:
        sizes = (self.weights, self.kept, self.compute, self.output)
        return Part(self.buffer, *(size.bytes for size in sizes))


def stand_ins(devices: Sequence[Device]) -> tuple[str, ...]:
    """What the engine calls the virtual stand-ins of these devices."""
    return tuple(f"RPC{number}" for number in range(len(devices)))


def ledger_of(
    said: Pass,
    model: Model,
    launch: Launch,
    devices: tuple[Device, ...],
    host: Host | None = None,
    *,
    names: Sequence[str] | None = None,
) -> Ledger:
    """The ledger of a pass over `devices`, in this order.

    `names` are what the engine calls them; None = virtual stand-ins were asked instead of them.
    """
    placement = place(model, launch, devices, host)
    together = len(set(placement.layers)) == 1 or not launch.offload_kqv
    told = tell(said, devices, names, together=together)
    lines = [_line(parts, device, None) for parts, device in zip(told, devices, strict=False)]
    lines.append(_line(told[-1], None, host))
    return Ledger(
        model=model,
        launch=launch,
        context=_context(said, model, launch),
        placement=placement,
        devices=devices,
        lines=tuple(lines),
        caches=_caches(said, model, launch, devices, host),
        notes=(
            Note(
                "simulated_rounding",
                phrase("the engine prints weights and caches in whole MiB, cut off"),
            ),
        ),
        doubts=tuple(_doubts(devices)) if names is None else (),
        compute_mode="no-alloc",
    )


def _doubts(devices: Sequence[Device]) -> Iterator[Phrase]:
    for kind in dict.fromkeys(device.kind for device in devices):
        if kind not in ("generic", "rpc"):
            yield phrase(_UNSEEN.get(kind, _STAND_IN), kind=kind)


def tell(
    said: Pass,
    devices: Sequence[Device],
    names: Sequence[str] | None = None,
    *,
    together: bool = False,
) -> tuple[tuple[Told, ...], ...]:
    """What was said of each line of the ledger: the devices in order, the host after them.

    `together` = all caches are on one device, so that the log's totals are those of one line.
    """
    known = stand_ins(devices) if names is None else tuple(names)
    return _tell(said.rows, said.context, devices, known, together=together)


def tell_draft(
    said: Pass, devices: Sequence[Device], names: Sequence[str] | None = None
) -> tuple[tuple[Told, ...], ...]:
    """The same of the draft that was measured beside the model; nothing where none was."""
    if not said.draft:
        return ()
    known = stand_ins(devices) if names is None else tuple(names)
    alone = len(said.draft) == 1
    return _tell(said.draft, said.draft_context, devices, known, together=alone)


def tell_projector(
    said: Pass, devices: Sequence[Device], names: Sequence[str] | None = None
) -> tuple[tuple[Told, ...], ...]:
    """What was set aside for the projector on each line; nothing where it was not estimated."""
    if not said.projector:
        return ()
    known = stand_ins(devices) if names is None else tuple(names)
    sizes = {name: Total((size,)) for name, size in said.projector.items()}
    lines = [
        (Told(buffer_name(device), whole=sizes[name]),) if name in sizes else ()
        for device, name in zip(devices, known, strict=True)
    ]
    host = [Told(CPU, whole=size) for name, size in sizes.items() if name not in known]
    return (*lines, tuple(host))


def _tell(
    rows: Sequence[Row],
    context: ContextLoad | None,
    devices: Sequence[Device],
    known: Sequence[str],
    *,
    together: bool,
) -> tuple[tuple[Told, ...], ...]:
    by_name = {row.device: row for row in rows}

    def told(buffer: str, row: Row) -> Told:
        return _told(buffer, row, rows, context, together=together)

    lines = []
    for device, name in zip(devices, known, strict=True):
        buffer = buffer_name(device)
        found = by_name.get(name)
        lines.append((Told(buffer) if found is None else told(buffer, found),))
    host = [
        told(CPU if name == HOST else name, row)
        for name, row in by_name.items()
        if name not in known
    ]
    first, *rest = host or [Told(CPU)]
    if context is not None:
        first = replace(first, output=_sum(context.output.values()))
    return (*lines, (first, *rest))


def _line(told: tuple[Told, ...], device: Device | None, host: Host | None) -> Line:
    parts = tuple(each.part for each in told)
    if device is not None:
        extra, why = overhead(device)  # of the driver, which the engine does not see
        return Line(
            buffer=told[0].buffer,
            device=device.name,
            host=False,
            parts=parts,
            overhead_bytes=extra,
            free_bytes=device.free_bytes or None,
            basis=_BASIS,
            reasons={"overhead": why},
        )
    return Line(
        buffer=CPU,
        device=None,
        host=True,
        parts=parts,
        free_bytes=(host.usable_bytes or None) if host else None,
        basis=_BASIS | {"output": "simulated"},
    )


def _told(
    buffer: str, row: Row, rows: Sequence[Row], context: ContextLoad | None, *, together: bool
) -> Told:
    return Told(
        buffer,
        weights=Total((row.model,)),
        context=Total((row.context,)),
        kept=_finer(row.context, _cached(row, rows, context) if together else None),
        compute=_finer(row.compute, _compute(row, rows, context)),
    )


def _finer(coarse: Printed, fine: Total | None) -> Total:
    """The figure of the log where it can be the same amount as that of the table."""
    if fine is None or not fine.parts or fine.high < coarse.low or fine.low > coarse.high:
        return Total((coarse,))
    return fine


def _compute(row: Row, rows: Sequence[Row], context: ContextLoad | None) -> Total | None:
    """`RPC0[127.0.0.1:5000] compute buffer size`; the host's are all that are no other row's."""
    if context is None:
        return None
    sizes = {name.partition("[")[0]: total for name, total in context.compute.items()}
    if row.device != HOST:
        return sizes.get(row.device)
    others = {one.device for one in rows if one.device != HOST}
    return _sum(total for name, total in sizes.items() if name not in others)


def _cached(row: Row, rows: Sequence[Row], context: ContextLoad | None) -> Total | None:
    """The caches' own totals, when all of them are on this device."""
    if context is None or any(one.context.units for one in rows if one != row):
        return None
    caches = (cache.total for cache in context.caches)
    return Total(tuple(total.size for total in caches if total is not None))


def _sum(totals: Iterable[Total]) -> Total:
    return Total(tuple(part for total in totals for part in total.parts))


def _context(said: Pass, model: Model, launch: Launch) -> Context:
    """The context as the engine resolved it, in its own words."""
    facts = said.context.facts if said.context is not None else {}
    # Said as a result only where it was `auto` until then, and not forced by a quantized V cache.
    flash = said.context.flash_attn if said.context is not None else None
    if flash is None:
        flash = facts.get("flash_attn", launch.flash_attn) in ("enabled", "on")

    def number(name: str, otherwise: int) -> int:
        text = facts.get(name, "")
        return int(text) if text.isdigit() else otherwise

    n_batch = number("n_batch", launch.n_batch)
    n_ctx = number("n_ctx", launch.n_ctx or model.n_ctx_train)
    return Context(
        n_ctx=n_ctx,
        n_ctx_seq=number("n_ctx_seq", n_ctx),
        n_batch=n_batch,
        n_ubatch=number("n_ubatch", launch.n_ubatch),
        n_seq_max=number("n_seq_max", launch.n_seq_max),
        kv_unified=facts.get("kv_unified", str(launch.kv_unified).lower()) == "true",
        flash_attn=flash,
        type_k=launch.type_k,
        type_v=launch.type_v,
        offload_kqv=launch.offload_kqv,
        op_offload=launch.op_offload,
        swa_full=launch.swa_full,
        n_outputs_max=number("n_outputs_max", launch.n_outputs_max or n_batch),
        n_rs_seq=number("n_rs_seq", launch.n_rs_seq),
        embeddings=launch.embeddings,
        pooling=launch.pooling or "none",
        mtp=launch.mtp,
        build=builds.number(launch.build),
    )


def _caches(
    said: Pass, model: Model, launch: Launch, devices: tuple[Device, ...], host: Host | None
) -> tuple[Cache, ...]:
    """Our caches with the engine's sizes; none where the two do not see the same caches."""
    told = said.context.caches if said.context is not None else []
    try:
        ours = account(model, launch, devices, host=host, compute_mode="none").caches
    except Refused:
        return ()
    if len(ours) != len(told):
        return ()
    return tuple(_measured(cache, log) for cache, log in zip(ours, told, strict=True))


def _measured(cache: Cache, log: CacheLoad) -> Cache:
    total = log.total
    plain = replace(cache, by_device={}, reason=None)
    if isinstance(total, ev.KVCache) and cache.kind == "kv":
        return replace(
            plain,
            cells=total.cells or cache.cells,
            streams=total.streams or cache.streams,
            k_bytes=total.k.bytes if total.k else 0,
            v_bytes=total.v.bytes if total.v else 0,
        )
    if isinstance(total, ev.RecurrentState) and cache.kind == "recurrent":
        return replace(
            plain,
            cells=total.cells or cache.cells,
            r_bytes=total.r.bytes if total.r else 0,
            s_bytes=total.s.bytes if total.s else 0,
        )
    return plain
