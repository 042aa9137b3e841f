"""Which expert matrices stay on the host: so few that what is left on each GPU is no use to one.

A level takes them layer by layer; files quantize the layers differently, so that another choice of
matrices often fills a card better. Every matrix is read in the same share, so the best choice is
the one with the fewest bytes on the host.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from kvwise.gguf.model import Model
from kvwise.memory.ledger import Ledger
from kvwise.memory.placement import HOST
from kvwise.memory.weights import weigh
from kvwise.units import MIB

_ABOUT = 1.01
_BROKEN = 2 * MIB  # what a host reads while a token goes there and back once more
_SUMS = 12  # how many ways to fill the GPUs are looked at
_NAME = re.compile(r"^blk\.(\d+)\.ffn_(up|gate|gate_up|down)_exps\.weight$")


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
    if not ledger.model.n_expert:
        return {}
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


def packed(ledger: Ledger, left: Sequence[int], *, last: bool = False) -> set[Matrix] | None:
    """The matrices to keep on the host when each GPU has `left` bytes to fill; None = as they are.

    Of all choices one with the fewest bytes on the host, of the first layers, or of the `last`.
    """
    away, homes = on_host(ledger), ledger.placement.layers
    kept: set[Matrix] = set()
    changed = False
    used = ledger.model.n_expert_used / max(1, ledger.model.n_expert) or 1.0
    broken = round(_BROKEN / used)
    for home in sorted(set(homes) - {HOST}):
        gone = away.get(home, [])
        if not gone and left[home] >= 0:
            continue
        mine = [each for each in matrices(ledger.model) if ledger.placement.of(each.layer) == home]
        better = _fewest(gone, mine, left[home], broken, last=last)
        changed = changed or better != set(gone)
        kept |= better
    return kept if changed else None


def _fewest(
    gone: Sequence[Matrix], mine: Sequence[Matrix], left: int, broken: int, *, last: bool
) -> set[Matrix]:
    """About the fewest bytes: less than a hundredth more may buy that fewer layers are broken up,
    of which each is worth `broken` bytes: every token goes to the host and back there. Never more
    than when layers leave in turn, which is how llama.cpp's `--fit` fills a card."""
    now = sum(each.nbytes for each in gone)
    sizes = Counter(each.nbytes for each in mine)
    most = float(_in_turn(mine, now - left, last=last))
    cheapest, found = 0, set(gone)
    for number, counts in enumerate(islice(sums(sizes, now - left), _SUMS)):
        total = sum(size * count for size, count in counts.items())
        most = most if number else min(most, total * _ABOUT)
        if total > most or (not last and total >= now and left >= 0):
            break
        host = _of_sizes(mine, counts, last=last)
        cost = total + broken * len({each.layer for each in host})
        if not cheapest or cost < cheapest:
            cheapest, found = cost, host
    if found and not last and now and left >= 0:
        as_is = now + broken * len({each.layer for each in gone})
        return set(gone) if as_is <= cheapest and now <= most else found
    return found


def _in_turn(mine: Sequence[Matrix], least: int, *, last: bool) -> int:
    """Bytes on the host when layers leave as a whole, one after the other, until `least` bytes
    have left, and of the layer where that ends so few matrices as will do."""
    gone = 0
    for rows in _by_layer(mine, last=last).values():
        sizes = [each.nbytes for each in rows]
        if gone + sum(sizes) >= least:
            return gone + next(
                sum(size * count for size, count in counts.items())
                for counts in sums(Counter(sizes), least - gone)
            )
        gone += sum(sizes)
    return gone


def sums(sizes: Mapping[int, int], least: int) -> Iterator[dict[int, int]]:
    """How many of each size (size -> how many there are) add up to each sum that can be had, the
    least that is not below `least` first.

    Sums that can be had are bits of a number, so that adding a size is a shift.
    """
    unit = math.gcd(*sizes) if sizes else 1
    reached = [1]
    for size, count in sizes.items():
        reached.append(_with_more(reached[-1], size // unit, count))
    target = max(0, -(-least // unit))
    while above := reached[-1] >> target:
        target += (above & -above).bit_length() - 1
        yield _counts(sizes, reached, target, unit)
        target += 1


def _counts(
    sizes: Mapping[int, int], reached: Sequence[int], rest: int, unit: int
) -> dict[int, int]:
    found: dict[int, int] = {}
    for (size, count), before in reversed(list(zip(sizes.items(), reached, strict=False))):
        step = size // unit
        most = min(count, rest // step)
        found[size] = next(n for n in range(most, -1, -1) if before >> rest - n * step & 1)
        rest -= found[size] * step
    return found


def _with_more(before: int, step: int, count: int) -> int:
    """The sums with 0 to `count` times `step` added, by doublings."""
    done = 0
    while done < count:
        more = min(done + 1, count - done)
        before |= before << step * more
        done += more
    return before


def _of_sizes(mine: Sequence[Matrix], counts: Mapping[int, int], *, last: bool) -> set[Matrix]:
    """So many matrices of each size: layers as a whole where that goes, in order."""
    left = dict(counts)
    by_layer = _by_layer(mine, last=last)
    found: set[Matrix] = set()
    for whole in (True, False):
        for rows in by_layer.values():
            need = Counter(each.nbytes for each in rows)
            if whole and any(left.get(size, 0) < n for size, n in need.items()):
                continue
            for each in rows:
                if each not in found and left.get(each.nbytes, 0):
                    left[each.nbytes] -= 1
                    found.add(each)
    return found


def _by_layer(mine: Sequence[Matrix], *, last: bool) -> dict[int, list[Matrix]]:
    """The matrices of each layer, from the first layer on or from the last."""
    found: dict[int, list[Matrix]] = {}
    for each in sorted(mine, key=_place, reverse=last):
        found.setdefault(each.layer, []).append(each)
    return found


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
