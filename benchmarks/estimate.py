"""Estimates of compute buffers with the truth known: one architecture after the other left out.

    python benchmarks/estimate.py [--cells N] [--seed N] [--jobs N] [--out FILE]
                                  [ARCHITECTURE or MODEL ...]
    python benchmarks/estimate.py --time [ARCHITECTURE or MODEL ...]

For every model of the zoo the graph of its architecture is put out of sight, and with it those of
all architectures whose graph is made by the same function with the same options (its twins); what
`estimate` then says of N of its measured configurations is compared with what llama.cpp's own pass
said. Without a seed the configurations lie evenly over all, with one they are drawn. Contexts of
MTP layers and processor-specific buffers are left out.

- exact: to the byte; within: 2 % or 4 MiB; under: below the truth by more than 1 % and 2 MiB;
  below: by more than 1 %
- near: a known graph fits the model's weights; composed: one was put together layer by layer;
  closed: neither, a sum of what stands side by side

With `--time` nothing is compared; told are milliseconds of processor time on one CUDA card: to find
the near graphs (once for a model), for a layout never seen, and for another context of it (mean).
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kvwise.arch import describe
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.memory.cache import caches
from kvwise.memory.compute.estimate import estimate
from kvwise.memory.compute.families import BUILDERS
from kvwise.memory.compute.nearest import nearest
from kvwise.memory.compute.reserve import Job, batch, job
from kvwise.memory.compute.uncollected import uncollected
from kvwise.memory.context import CELLS, resolve
from kvwise.memory.placement import place, select
from kvwise.memory.zoo_config import read_config
from kvwise.units import MIB

ZOO = Path(__file__).parents[1] / "tests" / "zoo"
Row = dict[str, Any]
WAYS = ("near", "composed", "closed")
WORST = 15
LENGTHS = range(16, 512, 3)
"""Contexts in blocks of cells, of one layout."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer of one configuration."""

    where: str
    way: str
    mine: int
    truth: int

    @property
    def counts(self) -> Iterator[str]:
        """What it counts as."""
        yield "all"
        less, off = self.truth - self.mine, abs(self.truth - self.mine)
        if not less:
            yield "exact"
        if off <= max(self.truth * 0.02, 4 * MIB):
            yield "within"
        if less > max(self.truth * 0.01, 2 * MIB):
            yield "under"
        if less > self.truth * 0.01:
            yield "below"


def twins(architecture: str) -> frozenset[str]:
    """The architecture and all whose graph is made the same way."""
    own = BUILDERS.get(architecture)
    same = {name for name in BUILDERS if own is not None and _alike(own, BUILDERS[name])}
    return frozenset({architecture, *same})


def _alike(a: object, b: object) -> bool:
    if isinstance(a, partial) and isinstance(b, partial):
        return (a.func, a.args, a.keywords) == (b.func, b.args, b.keywords)
    return a is b


def left_out(name: str, cells: int, seed: int | None = None) -> list[Buffer]:
    """Buffers of `cells` configurations of a model, its architecture and twins unknown."""
    model = describe(open_header(str(ZOO / "models" / f"{name}.json.gz")))
    without = twins(model.architecture)
    found: list[Buffer] = []
    for config, result in picked(name, cells, seed):
        work = resolved(model, config)
        made = estimate(work, batch(model, work.context), without=without)
        way = _way(model, without)
        truth = measured(result, len(made))
        changed = ", ".join(f"{key} {value}" for key, value in config["changed"].items())
        found += [
            Buffer(f"{name} [{number}]: {changed or 'defaults'}", way, mine, real)
            for number, (mine, real) in enumerate(zip(made, truth, strict=True))
            if real
        ]
    return found


def picked(name: str, cells: int, seed: int | None) -> Iterator[tuple[Row, Row]]:
    """That many measured configurations, evenly out of all or drawn."""
    data = json.loads(gzip.decompress((ZOO / "golden" / f"{name}.json.gz").read_bytes()))
    rows = []
    for row in data["results"]:
        config = data["defaults"] | row["config"] | {"changed": row["config"]}
        if row["result"]["ok"] and not config["extra_bufts"] and not config["mtp"]:
            rows.append((config, row["result"]))
    count = min(cells, len(rows))
    if seed is not None:
        yield from random.Random(f"{seed} {name}").sample(rows, count)
        return
    yield from (rows[number * len(rows) // count] for number in range(count))


def resolved(model: Model, config: Row) -> Job:
    zoo = read_config({key: value for key, value in config.items() if key != "changed"})
    devices = select(zoo.launch, zoo.devices)
    placement = place(model, zoo.launch, devices)
    context = resolve(model, zoo.launch, placement, devices)
    kept = caches(model, context, placement, devices)
    return job(model, context, placement, kept, zoo.launch, devices)


def measured(result: Row, count: int) -> list[int]:
    """Bytes per backend, the processor last."""
    found = [0] * count
    for row in result["buffers"]:
        found[-1 if row["host"] else int(row["buffer"].removeprefix("VGPU"))] += row["compute"]
    return found


def _way(model: Model, without: frozenset[str]) -> str:
    near = nearest(model, without)
    if not near:
        return "closed"
    return "composed" if near[0].composed else "near"


def show(buffers: list[Buffer]) -> None:
    for way in ("", *WAYS):
        counts = Counter(kind for b in buffers if way in ("", b.way) for kind in b.counts)
        whole = counts["all"] or 1
        shares = ", ".join(
            f"{kind} {counts[kind]} ({100 * counts[kind] / whole:.2f} %)"
            for kind in ("exact", "within", "under", "below")
        )
        print(f"{way or 'all'}: {counts['all']} buffers, {shares}")
    low = sorted((b for b in buffers if "under" in set(b.counts)), key=lambda b: b.mine / b.truth)
    for b in low[:WORST]:
        print(f"  {b.mine / MIB:.2f} for {b.truth / MIB:.2f} MiB ({b.way}): {b.where}")


def show_time(name: str) -> None:
    """Milliseconds of processor time of a model's estimates, its architecture and twins unknown."""
    model = describe(open_header(str(ZOO / "models" / f"{name}.json.gz")))
    without = twins(model.architecture)
    found = [timed(lambda: nearest(model, without))]
    for blocks in LENGTHS:
        work = resolved(model, {"device": "cuda", "n_ctx": CELLS * blocks})
        size = batch(model, work.context)
        found.append(timed(lambda work=work, size=size: estimate(work, size, without=without)))  # type: ignore[misc]
    nearness, first, *others = found
    print(
        f"{name}: {model.n_layer} layers, {len(nearest(model, without))} near graphs found in "
        f"{nearness:.0f} ms; first {first:.1f} ms, other context {statistics.mean(others):.3f} ms"
    )


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of processor time, with the collector as `compute` has it."""
    with uncollected():
        start = time.process_time()
        call()
        return 1000 * (time.process_time() - start)


def names_of(asked: list[str]) -> list[str]:
    every = sorted(path.name.removesuffix(".json.gz") for path in (ZOO / "golden").glob("*.gz"))
    if not asked:
        return every
    return [name for name in every if name in asked or _architecture(name) in asked]


def _architecture(name: str) -> str:
    return open_header(str(ZOO / "models" / f"{name}.json.gz")).architecture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cells", type=int, default=5)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--time", action="store_true")
    args = parser.parse_args()
    if args.time:
        for name in names_of(args.names):
            show_time(name)
        return
    buffers: list[Buffer] = []
    with ProcessPoolExecutor(args.jobs) as pool:
        tasks = pool.map(partial(left_out, cells=args.cells, seed=args.seed), names_of(args.names))
        for number, more in enumerate(tasks, 1):
            buffers += more
            print(f"\r{number} models, {len(buffers)} buffers", end="", file=sys.stderr)
            if args.out:
                rows = [[b.where, b.way, b.mine, b.truth] for b in buffers]
                args.out.write_text(json.dumps(rows))
    print(file=sys.stderr)
    show(buffers)


if __name__ == "__main__":
    main()
