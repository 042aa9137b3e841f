"""How `kvwise digest --on ray` scales on this machine: nodes of one CPU, engines of one thread.

    python benchmarks/digest_ray.py MODEL [--text FILE] [--nodes 1,2] [--rounds 3]

MODEL embeds; the text is FILE's beginning, or made. Every round digests the text with one engine
and no Ray, then on clusters of each size, all by the same command, each time into a new folder. The
rate is tokens of the run by the seconds that the command says it embedded: cluster, actors and
engines are up by then. Efficiency = the median rate by that of one node times the nodes; what Ray
itself costs is one node beside no Ray. All folders must hold the same chunks and vectors.

Engines of one thread need a core each, and the command and Ray take a little of one too: with more
nodes than cores, or with other work on the machine, the figures say nothing. So nothing is measured
while the load of the last minute is 1 or more, unless --busy says that it may be.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WORDS = ("river", "stone", "market", "window", "letter", "engine", "copper", "garden", "winter")
WAIT_S = 600


def text_of(given: Path | None, size: int) -> str:
    """About `size` bytes."""
    if given is not None:
        return given.read_bytes()[:size].decode("utf-8", "ignore")
    dice = random.Random(0)
    made = ""
    while len(made) < size:
        made += " ".join(dice.choices(WORDS, k=12)).capitalize() + ". "
    return made[:size]


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """The address of a Ray cluster of nodes with one CPU each, on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        for _ in range(nodes - 1):
            made.add_node(num_cpus=1)
        yield made.address
    finally:
        made.shutdown()


def digest(model: str, text: Path, out: Path, tokens: int, *more: str) -> dict[str, Any]:
    """One run of the command; its document, and a hash of its chunks and vectors."""
    argv = [
        sys.executable, "-m", "kvwise", "digest", str(text), "--embed-model", model,
        "--out", str(out), "--chunk-tokens", str(tokens), "-t", "1", "--json", *more,
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"digest_ray: {' '.join(argv)}\n{done.stdout}{done.stderr}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def kept(out: Path) -> str:
    """A hash of all chunks, their places and their vectors."""
    from kvwise.digest.shelf import Shelf

    found = hashlib.sha256()
    with Shelf(out) as shelf:
        for row in shelf.chunks():
            found.update(f"{row.start} {row.end} {row.tokens} ".encode())
            found.update(shelf.vector(row.vector))
    return found.hexdigest()


def measure(
    model: str, text: Path, tokens: int, ways: Sequence[int], folder: Path
) -> Iterator[Any]:
    """(nodes, rate, hash) of one round; 0 nodes = without Ray."""
    for nodes in ways:
        out = folder / f"{nodes}-{time.monotonic_ns()}"
        if nodes:
            with cluster(nodes) as address:
                run = digest(model, text, out, tokens, "--on", f"ray:{address}")["run"]
        else:
            run = digest(model, text, out, tokens)["run"]
        yield nodes, run["tokens"] / run["seconds"], kept(out)


def quiet(*, busy: bool) -> None:
    """Waits until nothing else runs; gives up after ten minutes."""
    began = time.monotonic()
    while not busy and os.getloadavg()[0] >= 1:
        if time.monotonic() - began > WAIT_S:
            sys.exit("digest_ray: other work does not end (load 1 or more): --busy measures anyway")
        time.sleep(5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--nodes", default="1,2", help="sizes of clusters")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kilobytes", type=int, default=512)
    parser.add_argument("--chunk-tokens", type=int, default=512)
    parser.add_argument("--busy", action="store_true", help="measure whatever else runs")
    given = parser.parse_args()
    ways = [0, *(int(each) for each in given.nodes.split(","))]
    rates: dict[int, list[float]] = {nodes: [] for nodes in ways}
    hashes: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="kvwise-ray-") as scratch:
        folder = Path(scratch)
        text = folder / "text.txt"
        text.write_text(text_of(given.text, given.kilobytes << 10), "utf-8")
        for number in range(given.rounds):
            quiet(busy=given.busy)
            order = ways if number % 2 == 0 else ways[::-1]  # a drift favours nobody
            for nodes, rate, found in measure(given.model, text, given.chunk_tokens, order, folder):
                rates[nodes].append(rate)
                hashes.add(found)
                print(
                    f"round {number + 1}: {nodes or 'no'} node(s) {rate:,.0f} tokens/s", flush=True
                )
    one = statistics.median(rates.get(1) or rates[0])
    beside = ", measured beside other work: no figures to publish" if given.busy else ""
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end{beside}")
    print("engines            tokens/s   least    most   efficiency")
    for nodes, found in rates.items():
        name = f"{nodes} on Ray" if nodes else "1 without Ray"
        share = statistics.median(found) / (one * max(1, nodes))
        print(f"{name:16} {statistics.median(found):10,.0f} {min(found):7,.0f} {max(found):7,.0f} "
              f"{share:12.1%}")  # fmt: skip
    print("the same chunks and vectors everywhere" if len(hashes) == 1 else
          f"{len(hashes)} different sets of chunks and vectors")  # fmt: skip
    return 0 if len(hashes) == 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
