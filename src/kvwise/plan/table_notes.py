"""The remarks below a table of models and GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from kvwise.plan.table import Table
from kvwise.plan.table_report import embeds
from kvwise.plan.table_words import pair_name
from kvwise.text import Phrase, phrase
from kvwise.units import show


def notes(table: Table) -> list[Phrase]:
    """What all figures stand on, and what the marks among them mean."""
    launch = table.entries[0].launch
    said = [
        phrase(
            "llama.cpp {build}, {tool}, slots: {slots}, batch: {batch}, micro-batch: {ubatch}",
            build=launch.build,
            tool=launch.tool,
            slots=launch.n_seq_max,
            batch=launch.n_batch,
            ubatch=launch.n_ubatch,
        ),
        _legend(table),
    ]
    if table.layers and any(
        at.n_gpu_layers is not None and not at.fits for cell in table.cells for at in cell.at
    ):
        said.append(
            phrase(
                "a/b: of b layers a fit on the GPU beside that context (-ngl a; the output counts "
                "as one), the processor has the rest"
            )
        )
    devices = [device for machine in table.machines for device in machine.devices]
    said += {str(each.note): each.note for each in devices if each.note}.values()
    beside = [(at.beside_bytes, at.n_ctx) for cell in table.cells for at in cell.at if at.fits]
    most, n_ctx = max(beside, default=(0, 0))
    if most:
        said.append(
            phrase(
                "counted too: what stands beside the model (draft, projector, adapters), at most "
                "{size} at {n_ctx} tokens",
                size=show(most),
                n_ctx=f"{n_ctx:,}",
            )
        )
    if any(at.beyond_training for cell in table.cells for at in cell.at):
        said.append(phrase("*: beyond what the model was trained for"))
    if any(embeds(entry) for entry in table.entries) and table.prompt_tokens is not None:
        said.append(
            phrase("an embedding model generates nothing: its context must hold the text alone")
        )
    said += _refusals(table)
    if not all(cell.verified for cell in table.cells):
        said.append(phrase("some figures are not verified; `kvwise size` says why"))
    return said


def _legend(table: Table) -> Phrase:
    """What stands in the cells of the longest contexts; nothing that is not there."""
    shown = [cell for cell in table.cells if not cell.refused]
    said = phrase("usable: free at start, reserve and driver set aside")
    if any(cell.n_ctx_max is not None and cell.limit == "training" for cell in shown):
        whole = phrase("all: what the model was trained for")
        said = phrase("{said}; {more}", said=said, more=whole)
    if any(cell.n_ctx_max is None and cell.misses_bytes for cell in shown):
        no = phrase("no (-x): so much is missing at the shortest context")
        said = phrase("{said}; {more}", said=said, more=no)
    return said


def _refusals(table: Table) -> Iterator[Phrase]:
    """Each reason once, with the cache types that it is for."""
    reasons: dict[str, tuple[Phrase, dict[str, None]]] = {}
    for cell in table.cells:
        refused = cell.refused or next((at.refused for at in cell.at if at.refused), None)
        if refused is None:
            continue
        _, pairs = reasons.setdefault(str(refused.phrase), (refused.phrase, {}))
        pairs[pair_name(cell.pair)] = None
    for reason, pairs in reasons.values():
        yield phrase("{types}: {reason}", types=", ".join(pairs), reason=reason)
