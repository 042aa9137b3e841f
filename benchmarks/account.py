"""How many ledgers a second one core makes, and how the cost grows with the layers.

    python benchmarks/account.py

- exact parts: weights, caches and output buffer, another context every time
- new placement: the same, on two GPUs with layers that never lie as before
- known compute: whole ledgers whose compute buffers were asked for earlier (a planner's second
  look at a setting; the rest is made anew)
- new compute: whole ledgers, every compute buffer simulated from the graph
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
from kvwise.units import GIB

LAYERS = (10, 20, 40, 80, 160)
SECONDS = 1.0
ONE = (Device("A", "cuda", 24 * GIB, 24 * GIB),)
TWO = (*ONE, Device("B", "cuda", 24 * GIB, 24 * GIB, index=1))
START = Launch(type_k="q8_0", type_v="q8_0")


def model_of(layers: int) -> Model:
    return describe(header_of_shape(f"{layers}x32x128,kv=8,embd=4096,ff=12288,type=q4_K"))


def longer(i: int) -> Launch:
    return replace(START, n_ctx=256 * (1 + i))


def moved(i: int) -> Launch:
    share = i * 0.618 % 1  # spreads evenly, never repeats
    return replace(START, n_ctx=8192, n_gpu_layers=i * 7 % 163, tensor_split=(share, 1 - share))


def again(i: int) -> Launch:
    return longer(i % 8)


def rate(once: Callable[[Launch], object], vary: Callable[[int], Launch], warm: int = 1) -> float:
    """Calls of `once` a second, each with the next launch."""
    for i in range(warm):
        once(vary(i))
    count, start = warm, time.perf_counter()
    while (passed := time.perf_counter() - start) < SECONDS:
        once(vary(count))
        count += 1
    return (count - warm) / passed


def main() -> None:
    titles = ("exact parts", "new placement", "known compute", "new compute")
    print(f"{'layers':>8}" + "".join(f"{title + '/s':>18}" for title in titles))
    for layers in LAYERS:
        model = model_of(layers)
        rates = (
            rate(
                lambda launch, model=model: account(model, launch, ONE, compute_mode="none"), longer
            ),
            rate(
                lambda launch, model=model: account(model, launch, TWO, compute_mode="none"), moved
            ),
            rate(lambda launch, model=model: account(model, launch, ONE), again, warm=8),
            rate(lambda launch, model=model: account(model, launch, ONE), longer),
        )
        print(f"{layers:>8}" + "".join(f"{value:>18,.0f}" for value in rates))


if __name__ == "__main__":
    main()
