"""What keeps a plan from holding more: which limit, on which device, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kvwise.memory.ledger import Ledger
from kvwise.plan.candidate import Candidate, lefts
from kvwise.plan.hunt import one_step_less_offloaded, one_step_more
from kvwise.plan.search import Search

Limit = Literal["memory", "training", "goal", "fixed", "refused"]


@dataclass(frozen=True, slots=True)
class Binds:
    """Why one step more is not taken.

    `context`: what ends the context: `memory` (one block of cells more does not fit `device`,
    and misses by so many bytes), `training` (the model was trained for no more), `goal` (the goal
    wants no more), `fixed` (the user said so), `refused` (the engine takes no more). `layers`: what
    keeps the next tensor off the GPUs: `memory`, with `layers_device` and `layers_miss_bytes`,
    `goal` (there is room, which the goal spends otherwise), `fixed`, None = nothing is left off.
    """

    context: Limit
    step_tokens: int
    device: str | None = None
    misses_by_bytes: int = 0
    layers: Limit | None = None
    layers_device: str | None = None
    layers_miss_bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        """The `binds` object of kvwise/plan/1."""
        return {
            "context": self.context,
            "step_tokens": self.step_tokens,
            "device": self.device,
            "misses_by_bytes": self.misses_by_bytes,
            "layers": self.layers,
            "layers_device": self.layers_device,
            "layers_miss_bytes": self.layers_miss_bytes,
        }


def binds(search: Search, chosen: Candidate) -> Binds:
    """What ends the context and the layers of a candidate."""
    limit, ledger = _context(search, chosen)
    device, short = _tightest(ledger) if ledger else (None, 0)
    layers, above = _layers(search, chosen)
    layers_device, layers_short = _tightest(above) if above else (None, 0)
    if above and not layers_short:
        layers, layers_device = "goal", None
    return Binds(
        context=limit,
        step_tokens=search.unit,
        device=device,
        misses_by_bytes=short,
        layers=layers,
        layers_device=layers_device,
        layers_miss_bytes=layers_short,
    )


def _context(search: Search, chosen: Candidate) -> tuple[Limit, Ledger | None]:
    """The limit, and the ledger of one step more where memory is the limit."""
    if "n_ctx" in search.fixed:
        return "fixed", None
    if chosen.slot_tokens >= search.trained:
        return "training", None
    ledger = search.ledger(search.settled(one_step_more(search, chosen)))
    if ledger is None:
        return "refused", None
    if min(lefts(ledger)) < 0:
        return "memory", ledger
    return "goal", None


def _layers(search: Search, chosen: Candidate) -> tuple[Limit | None, Ledger | None]:
    """The same for one step less offloaded."""
    if chosen.full:
        return None, None
    launch = one_step_less_offloaded(search, chosen)
    if launch is None:
        level = dict(chosen.level)
        return ("goal" if level in search.levels[1:] or "offload_kqv" in level else "fixed"), None
    ledger = search.ledger(search.settled(launch[0]))
    return ("memory", ledger) if ledger else ("refused", None)


def _tightest(ledger: Ledger) -> tuple[str | None, int]:
    """The line that misses most, and by how much; 0 = none does."""
    left = lefts(ledger)
    worst = min(range(len(left)), key=left.__getitem__)
    if left[worst] >= 0:
        return None, 0
    return ledger.lines[worst].buffer, -left[worst]
