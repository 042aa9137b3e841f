"""Which expert matrices stay on the host: so few that what is left on each GPU is no use to one.

A level takes them layer by layer; files quantize the layers differently, so that another choice of
matrices often fills a card better. Every matrix is read in the same share, so the best choice is
the one with the fewest bytes on the host.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kvwise.gguf.model import Model
from kvwise.memory.ledger import Ledger
from kvwise.memory.placement import HOST
from kvwise.memory.weights import weigh

_NAME = re.compile(r"^blk\.(\d+)\.ffn_(up|gate|gate_up|down)_exps\.weight$")
_MOST_MOVES = 64


@dataclass(frozen=True, slots=True)
class Matrix:
    """All experts' weights of one part of a layer."""

    layer: int
    part: str
    name: str
    nbytes: int


@lru_cache(maxsize=64)
def matrices(model: Model) -> tuple[Matrix, ...]:
    """The expert matrices of a model, from the first layer on."""
    found = []
    for tensor in model.header.tensors:
        match = _NAME.match(tensor.name)
        if match and int(match[1]) < model.n_layer_all:
            found.append(Matrix(int(match[1]), match[2], tensor.name, tensor.nbytes))
    return tuple(sorted(found, key=lambda each: (each.layer, each.part)))


def on_host(ledger: Ledger) -> dict[int, list[Matrix]]:
    """GPU number -> matrices of its layers that lie on the host."""
    placement = ledger.placement
    gpus = ledger.devices[: placement.n_gpu]
    where = weigh(ledger.model, ledger.launch, placement, gpus).where
    found: dict[int, list[Matrix]] = {}
    for each in matrices(ledger.model):
        home = placement.of(each.layer)
        if home != HOST and where.get(each.name) == HOST:
            found.setdefault(home, []).append(each)
    return found


def count_on_host(ledger: Ledger) -> int:
    """How many expert matrices of the GPUs' layers lie on the host."""
    return sum(map(len, on_host(ledger).values()))


def packed(ledger: Ledger, left: Sequence[int]) -> set[Matrix] | None:
    """The matrices to keep on the host when each GPU has `left` bytes to fill; None = as they are.

    One matrix at a time comes over, alone or for a smaller one, whatever fills the GPU most.
    """
    away = on_host(ledger)
    kept: set[Matrix] = set()
    changed = False
    for home, gone in away.items():
        mine = [each for each in matrices(ledger.model) if ledger.placement.of(each.layer) == home]
        better = _fewest(gone, mine, left[home])
        changed = changed or better != set(gone)
        kept |= better
    return kept if changed else None


def _fewest(gone: Iterable[Matrix], mine: Sequence[Matrix], left: int) -> set[Matrix]:
    host = set(gone)
    for _ in range(_MOST_MOVES):
        gain, moves = 0, None
        sizes = {each.nbytes: each for each in reversed(mine) if each not in host}
        for comes in {each.nbytes: each for each in sorted(host, key=_place)}.values():
            for goes in (None, *sizes.values()):
                more = comes.nbytes - (goes.nbytes if goes else 0)
                if gain < more <= left:
                    gain, moves = more, (comes, goes)
        if moves is None:
            break
        host.discard(moves[0])
        if moves[1]:
            host.add(moves[1])
        left -= gain
    return host


def _place(matrix: Matrix) -> tuple[int, str]:
    return matrix.layer, matrix.part


def without_one(ledger: Ledger) -> set[Matrix] | None:
    """The matrices on the host but for the smallest; None where there is none."""
    host = {each for rows in on_host(ledger).values() for each in rows}
    if not host:
        return None
    return host - {min(host, key=lambda each: (each.nbytes, _place(each)))}


def fields_of(model: Model, host: Collection[Matrix]) -> dict[str, Any]:
    """The fields of a launch that keep exactly these matrices on the host.

    Whole first layers as `-ncmoe`, the rest by one pattern for all parts of the same layers.
    """
    whole = 0
    by_layer: dict[int, set[Matrix]] = {}
    for each in matrices(model):
        by_layer.setdefault(each.layer, set()).add(each)
    for layer in sorted(by_layer):
        if not by_layer[layer] <= set(host):
            break
        whole = layer + 1
    layers: dict[str, list[int]] = {}
    for each in sorted(host, key=_place):
        if each.layer >= whole:
            layers.setdefault(each.part, []).append(each.layer)
    parts: dict[tuple[int, ...], list[str]] = {}
    for part, numbers in layers.items():
        parts.setdefault(tuple(numbers), []).append(part)
    patterns = tuple((_pattern(numbers, names), "CPU") for numbers, names in parts.items())
    return {"n_cpu_moe": whole, "override_tensor": patterns}


def _pattern(layers: Sequence[int], parts: Sequence[str]) -> str:
    return rf"blk\.{_either(layers)}\.ffn_{_either(parts)}_exps"


def _either(words: Sequence[object]) -> str:
    text = "|".join(map(str, words))
    return f"({text})" if len(words) > 1 else text
