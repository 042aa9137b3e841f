"""How many ledgers a second one core makes, and how the cost grows with the layers.

    python benchmarks/account.py

In processor time, so that what else runs on the machine does not count. On one GPU, each launch
with another context than all before it:

- exact parts: weights, caches and output buffer alone
- whole, new context: with exact compute buffers, the layout's graphs built once before
- whole, asked before: a planner's second look at a setting
- bound: the compute buffers alone, as `plan` asks for them on its way to an edge

And with nothing that was ever asked for before:

- exact parts, new placement: on two GPUs, with layers that never lie as before
- whole, new layout: the same with compute buffers: every graph built, scheduled and allocated
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.gguf.shape import header_of_shape
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.cache import caches
from kvwise.memory.compute import compute
from kvwise.memory.context import resolve
from kvwise.memory.placement import place, select
from kvwise.units import GIB

LAYERS = (10, 20, 40, 80, 160)
SECONDS = 1.0
ONE = (Device("A", "cuda", 24 * GIB, 24 * GIB),)
TWO = (*ONE, Device("B", "cuda", 24 * GIB, 24 * GIB, index=1))
START = Launch(type_k="q8_0", type_v="q8_0")
WARM = 16
"""Calls before the clock starts."""


def model_of(layers: int) -> Model:
    return describe(header_of_shape(f"{layers}x32x128,kv=8,embd=4096,ff=12288,type=q4_K"))


def longer(i: int) -> Launch:
    return replace(START, n_ctx=256 * (16 + i))


def again(i: int) -> Launch:
    return longer(i % WARM)


def moved(i: int) -> Launch:
    share = i * 0.618 % 1  # spreads evenly, never repeats
    return replace(START, n_ctx=8192, tensor_split=(0.02 + share, 1.02 - share), n_ubatch=256 + i)


def rate(once: Callable[[Launch], object], vary: Callable[[int], Launch]) -> float:
    """Calls of `once` a second, each with the next launch."""
    launches = [vary(i) for i in range(WARM)]
    for launch in launches:
        once(launch)
    count, start = 0, time.process_time()
    while (passed := time.process_time() - start) < SECONDS:
        once(vary(WARM + count))
        count += 1
    return count / passed


def only_compute(model: Model) -> Callable[[Launch], object]:
    """The compute buffers of one layout; all else was resolved before the clock started."""
    devices = select(START, ONE)
    placement = place(model, START, devices)
    first = resolve(model, longer(0), placement, devices)
    kept = caches(model, first, placement, devices)

    def once(launch: Launch) -> object:
        context = replace(first, n_ctx=launch.n_ctx, n_ctx_seq=launch.n_ctx)
        cells = tuple(replace(cache, cells=launch.n_ctx) for cache in kept)
        return compute(model, context, placement, cells, launch, devices)

    return once


def main() -> None:
    titles = (
        "exact parts", "whole, new context", "whole, asked before", "bound",
        "parts, new placement", "whole, new layout",
    )  # fmt: skip
    print(f"{'layers':>6}" + "".join(f"{title + '/s':>24}" for title in titles))
    for layers in LAYERS:
        model = model_of(layers)

        def bare(launch: Launch, model: Model = model) -> object:
            return account(model, launch, ONE, compute_mode="none")

        def bare_on_two(launch: Launch, model: Model = model) -> object:
            return account(model, launch, TWO, compute_mode="none")

        def whole(launch: Launch, model: Model = model) -> object:
            return account(model, launch, ONE)

        def whole_on_two(launch: Launch, model: Model = model) -> object:
            return account(model, launch, TWO)

        rates = (
            rate(bare, longer), rate(whole, longer), rate(whole, again),
            rate(only_compute(model), longer), rate(bare_on_two, moved),
            rate(whole_on_two, moved),
        )  # fmt: skip
        print(f"{layers:>6}" + "".join(f"{value:>24,.0f}" for value in rates))


if __name__ == "__main__":
    main()
