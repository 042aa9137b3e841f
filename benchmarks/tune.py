"""Does `kvwise tune` find what the full grid has, with a fifth of its evaluations?

    python benchmarks/tune.py --measure model.gguf [--engine PATH] [--rounds 3]
    python benchmarks/tune.py [--seeds 200] [--grid benchmarks/tune/grid.json]

The first measures every setting of a grid once per round, a few at a time between two evaluations
of the start, and keeps them (stopped, it goes on where it was). A machine's speed drifts by more
than what is looked for here, so a setting's time is also kept as a share of the start's beside it.
The second replays the search over the kept grid. While it tries settings, which lie minutes apart,
an evaluation draws one of the setting's times with its drift; when it confirms, a few settings
side by side in rounds, one without. A search is as good as the median share of the setting it
recommends (its start, where it recommends none) against the best of the grid; it must be within 3
% with at most 20 % of the grid's evaluations. That is asked from the start that kvwise takes, and
from one drawn at random.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from pathlib import Path
from typing import Any

from kvwise.tune.hunt import Hunt, Limits
from kvwise.tune.knobs import Knob, Point, Space, key_of
from kvwise.tune.measure import Taken

KEPT = Path(__file__).with_name("tune") / "grid.json"
NEAR = 1.03
PROMPT, ANSWER = 256, 64
BESIDE = 4
"""Settings measured between two evaluations of the start."""


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
        left = [p for p in order if len(kept["samples"].get(key_of(p), [])) <= number]
        before = None
        for at in range(0, len(left), BESIDE):
            before = before or meter.take(launch_of(base, space.start)).seconds
            taken = [(p, meter.take(launch_of(base, p))) for p in left[at : at + BESIDE]]
            after = meter.take(launch_of(base, space.start)).seconds
            for point, each in taken:
                kept["samples"].setdefault(key_of(point), []).append(
                    {
                        "seconds": each.seconds, "flags": list(each.flags),
                        "share": share(each.seconds, before, after),
                    }
                )  # fmt: skip
            before = after
            scratch = path.with_suffix(".part")
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
            scratch.replace(path)
            print(f"round {number + 1}: {at + len(taken)}/{len(left)}", file=sys.stderr)


def share(seconds: float | None, before: float | None, after: float | None) -> float | None:
    """Of the start's time around it."""
    return seconds / statistics.mean((before, after)) if seconds and before and after else None


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8")))


def space_of(kept: dict[str, Any]) -> Space:
    knobs = tuple(Knob(name, tuple(values), order) for name, values, order in kept["knobs"])
    return Space(knobs, tuple((name, value) for name, value in kept["start"]))


def replay(kept: dict[str, Any], seed: int, start: Point) -> tuple[float, float, int]:
    """(time of what is recommended, of the best point that was tried, as shares of the grid's best;
    evaluations) of one search."""
    space = Space(space_of(kept).knobs, start)
    samples = {
        point: [each for each in kept["samples"][key_of(point)] if each["share"]]
        for point in space.points()
    }
    medians = shares(kept)
    draw = random.Random(seed)

    def unit(name: str, point: Point) -> Taken:
        found = draw.choice(samples[point]) if samples[point] else None
        drifts = name.startswith("try")
        seconds = found and found["seconds" if drifts else "share"]
        return Taken(0.0, 1.0, seconds, 1.0, 1.0)

    hunt = Hunt(space, Limits.of(space, float("inf")), unit, seed=seed)
    _, verdict = hunt.run()
    chosen = verdict.best.point if verdict.best else start
    least = min(medians.values())
    tried = min(medians[point] for point, _ in hunt.tried if point in medians)
    return medians[chosen] / least, tried / least, len(hunt.units)


def shares(kept: dict[str, Any]) -> dict[Point, float]:
    """The median share of each setting that worked."""
    rows = {
        point: [each["share"] for each in kept["samples"][key_of(point)] if each["share"]]
        for point in space_of(kept).points()
    }
    return {point: statistics.median(row) for point, row in rows.items() if row}


def report(kept: dict[str, Any], seeds: int) -> bool:
    """Print what the replays came to; True when they hold."""
    space = space_of(kept)
    rows = kept["samples"].values()
    flagged = sum(bool(each["flags"]) for row in rows for each in row)
    print(f"{kept['model']}, {kept['engine']}: prompt {kept['prompt']}, answer {kept['answer']}")
    print(
        f"grid of {space.size} settings, {sum(map(len, rows))} samples, {flagged} beside other work"
    )
    for name in ("seconds", "share"):
        spreads = [
            (max(values) - min(values)) / statistics.median(values)
            for row in rows
            if len(values := [each[name] for each in row if each[name]]) > 1
        ]
        if spreads:
            print(f"{name} of one setting differ by {statistics.median(spreads):.1%} (median)")
    found = shares(kept)
    good = sum(each <= NEAR * min(found.values()) for each in found.values())
    print(f"settings within 3 % of the best: {good}; the slowest takes "
          f"{max(found.values()) / min(found.values()):.2f} times its time")  # fmt: skip
    held = replays(kept, "from kvwise's start", [space.start] * seeds)
    points = list(found)
    return held & replays(
        kept, "from any start", [random.Random(seed).choice(points) for seed in range(seeds)]
    )


def replays(kept: dict[str, Any], title: str, starts: list[Point]) -> bool:
    """One search from each start."""
    found = [replay(kept, seed, start) for seed, start in enumerate(starts)]
    ratios = sorted(ratio for ratio, _, _ in found)
    most, size = max(count for _, _, count in found), space_of(kept).size
    at = [ratios[int(part * (len(ratios) - 1))] for part in (0.5, 0.9, 0.95, 1.0)]
    known = shares(kept)
    first = statistics.median(known[start] for start in starts) / min(known.values())
    searches = len(starts)
    print(
        f"{title}: {searches} searches, at most {most} evaluations ({most / size:.1%} of the grid)"
    )
    print(f"  the start against the grid's best (median) {first:.4f}; recommended, median, 90 %, "
          "95 %, worst: " + " ".join(f"{each:.4f}" for each in at))  # fmt: skip
    print(f"  within 3 %: {sum(each <= NEAR for each in ratios) / len(ratios):.1%} of searches")
    tried = sorted(each for _, each, _ in found)
    print(f"  the best that was tried at all, median and worst: {tried[len(tried) // 2]:.4f} "
          f"{tried[-1]:.4f}")  # fmt: skip
    return at[0] <= NEAR and most <= size * 0.2


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
