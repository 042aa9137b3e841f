"""What binds `kvwise digest` on 1, 2, 100 and 10,000 engines: a simulation of measured unit times.

    python benchmarks/digest_scale.py MODEL [--text FILE] [--gpu-params 568e6 --gpu-tflops 100]

Measured here with MODEL, an embedding model: what one process pays per chunk (reading, cutting and
tokenising; one durable commit to SQLite), bytes over the network per chunk, and the time of a chunk
in the engine. The table is simulated: a process that feeds engines one chunk at a time, each engine
with two chunks in hand, as the command does it. The lines for GPUs take 2 x parameters x tokens
operations per chunk at a sustained rate: an assumption, written beside them.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from kvwise.digest.by_words import ByWords, whole_words
from kvwise.digest.chunker import Chunk, Chunker, Rules
from kvwise.digest.engines import EngineTokenizer, embed
from kvwise.digest.extract import Place
from kvwise.digest.reading import Text, Window
from kvwise.digest.shelf import RUNNING, Document, Shelf, key_of
from kvwise.engine.server import Server
from kvwise.engine.settings import Run
from kvwise.launch import Launch

IN_HAND = 2
WORDS = ("river", "stone", "market", "window", "letter", "engine", "copper", "garden", "winter")


@dataclass(frozen=True, slots=True)
class Units:
    """Seconds per chunk in the process that feeds (cutting, keeping), in an engine; bytes."""

    cut_s: float
    keep_s: float
    embed_s: tuple[float, ...]
    sent_bytes: int
    received_bytes: int

    @property
    def serial_s(self) -> float:
        return self.cut_s + self.keep_s


def measure(model: str, tokens: int, chunks: int, threads: int, text: Path | None) -> Units:
    """Unit times on this machine, now."""
    launch = Launch(n_ctx=tokens, n_batch=tokens, n_ubatch=tokens, embeddings=True, fit=False)
    with (
        tempfile.TemporaryDirectory() as scratch,
        Server.start(model, launch, run=Run(threads=threads)) as server,
    ):
        folder, dice = Path(scratch), random.Random(0)
        path = folder / "text.txt"
        made = "".join(
            " ".join(dice.choices(WORDS, k=12)) + ". " for _ in range(tokens * chunks // 10)
        )
        path.write_text(made if text is None else text.read_text("utf-8")[: 1 << 20])
        tokenizer = (ByWords if whole_words(model) else EngineTokenizer)(server)
        began = time.perf_counter()
        with Window(Text(path)) as window:
            cut = list(Chunker(window, tokenizer, Rules(tokens, tokenizer.special())))
        cut_s = (time.perf_counter() - began) / len(cut)
        embed_s, vector = [], b""
        for chunk in cut[:chunks]:
            began = time.perf_counter()
            (vector,) = embed(server, [chunk.ids or ()])
            embed_s.append(time.perf_counter() - began)
        keep_s = keep_time(folder, cut, vector)
        sent = len(json.dumps({"input": [list(cut[0].ids or ())], "encoding_format": "base64"}))
        return Units(cut_s, keep_s, tuple(embed_s), sent, len(vector) * 4 // 3 + 200)


def keep_time(folder: Path, cut: list[Chunk], vector: bytes) -> float:
    """Seconds of one chunk's durable commit."""
    with Shelf(folder) as shelf:
        shelf.agree({})
        shelf.begin(Document("a", "a", "plain", "", RUNNING, None, "utf-8", 0))
        began = time.perf_counter()
        for chunk in cut:
            shelf.keep("a", chunk, Place(), key_of(chunk.ids or ()), vector)
        return (time.perf_counter() - began) / len(cut)


def simulate(engines: int, chunks: int, serial_s: float, unit_s: tuple[float, ...]) -> float:
    """Efficiency: time that engines compute, divided by all the time they are there."""
    dice = random.Random(1)
    slots = [(0.0, number) for number in range(engines) for _ in range(IN_HAND)]
    heapq.heapify(slots)
    free = [0.0] * engines
    feeder = computed = end = 0.0
    for _ in range(chunks):
        ready, number = heapq.heappop(slots)
        feeder = max(feeder, ready) + serial_s
        takes = dice.choice(unit_s)
        done = max(feeder, free[number]) + takes
        free[number] = done
        computed += takes
        end = max(end, done)
        heapq.heappush(slots, (done, number))
    return computed / (engines * end)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--text", type=Path, help="a real one, of which 1 MB is cut")
    parser.add_argument("--chunk-tokens", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=24)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gpu-params", type=float, default=568e6)
    parser.add_argument("--gpu-tflops", type=float, default=100.0)
    given = parser.parse_args()
    units = measure(given.model, given.chunk_tokens, given.chunks, given.threads, given.text)
    median = statistics.median(units.embed_s)
    print(f"per chunk of {given.chunk_tokens} tokens, measured here:")
    print(f"  cut and tokenised    {units.cut_s * 1e3:8.2f} ms, by one process")
    print(f"  kept (SQLite commit) {units.keep_s * 1e3:8.2f} ms, by one process")
    print(f"  embedded             {median * 1e3:8.2f} ms, {given.threads} threads")
    print(f"  over the network     {units.sent_bytes:,} bytes out, {units.received_bytes:,} back")
    gpu_s = 2 * given.gpu_params * given.chunk_tokens / (given.gpu_tflops * 1e12)
    rows = [("this engine", units.embed_s, (1, 2)), ("GPU (assumed)", (gpu_s,), (1, 100, 10_000))]
    print(f"GPU: {given.gpu_params:.3g} parameters at {given.gpu_tflops:g} TFLOP/s: "
          f"{gpu_s * 1e3:.2f} ms per chunk")  # fmt: skip
    print("engines        number  efficiency  tokens/s    network MB/s  (simulated)")
    for name, unit_s, numbers in rows:
        for number in numbers:
            chunks = max(400, 4 * number)
            share = simulate(number, chunks, units.serial_s, unit_s)
            rate = share * number / statistics.fmean(unit_s)
            network = rate * (units.sent_bytes + units.received_bytes) / 1e6
            print(f"{name:14} {number:6,}  {share:9.1%}  {rate * given.chunk_tokens:10,.0f}  "
                  f"{network:10.2f}")  # fmt: skip
    for name, cost in (("tokenising", units.cut_s), ("commits", units.keep_s)):
        print(f"{name} alone would feed {median / cost:,.0f} engines like this one, "
              f"{gpu_s / cost:,.1f} such GPUs")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
