"""A ledger as a person reads it: what goes where, what is left, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvwise.cli._request import called
from kvwise.cli._shapes import Bar, Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.device import Device
from kvwise.engine.build import BY_FLAGS
from kvwise.launch import Launch
from kvwise.memory import flash
from kvwise.memory.context import Context
from kvwise.memory.lacking import LACKING, lacking
from kvwise.memory.ledger import Cache, Extra, Ledger, Line
from kvwise.memory.parts.beside import NOT_USED
from kvwise.memory.reasons import beyond_training
from kvwise.text import Phrase, phrase
from kvwise.units import MIB, mib, show

PARTS = ("weights", "kv", "compute", "output", "extra", "overhead")
"""Parts of a line, in the order in which they are drawn; names of styles too."""


def show_ledger(printer: Printer, ledger: Ledger, *, explain: bool = False) -> None:
    """The whole ledger on stdout."""
    show_launch(printer, ledger)
    printer.text()
    printer.table(lines_table(ledger))
    printer.text()
    show_bars(printer, ledger)
    if ledger.caches:
        printer.text()
        printer.table(caches_table(ledger))
    if ledger.extras:
        printer.text()
        printer.table(extras_table(ledger))
    if explain:
        printer.text()
        show_reasons(printer, ledger)
    printer.text()
    show_notes(printer, ledger)
    printer.text(*verdict(ledger))


def show_launch(printer: Printer, ledger: Ledger) -> None:
    """The model and the settings as the engine resolves them, and what is wrong with them."""
    model, launch, context = ledger.model, ledger.launch, ledger.context
    printer.text(
        phrase(
            "{name}: {architecture}, {layers} layers, {size} of weights",
            name=called(model),
            architecture=model.architecture,
            layers=model.n_layer,
            size=show(model.header.tensor_bytes),
        ),
        "title",
    )
    slots = phrase("1 slot")
    if context.n_seq_max > 1:
        slots = phrase(
            "{count} slots that share it" if context.kv_unified else "{count} slots of {tokens}",
            count=context.n_seq_max,
            tokens=f"{context.n_ctx_seq:,}",
        )
    printer.text(
        phrase(
            "{tool} {build}: {n_ctx} tokens of context, {slots}; batch {batch}/{ubatch}; "
            "K {k}, V {v}; flash attention {flash}; {on_gpu} of {all} layers on GPUs",
            tool=launch.tool,
            build=build_name(launch),
            n_ctx=f"{context.n_ctx:,}",
            slots=slots,
            batch=context.n_batch,
            ubatch=context.n_ubatch,
            k=context.type_k,
            v=context.type_v,
            flash=phrase("on") if context.flash_attn else phrase("off"),
            on_gpu=ledger.placement.gpu_layers,
            all=model.n_layer_all + 1,
        ),
        "dim",
    )
    show_bare_sizes(printer, ledger)
    for note in ledger.notes:
        if note.code == NOT_USED:
            printer.text(phrase("warning: {text}", text=note.message), "warn")


def show_bare_sizes(printer: Printer, ledger: Ledger) -> None:
    """That a size stands for a card, before any figure that rests on it."""
    for note in _bare_sizes(ledger):
        printer.text(note, "warn")


def _bare_sizes(ledger: Ledger) -> list[Phrase]:
    notes = (each.note for each in ledger.devices if each.kind == "generic" and each.note)
    return list({str(note): note for note in notes}.values())


def build_name(launch: Launch) -> Words:
    """The build, and where it comes from when the line did not say it."""
    if launch.build_from in ("", "--engine-build", "zoo"):
        return launch.build
    origin: Words = launch.build_from
    if launch.build_from == "newest known":
        origin = phrase("the newest known")
    elif launch.build_from.endswith(BY_FLAGS):
        program = launch.build_from.removesuffix(BY_FLAGS)
        origin = phrase("by the flags of {program}", program=program)
    return phrase("{build} ({origin})", build=launch.build, origin=origin)


def lines_table(ledger: Ledger) -> Table:
    """One row per device and one for the host, in MiB."""
    used = [part for part in PARTS if any(part_bytes(line, part) for line in ledger.lines)]
    reserved = any(line.reserve_bytes for line in ledger.lines)
    rows = []
    for line in ledger.lines:
        left = line.headroom_bytes
        row: list[Cell | Words] = [
            Cell(line_name(line), "title"),
            *(_number(part_bytes(line, part)) for part in used),
            Cell(_number(line.total_bytes), "title"),
            "?" if line.free_bytes is None else _number(line.free_bytes),
        ]
        if reserved:
            row.append(_number(line.reserve_bytes))
        row.append("?" if left is None else Cell(_number(left), "bad" if left < 0 else "good"))
        rows.append(row)
    columns = [
        Column(phrase("MiB")),
        *(Column(part_name(part), right=True) for part in used),
        Column(phrase("total"), right=True),
        Column(phrase("free"), right=True),
    ]
    if reserved:
        columns.append(Column(phrase("reserve"), right=True))
    return Table([*columns, Column(phrase("left"), right=True)], rows)


def show_bars(printer: Printer, ledger: Ledger, *, host: bool = True) -> None:
    """One stacked bar per device, as long as its memory; the host's too unless `host` is false."""
    devices: list[Device | None] = [*ledger.devices, None]
    for line, device in zip(ledger.lines, devices, strict=True):
        if line.host and not host:
            continue
        capacity = device.total_bytes if device else (line.free_bytes or 0)
        if not capacity:
            continue
        parts: list[tuple[str, Words, int]] = []
        taken = capacity - (line.free_bytes if line.free_bytes is not None else capacity)
        if taken > 0:
            parts.append(("taken", _sized(phrase("taken already"), taken), taken))
        for part in PARTS:
            size = part_bytes(line, part)
            if size:
                parts.append((part, _sized(part_name(part), size), size))
        left = line.headroom_bytes or 0
        if left > 0:
            parts.append(("left", _sized(phrase("left"), left), left))
        printer.bar(Bar(line_name(line), parts, capacity))


def caches_table(ledger: Ledger) -> Table:
    """One row per cache of the context."""
    rows = [
        (
            cache.role,
            f"{cache.cells:,}" if cache.kind != "dsv4_state" else "",
            str(cache.streams),
            str(len(cache.layers)),
            _cache_types(cache),
            mib(cache.nbytes),
        )
        for cache in ledger.caches
    ]
    return Table(
        (
            Column(phrase("cache")),
            Column(phrase("cells"), right=True),
            Column(phrase("streams"), right=True),
            Column(phrase("layers"), right=True),
            Column(phrase("contents")),
            Column(phrase("size"), right=True),
        ),
        rows,
    )


COMPANIONS = {
    "draft": phrase("draft model"),
    "mtp": phrase("MTP draft context"),
    "speculation": phrase("speculation"),
    "mmproj": phrase("projector"),
    "lora": phrase("LoRA adapter"),
    "prompt_cache": phrase("prompt cache"),
    "checkpoints": phrase("context checkpoints"),
}


def extras_table(ledger: Ledger, *, bases: bool = False) -> Table:
    """One row per buffer of what stands beside the model and its context, in MiB; with `bases`,
    what the figures stand on."""
    used = [part for part in PARTS[:4] if any(part_bytes(each, part) for each in ledger.extras)]
    rows = []
    for extra in ledger.extras:
        total: Words = _number(extra.total_bytes)
        row: list[Cell | Words] = [
            COMPANIONS[extra.of],
            extra.buffer,
            *(_number(part_bytes(extra, part)) for part in used),
            phrase("up to {size}", size=total) if extra.up_to else Cell(total, "title"),
        ]
        if bases:
            row.append(_bases(extra))
        rows.append(row)
    columns = [
        Column(phrase("MiB beside the model")),
        Column(phrase("buffer")),
        *(Column(part_name(part), right=True) for part in used),
        Column(phrase("total"), right=True),
    ]
    return Table([*columns, Column(phrase("basis"))] if bases else columns, rows)


def _bases(extra: Extra) -> Words:
    """All that its figures stand on, the least sure one first."""
    sure = ("estimated", "computed", "simulated", "measured")
    held = {each for key, each in extra.basis.items() if getattr(extra, f"{key}_bytes")}
    first, *others = [_BASIS[each] for each in sure if each in held] or [_BASIS["computed"]]
    return phrase("{one}, {other}", one=first, other=others[0]) if others else first


def _cache_types(cache: Cache) -> Words:
    if cache.kind == "kv":
        sides = [("K", cache.type_k, cache.k_bytes), ("V", cache.type_v, cache.v_bytes)]
        return ", ".join(f"{side} {kind} {mib(size)}" for side, kind, size in sides if size)
    return phrase("state in f32")


def show_reasons(printer: Printer, ledger: Ledger) -> None:
    """Every figure with its bytes, its basis and its rule."""
    for line in ledger.lines:
        printer.text(line_name(line), "title")
        for part in PARTS:
            size = part_bytes(line, part)
            why = line.reasons.get(_KEY[part])
            if part == "extra" or (not size and why is None):
                continue
            printer.text(
                phrase(
                    "  {part}: {bytes} bytes ({basis}){why}",
                    part=part_name(part),
                    bytes=f"{size:,}",
                    basis=_BASIS[line.basis.get(_KEY[part], "computed")],
                    why=phrase(": {reason}", reason=why) if why else "",
                )
            )
    for extra in ledger.extras:
        printer.text(
            phrase("{what} on {buffer}", what=COMPANIONS[extra.of], buffer=extra.buffer), "title"
        )
        for key, why in extra.reasons.items():
            part = next(part for part in PARTS if _KEY[part] == key)
            printer.text(
                phrase(
                    "  {part}: {bytes} bytes ({basis}){why}",
                    part=part_name(part),
                    bytes=f"{part_bytes(extra, part):,}",
                    basis=_BASIS[extra.basis.get(key, "computed")],
                    why=phrase(": {reason}", reason=why),
                )
            )
    if ledger.caches:
        printer.text(phrase("caches"), "title")
    for cache in ledger.caches:
        if cache.reason:
            printer.text(phrase("  {role}: {reason}", role=cache.role, reason=cache.reason))


def show_notes(printer: Printer, ledger: Ledger) -> None:
    """What the reader should know, and what is not proved."""
    said = {str(note) for note in _bare_sizes(ledger)}
    for note in ledger.notes:
        if str(note.message) in said or note.code == NOT_USED:
            continue
        printer.text(phrase("note: {text}", text=note.message), "warn")
    for text in filter(None, (beyond_training(ledger), *_attention(ledger))):
        printer.text(phrase("note: {text}", text=text), "warn")
    for doubt in ledger.doubts:
        printer.text(phrase("unverified: {text}", text=doubt), "warn")


def _attention(ledger: Ledger) -> Iterator[Phrase]:
    """What cache types cost that a GPU has no flash attention for, and which would not."""
    context = ledger.context

    def leaves(context: Context) -> bool:
        return flash.attention_leaves(ledger.model, context, ledger.placement, ledger.devices)

    if leaves(context):
        yield phrase(
            "the processor does the attention, which is slow: usual builds have no flash attention "
            "for K {k}, V {v} and these heads on such GPUs",
            k=context.type_k,
            v=context.type_v,
        )
    elif context.flash_attn or not leaves(replace(context, flash_attn=True)):
        return
    same = [
        name
        for name in ("f16", "q8_0", "q4_0")
        if not leaves(replace(context, flash_attn=True, type_k=name, type_v=name))
    ]
    if same:
        yield phrase(
            "the GPUs have flash attention when K and V are both {types}", types=" / ".join(same)
        )


def verdict(ledger: Ledger) -> tuple[Words, str]:
    """(sentence, style): does it fit, and by how much."""
    short = [line for line in ledger.lines if (line.headroom_bytes or 0) < 0]
    if short:
        places = ", ".join(
            f"{line_name(line)}: {show(-(line.headroom_bytes or 0))}" for line in short
        )
        part = phrase(LACKING[lacking(ledger) or "block"])
        if any(line.reserve_bytes for line in short):
            return phrase(
                "does not fit with the reserve; missing on {places}; {part}",
                places=places, part=part,
            ), "bad"  # fmt: skip
        return phrase("does not fit; missing on {places}; {part}", places=places, part=part), "bad"
    known = [line for line in ledger.lines if line.headroom_bytes is not None]
    gpus = [line for line in known if not line.host] or known
    if not gpus:
        return phrase("the free memory is not known"), "warn"
    tightest = min(gpus, key=lambda line: line.headroom_bytes or 0)
    if tightest.reserve_bytes:
        return (
            phrase(
                "fits: {size} left on {name} beside the reserve of {reserve}",
                size=show(tightest.headroom_bytes or 0),
                name=line_name(tightest),
                reserve=show(tightest.reserve_bytes),
            ),
            "good",
        )
    return (
        phrase(
            "fits: {size} left on {name}",
            size=show(tightest.headroom_bytes or 0),
            name=line_name(tightest),
        ),
        "good",
    )


def line_name(line: Line) -> str:
    return (
        line.buffer
        if line.host or line.device in (None, line.buffer)
        else (f"{line.buffer} {line.device}")
    )


_BASIS = {
    "computed": phrase("computed"),
    "estimated": phrase("estimated"),
    "simulated": phrase("simulated"),
    "measured": phrase("measured"),
}
_KEY = {
    "weights": "weights", "kv": "context", "compute": "compute", "output": "output",
    "extra": "extra", "overhead": "overhead",
}  # fmt: skip


def part_bytes(line: Line | Extra, part: str) -> int:
    size = getattr(line, f"{_KEY[part]}_bytes")
    assert isinstance(size, int)  # noqa: S101  (for the type checker)
    return size


def part_name(part: str) -> Words:
    return {
        "weights": phrase("weights"),
        "kv": phrase("cache"),
        "compute": phrase("compute"),
        "output": phrase("output"),
        "extra": phrase("beside it"),
        "overhead": phrase("driver"),
    }[part]


def _number(size: int) -> str:
    return f"{size / MIB:,.1f}"


def _sized(name: Words, size: int) -> Words:
    return phrase("{name} {size}", name=name, size=show(size))
