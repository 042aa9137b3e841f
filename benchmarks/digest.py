"""`kvwise digest` against `llama-bench -embd 1`, and its memory over the length of a text.

    python benchmarks/digest.py MODEL TOOLS [--tokens 512] [--rounds 5] [--threads 2]
    python benchmarks/digest.py MODEL TOOLS --memory

MODEL is an embedding model, TOOLS a folder with llama-bench and llama-server of one build. Speeds
are taken in turn; what a run is compared with is llama-bench just before and just after it, so that
what drifts cancels out (bar: 0.95 by the median of the ratios). Memory
is the peak of the kvwise process itself and of its engine, at 100,000 and 1,200,000 tokens (bar: at
most 64 MiB more). Take the figures on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

MIB = 1 << 20
WORDS = (
    "river", "stone", "market", "window", "letter", "engine", "copper", "garden", "winter",
    "bridge", "paper", "harbour", "candle", "doctor", "valley", "silver", "mountain", "kitchen",
)  # fmt: skip


def text(path: Path, words: int, seed: int) -> None:
    """Sentences of common words: about 1.1 tokens per word with the vocabulary of BERT."""
    dice = random.Random(seed)
    with path.open("w") as file:
        while words > 0:
            length = min(words, dice.randint(8, 20))
            file.write(" ".join(dice.choices(WORDS, k=length)).capitalize() + ". ")
            words -= length


def argv(given: argparse.Namespace, document: Path, out: Path) -> list[str]:
    """The command that a user types, with the engine of the same build as llama-bench."""
    return [
        sys.executable, "-m", "kvwise", "digest", str(document), "--embed-model", given.model,
        "--engine", str(Path(given.tools) / "llama-server"), "--chunk-tokens", str(given.tokens),
        "--borders", "none", "--out", str(out), "-t", str(given.threads), "--json", "-q",
    ]  # fmt: skip


def digest_speed(given: argparse.Namespace, folder: Path, seed: int) -> float:
    """Tokens per second of a whole run, from the first byte read to the last vector kept."""
    document = folder / f"{seed}.txt"
    text(document, given.words, seed)
    out = subprocess.run(
        argv(given, document, folder / f"{seed}.digest"), check=True, capture_output=True, text=True
    )
    run = json.loads(out.stdout)["run"]
    return float(run["tokens"] / run["seconds"])


def bench_speed(given: argparse.Namespace) -> float:
    """Of llama-bench, for a prompt of the same length."""
    size = str(given.tokens)
    out = subprocess.run(
        [str(Path(given.tools) / "llama-bench"), "-m", given.model, "-embd", "1", "-p", size, "-n",
         "0", "-b", size, "-ub", size, "-t", str(given.threads), "-r", "20", "-o", "json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(json.loads(out.stdout)[0]["avg_ts"])


def speed(given: argparse.Namespace) -> int:
    """Each run beside what llama-bench gave before and after it, and the median of the ratios."""
    ratios = []
    with tempfile.TemporaryDirectory() as scratch:
        before = bench_speed(given)
        for number in range(given.rounds):
            ours = digest_speed(given, Path(scratch), number)
            after = bench_speed(given)
            ratios.append(ours / statistics.mean((before, after)))
            print(
                f"{number + 1}: llama-bench {before:.1f} and {after:.1f}, digest {ours:.1f} "
                f"tokens/s, ratio {ratios[-1]:.3f}"
            )
            before = after
    ratio = statistics.median(ratios)
    print(
        f"chunks of {given.tokens}: ratio {ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f}), "
        "bar 0.95"
    )
    return 0 if ratio >= 0.95 else 1


def peaks(given: argparse.Namespace, words: int, folder: Path) -> tuple[int, int, int]:
    """Peak bytes of kvwise and of everything it started, and tokens."""
    document = folder / f"{words}.txt"
    text(document, words, 1)
    answer = folder / f"{words}.json"
    with answer.open("w") as file:
        child = subprocess.Popen(argv(given, document, folder / f"{words}.digest"), stdout=file)
    own = engines = 0
    above = psutil.Process(child.pid)
    while child.poll() is None:
        try:
            own = max(own, above.memory_info().rss)
            below = above.children(recursive=True)
            engines = max(engines, sum(each.memory_info().rss for each in below))
        except psutil.Error:
            pass
        time.sleep(0.02)
    tokens = int(json.loads(answer.read_text())["run"]["tokens"])
    return own, engines, tokens


def memory(given: argparse.Namespace) -> int:
    """A short and a long text."""
    with tempfile.TemporaryDirectory() as scratch:
        found = [peaks(given, words, Path(scratch)) for words in given.lengths]
    for own, engines, tokens in found:
        print(f"{tokens:,} tokens: kvwise {own / MIB:.1f} MiB, its engine {engines / MIB:.1f} MiB")
    more = (found[-1][0] - found[0][0]) / MIB
    print(f"kvwise takes {more:.1f} MiB more for the long text (bar 64)")
    return 0 if more <= 64 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("tools")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--words", type=int, default=60_000, help="of the text of a speed run")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False) or 1)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--lengths", type=int, nargs=2, default=(90_000, 1_090_000),
                        help="words of the texts (100,000 and 1.2M tokens)")  # fmt: skip
    given = parser.parse_args()
    return memory(given) if given.memory else speed(given)


if __name__ == "__main__":
    raise SystemExit(main())
