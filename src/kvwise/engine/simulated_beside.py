"""What stands beside the model in a simulated ledger: the engine's figures where its pass has them,
ours where it has none, each with its basis.

`--fit` of a server measures a draft (also an MTP context) together with the model and sets memory
aside for a projector; adapters, what speculation adds to the output buffer, the prompt cache and
checkpoints come later and are in no pass. Source: common/common.cpp common_init_result,
tools/server/server-context.cpp load_model, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kvwise.engine.simulated import Told
from kvwise.memory.ledger import Basis, Companion, Extra, Ledger, Line, Note
from kvwise.memory.placement import HOST
from kvwise.text import Phrase, phrase

DRAFTS: frozenset[Companion] = frozenset({"draft", "mtp"})
"""What the pass measures with all its buffers."""

_TOLD: dict[str, Basis] = {
    "weights": "simulated", "context": "simulated", "compute": "simulated", "output": "simulated",
}  # fmt: skip
_COMPUTED: dict[Companion, Phrase] = {
    "draft": phrase("the engine's pass did not measure the draft model: it is computed"),
    "mtp": phrase("the engine's pass did not measure the MTP context: it is computed"),
    "speculation": phrase("what speculation adds to the output is in no pass: it is computed"),
    "mmproj": phrase("the engine's pass only sets a sum aside for the projector: it is computed"),
    "lora": phrase("LoRA adapters are in no pass of the engine: they are computed"),
    "prompt_cache": phrase("the prompt cache is in no pass of the engine: it is computed"),
    "checkpoints": phrase("context checkpoints are in no pass of the engine: they are computed"),
}


def with_beside(
    simulated: Ledger, computed: Ledger, draft: Sequence[tuple[Told, ...]] = ()
) -> Ledger:
    """The simulated ledger with a line for all that stands beside the model.

    `computed` is our ledger of the same launch: its extras are taken, but for a draft's, which are
    the engine's where the pass told of one. A device that only a companion uses gets its line.
    """
    count = len(simulated.devices)
    lines = []
    for line, place in _places(computed, count):
        own = line if place is None else simulated.lines[place]
        ours = tuple(one for one in line.extras if not (draft and one.of in DRAFTS))
        told = () if place is None or not draft else tuple(_told(draft[place], line, computed))
        lines.append(replace(own, extras=(*told, *ours)))
    return replace(
        simulated,
        devices=computed.devices,
        lines=tuple(lines),
        notes=(*simulated.notes, *_notes(computed, measured=bool(draft))),
        doubts=tuple(dict.fromkeys((*simulated.doubts, *computed.doubts))),
    )


def _places(computed: Ledger, count: int) -> Iterator[tuple[Line, int | None]]:
    """Every line with its number in the simulated ledger (None: of a companion alone)."""
    for number, line in enumerate(computed.lines):
        if line.host:
            yield line, count
        else:
            yield line, number if number < count else None


def _told(told: Sequence[Told], line: Line, computed: Ledger) -> Iterator[Extra]:
    """The draft's buffers on a line as the engine has them."""
    ours = next((one for one in computed.extras if one.of in DRAFTS), None)
    if ours is None:
        return
    number = HOST if line.host else computed.lines.index(line)
    for each in told:
        part = each.part
        weights = 0 if ours.of == "mtp" else part.weights_bytes  # it runs on the model's own
        sizes = (weights, part.context_bytes, part.compute_bytes, part.output_bytes)
        if any(sizes):
            yield Extra(ours.of, ours.name, each.buffer, number, *sizes, basis=_TOLD)


def _notes(computed: Ledger, *, measured: bool) -> Iterator[Note]:
    """What is not the engine's, and what our ledger says of companions that nobody opened."""
    kinds = dict.fromkeys(extra.of for extra in computed.extras)
    for kind in kinds:
        if not (measured and kind in DRAFTS):
            yield Note("not_simulated", _COMPUTED[kind])
    wanted = ("not_counted", "draft_not_used", "draft_not_found", "host_may_fill")
    yield from (note for note in computed.notes if note.code in wanted)
