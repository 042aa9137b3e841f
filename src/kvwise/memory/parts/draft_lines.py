"""The lines of a draft in a ledger, and what speculation makes the target take more.

Source: src/llama-context.cpp output_reserve, common/speculative.cpp, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvwise import builds
from kvwise.launch import Launch
from kvwise.memory.ledger import Extra, Part
from kvwise.memory.made import Made, parts
from kvwise.memory.output import FLOAT, output_buffer
from kvwise.memory.parts.draft import MTP, SAMPLED_TYPES, SELECTOR, Drafted, rows_of, samplers
from kvwise.memory.parts.seats import Seats
from kvwise.memory.placement import HOST
from kvwise.options.resolve import drafted
from kvwise.text import Phrase, phrase


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
    if samplers(target, model):
        floats += rows * (3 * model.n_vocab + 1)
    return FLOAT * (floats - start * model.n_vocab)


def _output_rows(made: Made, target: Launch) -> int:
    """Rows of scores that the draft's output buffer has room for: those that it guesses from, and
    one for each token that its encoder takes at once."""
    context = made.context
    rows = context.n_seq_max * rows_of(target)
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
