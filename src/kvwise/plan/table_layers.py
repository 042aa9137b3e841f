"""How many layers go on the GPUs beside a context that does not fit with all of them."""

from __future__ import annotations

from collections.abc import Callable

from kvwise.launch import Launch
from kvwise.options import change
from kvwise.plan.taken import Curve, Machine, fits


def most_layers(
    curve_of: Callable[[Machine, Launch], Curve],
    machine: Machine,
    launch: Launch,
    n_ctx: int,
    everything: int,
) -> int | None:
    """The largest `-ngl` below `everything` with which the context fits; None if none does.

    Weights and caches alone grow with every layer, so they bound it from above; the compute
    buffer, which takes a graph for each count, is asked for from there downward.
    """

    def curve(layers: int) -> Curve:
        return curve_of(machine, change(launch, n_gpu_layers=layers))

    low, high = -1, everything  # `low` is thought to fit, `high` does not
    while high - low > 1:
        middle = (low + high) // 2
        if fits(curve(middle).bare(n_ctx), machine):
            low = middle
        else:
            high = middle
    while low >= 0 and not fits(curve(low).at(n_ctx), machine):
        low -= 1
    return low if low >= 0 else None
