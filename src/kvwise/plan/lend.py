"""One layer shared by two GPUs: matrices of its feed-forward part lent to a card with more room.

A split hands out whole layers, so that one card can be full while another has room for a part of a
layer. `-ot` puts single matrices there, which llama.cpp's own `--fit` does too (common/fit.cpp,
b10605: overflow to the next device). It costs pipeline parallelism where there is any
(src/llama-context.cpp: no tensor overrides), so a launch lends only where that buys something.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.memory.placement import override_names
from kvwise.options import change
from kvwise.plan.offload import is_host

_MATRIX = re.compile(r"^blk\.(\d+)\.(ffn_(?:up|gate|gate_up|down)(?:_exps)?)\.")


@dataclass(frozen=True, slots=True)
class Loan:
    """So many bytes of one layer, on another GPU than the layer."""

    layer: int
    parts: tuple[str, ...]
    taker: int
    nbytes: int


def balanced(ledger: Ledger, left: Sequence[int]) -> tuple[list[Loan], list[int]]:
    """Loans that leave the fullest GPU most, and what each line has left then.

    `left`: bytes that each line of `ledger` has left without a loan. A layer lends once, at the
    border to the card that takes; nothing is lent once nothing misses.
    """
    rooms, loans = list(left), list[Loan]()
    gpus = range(ledger.placement.n_gpu)
    for _ in gpus:
        tight = min(gpus, key=rooms.__getitem__, default=0)
        offers = _offers(ledger, tight, rooms, {each.layer for each in loans})
        best = max(offers, key=lambda loan: _then(rooms, tight, loan), default=None)
        if rooms[tight] >= 0 or best is None or _then(rooms, tight, best) <= rooms[tight]:
            break
        rooms[tight] += best.nbytes
        rooms[best.taker] -= best.nbytes
        loans.append(best)
    return loans, rooms


def _then(rooms: Sequence[int], lender: int, loan: Loan) -> int:
    return min(rooms[lender] + loan.nbytes, rooms[loan.taker] - loan.nbytes)


def _offers(
    ledger: Ledger, lender: int, rooms: Sequence[int], lent: Collection[int]
) -> Iterator[Loan]:
    layers = [at for at, home in enumerate(ledger.placement.layers) if home == lender]
    for taker in range(ledger.placement.n_gpu):
        if not layers or taker == lender or rooms[taker] <= rooms[lender]:
            continue
        layer = layers[-1] if taker > lender else layers[0]
        sizes = _sizes(ledger.model).get(layer, {})
        if layer in lent:
            continue
        for count in range(1, len(sizes) + 1):
            for parts in combinations(sorted(sizes), count):
                yield Loan(layer, parts, taker, sum(sizes[part] for part in parts))


@lru_cache(maxsize=32)
def _sizes(model: Model) -> dict[int, dict[str, int]]:
    """Bytes of each matrix that a layer could lend, with its bias and its scales."""
    found: dict[int, dict[str, int]] = {}
    for tensor in model.header.tensors:
        match = _MATRIX.match(tensor.name)
        if match:
            parts = found.setdefault(int(match[1]), {})
            parts[match[2]] = parts.get(match[2], 0) + tensor.nbytes
    return found


def lending(launch: Launch, ledger: Ledger, loans: Sequence[Loan]) -> Launch:
    """The launch with these loans as `-ot`."""
    names = override_names(ledger.devices)
    pairs = tuple(
        (rf"blk\.{each.layer}\.{_either(each.parts)}\.", names[each.taker]) for each in loans
    )
    return change(launch, override_tensor=(*launch.override_tensor, *pairs))


def _either(parts: Sequence[str]) -> str:
    return f"({'|'.join(parts)})" if len(parts) > 1 else parts[0]


def lends(launch: Launch) -> bool:
    """Whether matrices are put on another GPU than their layer."""
    return any(not is_host(buffer) for _, buffer in launch.override_tensor)


def without_loans(launch: Launch) -> Launch:
    """The launch with what is kept on the host, and nothing lent."""
    kept = tuple(pair for pair in launch.override_tensor if is_host(pair[1]))
    return launch if kept == launch.override_tensor else change(launch, override_tensor=kept)


def may_lend(ledger: Ledger) -> bool:
    """Whether everything lies on the GPUs, and there are several: what is on the host already can
    be chosen so that it fills the cards."""
    launch, placement = ledger.launch, ledger.placement
    whole = placement.gpu_layers > ledger.model.n_layer_all
    away = launch.n_cpu_moe or any(is_host(buffer) for _, buffer in launch.override_tensor)
    return placement.n_gpu > 1 and whole and not away
