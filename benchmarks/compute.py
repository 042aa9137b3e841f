"""Milliseconds of processor time for the compute buffers of one setting.

    python benchmarks/compute.py [MODEL ...]      (zoo JSON or GGUF; default: three of the zoo)

- build, simulate: a graph made and allocated for this setting alone
- first: what `compute` takes for a layout never seen
- other context: what it takes for another length of the same layout (mean; `runs` says how often
  the allocator had to run for them, all other lengths lay between two runs)
- remembered: the same setting again
- bound: the form that never says less, over micro-batches and outputs too, once its layout is known
  (mean), and how many times the exact figure of the first GPU it is (least, median, most)

Each line once with flash attention and once without, where scores grow with the context.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kvwise.arch import describe
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.launch import Launch
from kvwise.memory.cache import caches
from kvwise.memory.compute import compute
from kvwise.memory.compute.bound import bound
from kvwise.memory.compute.reserve import Job, build, job, sizes
from kvwise.memory.compute.tape import Run, Tape
from kvwise.memory.context import resolve
from kvwise.memory.placement import place, select
from kvwise.memory.zoo_config import read_config

ZOO = Path(__file__).parents[1] / "tests" / "zoo" / "models"
DEFAULT = [str(ZOO / f"{name}.json.gz") for name in ("llama-2-7b", "qwen3-8b", "qwen3-30b-a3b")]
ROUNDS = 10
LENGTHS = [256 * blocks for blocks in range(16, 512, 3)]


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of processor time."""
    start = time.process_time()
    call()
    return 1000 * (time.process_time() - start)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Takes down how often the allocator runs."""
    runs: list[int] = []
    play = Tape.play

    def noted(tape: Tape, blocks: int) -> Run:
        runs.append(blocks)
        return play(tape, blocks)

    Tape.play = noted  # type: ignore[method-assign]
    try:
        yield runs
    finally:
        Tape.play = play  # type: ignore[method-assign]


def resolved(model: Model, launch: Launch) -> tuple[Job, Callable[[], object]]:
    """The job of a launch on one CUDA card, and the call that asks for its compute buffers."""
    devices = select(launch, read_config({"device": "cuda"}).devices)
    placement = place(model, launch, devices)
    context = resolve(model, launch, placement, devices)
    kept = caches(model, context, placement, devices)
    work = job(model, context, placement, kept, launch, devices)
    return work, lambda: compute(model, context, placement, kept, launch, devices)


def bounded(model: Model, launch: Launch) -> tuple[Callable[[], object], float]:
    """The call that asks for the bound, and how many times the exact figure it is."""
    devices = select(launch, read_config({"device": "cuda"}).devices)
    placement = place(model, launch, devices)
    context = resolve(model, launch, placement, devices)
    kept = caches(model, context, placement, devices)
    exact = compute(model, context, placement, kept, launch, devices)
    most = bound(model, context, placement, kept, launch, devices) or [0]
    return (
        lambda: bound(model, context, placement, kept, launch, devices),
        most[0] / exact.by_buffer[0],
    )


def measure(path: str, flash_attn: str) -> None:
    header = open_header(path)
    model = describe(header)
    start = Launch(n_ctx=4096, flash_attn=flash_attn)
    work, _ = resolved(model, start)
    graph = build(work)
    parts = {
        "build": statistics.median(timed(lambda: build(work)) for _ in range(ROUNDS)),
        "simulate": statistics.median(
            timed(lambda: sizes(work, graph, pinned=True)) for _ in range(ROUNDS)
        ),
        # a model described anew is one that nobody asked for
        "first": statistics.median(
            timed(resolved(describe(header), start)[1]) for _ in range(ROUNDS)
        ),
    }
    calls = [resolved(model, replace(start, n_ctx=n_ctx))[1] for n_ctx in LENGTHS]
    timed(calls[0])
    with counted() as runs:
        parts["other context"] = statistics.mean(timed(call) for call in calls[1:])
    parts["remembered"] = statistics.mean(timed(call) for call in calls)
    forms = [
        bounded(model, replace(start, n_ctx=n_ctx, n_ubatch=n_ubatch, n_outputs_max=n_outputs))
        for n_ctx in (4096, 32768)
        for n_ubatch in (128, 512, 2048)
        for n_outputs in (1, n_ubatch)
    ]
    parts["bound"] = statistics.mean(timed(ask) for ask, _ in forms)
    ratios = sorted(ratio for _, ratio in forms)
    shown = ", ".join(f"{name} {value:.3f} ms" for name, value in parts.items())
    print(
        f"{model.name or Path(path).name}, flash attention {flash_attn}: {model.n_layer} layers, "
        f"{len(graph.nodes)} nodes: {shown}; {len(runs)} runs for {len(calls) - 1} lengths; bound "
        f"{ratios[0]:.2f}, {statistics.median(ratios):.2f}, {ratios[-1]:.2f} times the exact figure"
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or DEFAULT:
        measure(name, "on")
        measure(name, "off")
