"""Does `kvwise tune` find what the full grid has, with a fifth of its evaluations?

    python benchmarks/tune.py --measure model.gguf [--engine PATH] [--rounds 3]
    python benchmarks/tune.py [--seeds 200] [--grid benchmarks/tune/grid.json]

The first measures every setting of a grid once per round and keeps each as soon as it is done
(stopped, it goes on where it was). The second replays the search over the kept grid: each
evaluation draws one of the setting's samples, confirmations too. A search is as good as the median
of the setting it recommends (the start, where it recommends none) against the best median of the
grid; it must be within 3 % with at most 20 % of the grid's evaluations.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from kvwise.tune.hunt import Hunt, Limits
from kvwise.tune.knobs import Knob, Point, Space, key_of
from kvwise.tune.measure import Taken

KEPT = Path(__file__).with_name("tune") / "grid.json"
NEAR = 1.03
PROMPT, ANSWER = 256, 64


def grid(cores: int) -> Space:
    """Small enough to be measured whole."""
    threads = tuple(sorted({1, max(1, cores // 2), cores}))
    knobs = (
        Knob("t", threads),
        Knob("ub", (32, 64, 128, 256, 512)),
        Knob("fa", ("auto", "off"), ordered=False),
        Knob("tb", threads),
        Knob("poll", (0, 50)),
    )
    start = (("t", cores), ("ub", 512), ("fa", "auto"), ("tb", cores), ("poll", 50))
    return Space(knobs, start)


def measure(model: str, engine: str | None, rounds: int, path: Path) -> None:
    """Every point once per round; an evaluation that is kept is not measured again."""
    from kvwise import Launch, open_model
    from kvwise.engine.find import find
    from kvwise.options import change
    from kvwise.tune.knobs import launch_of
    from kvwise.tune.measure import Meter, Request

    cores = os.cpu_count() or 1
    space, used = grid(cores), find(engine)
    meter = Meter(open_model(model), used, Request(PROMPT, ANSWER), cores)
    base = change(Launch(), n_ctx=512, n_seq_max=1, fit=False)
    kept = read(path) if path.exists() else {"samples": {}}
    kept |= {
        "model": meter.model.called, "engine": used.name.rpartition("/")[2], "prompt": PROMPT,
        "answer": ANSWER, "knobs": [[k.name, list(k.values), k.ordered] for k in space.knobs],
        "start": [list(pair) for pair in space.start],
    }  # fmt: skip
    points = list(space.points())
    for number in range(rounds):
        order = points[:]
        random.Random(number).shuffle(order)
        for done, point in enumerate(order, 1):
            samples: list[dict[str, Any]] = kept["samples"].setdefault(key_of(point), [])
            if len(samples) > number:
                continue
            taken = meter.take(launch_of(base, point))
            samples.append({"seconds": taken.seconds, "flags": list(taken.flags)})
            scratch = path.with_suffix(".part")
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
            scratch.replace(path)
            print(f"round {number + 1}: {done}/{len(order)} {key_of(point)} {taken.seconds}",
                  file=sys.stderr)  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8")))


def space_of(kept: dict[str, Any]) -> Space:
    knobs = tuple(Knob(name, tuple(values), order) for name, values, order in kept["knobs"])
    return Space(knobs, tuple((name, value) for name, value in kept["start"]))


def replay(kept: dict[str, Any], seed: int) -> tuple[float, float, int]:
    """(time of what is recommended, of the best point that was tried, as shares of the grid's best;
    evaluations) of one search."""
    space = space_of(kept)
    samples = {
        point: [each["seconds"] for each in kept["samples"][key_of(point)] if each["seconds"]]
        for point in space.points()
    }
    medians = {point: statistics.median(found) for point, found in samples.items() if found}
    draw = random.Random(seed)

    def unit(_: str, point: Point) -> Taken:
        found = samples[point]
        return Taken(0.0, 1.0, draw.choice(found) if found else None, 1.0, 1.0)

    hunt = Hunt(space, Limits.of(space, float("inf")), unit, seed=seed)
    _, verdict = hunt.run()
    chosen = verdict.best.point if verdict.best else space.start
    least = min(medians.values())
    tried = min(medians[point] for point, _ in hunt.tried if point in medians)
    return medians[chosen] / least, tried / least, len(hunt.units)


def report(kept: dict[str, Any], seeds: int) -> bool:
    """Print what the replays came to; True when they hold."""
    space = space_of(kept)
    began = time.monotonic()
    found = [replay(kept, seed) for seed in range(seeds)]
    ratios = sorted(ratio for ratio, _, _ in found)
    most = max(count for _, _, count in found)
    near = sum(ratio <= NEAR for ratio in ratios) / len(ratios)
    flagged = sum(bool(each["flags"]) for row in kept["samples"].values() for each in row)
    every = sum(len(row) for row in kept["samples"].values())
    spreads = [
        (max(values) - min(values)) / statistics.median(values)
        for row in kept["samples"].values()
        if len(values := [each["seconds"] for each in row if each["seconds"]]) > 1
    ]
    print(f"{kept['model']}, {kept['engine']}: prompt {kept['prompt']}, answer {kept['answer']}")
    print(f"grid of {space.size} settings, {every} samples, {flagged} beside other work")
    if spreads:
        print(f"samples of one setting differ by {statistics.median(spreads):.1%} (median)")
    print(f"{seeds} searches, at most {most} evaluations each ({most / space.size:.1%})")
    at = [ratios[int(share * (len(ratios) - 1))] for share in (0.5, 0.9, 0.95, 1.0)]
    print("recommended against the grid's best, median 90 % 95 % worst: "
          + " ".join(f"{each:.4f}" for each in at))  # fmt: skip
    print(f"within 3 %: {near:.1%} of searches ({time.monotonic() - began:.1f} s)")
    tried = sorted(each for _, each, _ in found)
    print(f"the best that was tried at all, median and worst: {tried[len(tried) // 2]:.4f} "
          f"{tried[-1]:.4f}")  # fmt: skip
    start = statistics.median(
        each["seconds"] for each in kept["samples"][key_of(space.start)] if each["seconds"]
    )
    print(f"the start itself: {start / _least(kept):.4f}")
    return at[0] <= NEAR and most <= space.size * 0.2


def _least(kept: dict[str, Any]) -> float:
    rows = (
        [each["seconds"] for each in row if each["seconds"]] for row in kept["samples"].values()
    )
    return min(statistics.median(row) for row in rows if row)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", metavar="MODEL")
    parser.add_argument("--engine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--grid", type=Path, default=KEPT)
    given = parser.parse_args()
    if given.measure:
        measure(given.measure, given.engine, given.rounds, given.grid)
    if not given.grid.exists():
        parser.error(f"{given.grid} is not there: measure it first (--measure MODEL)")
    return 0 if report(read(given.grid), given.seeds) else 1


if __name__ == "__main__":
    sys.exit(main())
