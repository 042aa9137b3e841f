"""A draft beside its target: weights, caches, compute and output at the target's context.

`-md` loads a model of its own; `--spec-type draft-mtp` without it makes a second context on the
target's weights. Both take the target's settings but for those that have a draft flag.

Source: common/speculative.cpp common_base_params_to_speculative and
common_speculative_init_result, tools/server/server-context.cpp load_model, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kvwise import builds
from kvwise.arch import row_of
from kvwise.device import Device, Host
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory import legality
from kvwise.memory.ledger import Companion, Extra, Part
from kvwise.memory.made import ComputeMode, Made, make, parts
from kvwise.memory.output import FLOAT, output_buffer
from kvwise.memory.paired import ALONE, LENDABLE, Lent, LentCache, Paired
from kvwise.memory.parts.seats import Seats
from kvwise.memory.placement import HOST
from kvwise.options import asked, change
from kvwise.options.resolve import drafted
from kvwise.options.row import BENCH
from kvwise.text import Phrase, phrase

MTP = "draft-mtp"
BLOCK_TYPES = frozenset({"draft-dflash", "draft-dspark"})
"""Kinds that guess a whole block of tokens in one pass, a row of scores for each."""

SELECTOR = "selector_hidden.weight"
"""DFlash 2 chooses by itself (since b11549)."""

READING_TYPES = frozenset({"draft-eagle3", *BLOCK_TYPES})
"""Kinds whose draft reads what some layers of its target read."""

SAMPLED_TYPES = frozenset({MTP, *READING_TYPES})
"""Kinds whose draft samples on its device and hands hidden states on."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """A draft's context, and whose weights it runs on."""

    of: Companion
    made: Made
    target: Made

    @property
    def name(self) -> str:
        model = self.made.model
        return model.name or model.path or model.architecture


def kind_by_itself(draft: Model) -> str | None:
    """The kind of speculation that the engine takes from a draft's file when the launch names none;
    None = it drafts nothing. Source: common/speculative.cpp common_speculative_types_from_gguf,
    which arg.cpp asks, b10605."""
    tensors = draft.header.by_name
    if draft.architecture == "dflash":
        return "draft-dspark" if "markov_w1.weight" in tensors else "draft-dflash"
    return MTP if f"blk.{draft.n_layer_all - 1}.nextn.eh_proj.weight" in tensors else None


def by_its_file(launch: Launch, draft: Model | None) -> Launch:
    """The launch with the kind of speculation that the engine takes from the file of `-md`, where
    the launch names none. The layers of the main model never turn it on by themselves.

    Source: common/arg.cpp common_models_handler_apply (spec_types_is_default), common/common.cpp
    common_model_params_to_llama (load_mtp), b10605.
    """
    if draft is None or not launch.model_draft or launch.spec_types or launch.tool == BENCH:
        return launch
    if asked.values(launch, "--spec-type") or builds.number(launch.build) < builds.OLDEST:
        return launch  # somebody said `none`; or nobody knows
    kind = kind_by_itself(draft)
    return launch if kind is None else change(launch, spec_types=(kind,))


def draft_of(
    target: Made,
    model: Model | None,
    devices: Sequence[Device],
    host: Host | None,
    mode: ComputeMode,
) -> Drafted | None:
    """The draft that a launch asks for, or None; `model` is that of `-md`.

    Raises Refused where the engine would stop because of the draft.
    """
    launch, types = target.launch, target.launch.spec_types
    if launch.mtp or (model is None and (launch.model_draft or MTP not in types)):
        return None
    settings = _shared(launch, target.context.n_ctx)
    if model is not None:
        legality.check_borrowed(target.model, model)
        settings = replace(
            settings,
            model=launch.model_draft,
            devices=launch.draft_devices,
            n_gpu_layers=launch.draft_gpu_layers,
            override_tensor=asked.draft_overrides(launch),
            n_cpu_moe=launch.draft_n_cpu_moe,
        )
    try:
        beside = partial(_beside, target, model)
        made = make(model or target.model, settings, devices, host, mode, paired=beside)
    except Refused as why:
        raise Refused(
            why.code,
            "the draft cannot be created: {why}",
            hint="start without it, or use another draft",
            why=why.phrase,
        ) from why
    return Drafted("mtp" if model is None else "draft", made, target)


def _shared(launch: Launch, n_ctx: int) -> Launch:
    """The target's settings as its draft gets them."""
    return replace(
        launch,
        n_ctx=n_ctx,
        type_k=launch.draft_type_k,
        type_v=launch.draft_type_v,
        embeddings=False,
        pooling="",
        n_outputs_max=launch.n_seq_max * _rows(launch),
        n_rs_seq=0,
        mtp=MTP in launch.spec_types,
        load_mtp=MTP in launch.spec_types,
        beside_target=True,
        model_draft="",
        spec_types=(),
        mmproj="",
    )


def handed_on(model: Model, launch: Launch, draft: Model | None) -> Paired:
    """What the target hands on to the draft that a launch asks for. Raises Refused where llama.cpp
    has no such hidden states to give."""
    types, newer = set(launch.spec_types), builds.number(launch.build)
    if launch.mtp or launch.beside_target or launch.tool == BENCH:
        return ALONE
    nextn = MTP in types and builds.has(newer, builds.NEXTN_RESERVES)
    layers: tuple[int, ...] = ()
    if draft is not None and types & READING_TYPES:
        last = model.n_layer if "draft-eagle3" in types else -1
        layers = tuple(il for il in draft.target_layers if il != last)
        nextn |= last in draft.target_layers
        legality.check_layer_inputs(model, layers, launch.build)
    return Paired(embeddings_layer_inp=layers, embeddings_nextn=nextn)


def _beside(target: Made, draft: Model | None, devices: Sequence[Device]) -> Paired:
    """What the draft gets of its target and does for it; `devices` are the draft's."""
    if draft is None or not legality.is_head(draft.architecture):
        return Paired(samplers=_samplers(target.launch, draft))
    borrows = row_of(draft.header).family == "borrowed"
    return Paired(
        samplers=_samplers(target.launch, draft),
        lent=tuple(_lent(target, devices)),
        caches=tuple(_lent_caches(target, draft, devices)) if borrows else (),
    )


def _lent_caches(target: Made, draft: Model, devices: Sequence[Device]) -> Iterator[LentCache]:
    """The target's caches that the draft's layers read: those of its last two layers, the windowed
    and the full one. Source: src/llama-model.cpp create_memory (share)."""
    model, last = target.model, target.model.n_layer
    for windowed, shared in ((False, last - 1), (True, last - 2)):
        layers = tuple(il for il in range(draft.n_layer_all) if draft.is_swa(il) is windowed)
        owner = shared if model.has_kv(shared) else model.n_layer_kv_from_start - 1 - windowed
        for cache in target.caches:
            if not layers or owner not in cache.layers:
                continue
            where = target.placement.layers[owner] if target.context.offload_kqv else HOST
            place = _seat_of(target, where, devices)
            if place is not None:
                index = cache.layers.index(owner)
                yield LentCache(
                    role=cache.role,
                    layers=layers,
                    cells=cache.cells,
                    streams=cache.streams,
                    types=(cache.type_k, cache.type_v),
                    rows=(cache.k_row[index], cache.v_row[index]),
                    device=place,
                )


def _seat_of(target: Made, number: int, devices: Sequence[Device]) -> int | None:
    """The number that a device of the target's has among the draft's, None if it has none."""
    if number == HOST:
        return HOST
    device = target.devices[number]
    return list(devices).index(device) if device in devices else None


def _samplers(launch: Launch, draft: Model | None) -> int:
    """Rows of a sequence that are sampled on the draft's device, 0 = none."""
    if asked.has(launch, "--no-spec-draft-backend-sampling"):
        return 0
    if draft is not None and SELECTOR in draft.header.by_name:
        return 0
    if not SAMPLED_TYPES & set(launch.spec_types):
        return 0
    return _rows(launch)


def _rows(launch: Launch) -> int:
    """Rows of scores that a draft asks for of each sequence."""
    return max(1, launch.draft_n_max + 1) if BLOCK_TYPES & set(launch.spec_types) else 1


def _lent(target: Made, devices: Sequence[Device]) -> Iterator[Lent]:
    """The target's weights that a draft may run on, where its devices reach them."""
    theirs = target.model.header.by_name
    for name in LENDABLE:
        device = target.weights.where.get(name)
        row = theirs.get(name) or (theirs.get(LENDABLE[0]) if name == LENDABLE[1] else None)
        if device is None or row is None:
            continue
        place = _seat_of(target, device, devices)
        if place is not None:
            yield Lent(name, row, place)


def extras(draft: Drafted, seats: Seats) -> Iterator[Extra]:
    """A line for every buffer of the draft, and what it makes the target take more."""
    made = draft.made
    rows = parts(made)
    for number, buffers in rows.items():
        place = number if number == HOST else seats.number(made.devices[number])
        for part in buffers:
            own = replace(part, weights_bytes=0) if draft.of == "mtp" else part
            if any((own.weights_bytes, own.context_bytes, own.compute_bytes, own.output_bytes)):
                yield _extra(draft, own, place)
    grown = _sampling_bytes(made, draft.target.launch)
    if grown:
        buffer = output_buffer(made.placement, made.devices)
        why = phrase(
            "the draft hands out hidden states and samples on its device: scores, probabilities "
            "and candidates for each row (src/llama-context.cpp output_reserve, {build})",
            build=made.launch.build,
        )
        yield _more(draft.name, buffer, grown, why)


def _extra(draft: Drafted, part: Part, place: int) -> Extra:
    made = draft.made
    why: dict[str, Phrase] = {}
    if part.weights_bytes:
        why["weights"] = phrase("the draft's own weights, placed by -ngld, -devd and -otd")
    if part.context_bytes:
        why["context"] = phrase(
            "the draft follows the target's context: {n_ctx} tokens, K {type_k}, V {type_v} "
            "(common/speculative.cpp, {build})",
            n_ctx=made.context.n_ctx,
            type_k=made.context.type_k,
            type_v=made.context.type_v,
            build=made.launch.build,
        )
    if part.compute_bytes:
        why["compute"] = made.compute.reason
    return Extra(
        of=draft.of,
        name=draft.name,
        buffer=part.buffer,
        device=place,
        weights_bytes=part.weights_bytes,
        context_bytes=part.context_bytes,
        compute_bytes=part.compute_bytes,
        output_bytes=part.output_bytes,
        basis=made.basis | {"output": "computed"},
        reasons=why,
    )


def _sampling_bytes(made: Made, target: Launch) -> int:
    """What the draft's output buffer grows by at its first passes."""
    if not SAMPLED_TYPES & set(target.spec_types):
        return 0
    model, start = made.model, made.context.n_seq_max
    rows = _output_rows(made, target)
    hidden = made.context.n_batch if SELECTOR in model.header.by_name else rows
    floats = rows * model.n_vocab + hidden * model.n_embd_out
    if _samplers(target, model):
        floats += rows * (3 * model.n_vocab + 1)
    return FLOAT * (floats - start * model.n_vocab)


def _output_rows(made: Made, target: Launch) -> int:
    """Rows of scores that the draft's output buffer has room for: those that it guesses from, and
    one for each token that its encoder takes at once."""
    context = made.context
    rows = context.n_seq_max * _rows(target)
    fused = made.model.architecture == "dflash" and context.since(builds.DFLASH_FUSED)
    encodes = made.model.has_encoder and not fused
    return max(rows, context.n_ubatch) if encodes else rows


def speculation(target: Made, draft: Drafted | None) -> Iterator[Extra]:
    """What speculation makes the target's output buffer grow by at the first passes.

    Every drafted token is checked with a row of scores; some drafts also read the target's
    hidden states, a row for every token of a batch.
    """
    launch, model, context = target.launch, target.model, target.context
    types = set(launch.spec_types)
    if not types or launch.mtp or launch.beside_target:
        return
    rows = min(context.n_batch, context.n_seq_max * (1 + drafted(launch)))
    floats = max(0, rows - context.n_seq_max) * model.n_vocab
    if MTP in types:
        floats += context.n_batch * model.n_embd_out
    if draft is not None and draft.of == "draft":  # EAGLE and DFlash read layers of the target
        floats += context.n_batch * model.n_embd * len(draft.made.model.target_layers)
    if floats:
        why = phrase(
            "up to {rows} rows of scores for drafted tokens, and the hidden states that the draft "
            "reads (src/llama-context.cpp output_reserve, {build})",
            rows=rows,
            build=launch.build,
        )
        buffer = output_buffer(target.placement, target.devices)
        yield _more(model.name, buffer, FLOAT * floats, why)


def _more(name: str, buffer: str, size: int, why: Phrase) -> Extra:
    return Extra(
        of="speculation",
        name=name,
        buffer=buffer,
        device=HOST,
        output_bytes=size,
        basis={"output": "computed"},
        reasons={"output": why},
    )
