"""Writes docs/accuracy.md: every figure that something else knows, beside ours.

    python benchmarks/accuracy [--engine ENGINE]... [--verified FILE]... [--output FILE]

`--engine embedded` or a llama-server also loads the models of packages for real; `--verified` adds
documents that `kvwise verify --json` printed. Takes some ten minutes of one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import drafts
import runs

import page
import reports
import zoo

ROOT = Path(__file__).resolve().parents[2]
BEGAN = time.monotonic()


def progress(words: str) -> None:
    print(f"{time.monotonic() - BEGAN:6.0f} s  {words}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python benchmarks/accuracy")
    parser.add_argument("--engine", action="append", default=[])
    parser.add_argument("--verified", action="append", default=[])
    parser.add_argument("--output", default=str(ROOT / "docs/accuracy.md"))
    given = parser.parse_args()
    loads = [*runs.here(given.engine, progress), *runs.read(given.verified)]
    sources = {
        "b10605, no-alloc": zoo.golden(progress),
        "b11549, no-alloc": zoo.other_build(zoo.ZOO / "b11549.json.gz", progress),
        "b10605, reserved": zoo.reserved("measured-real", progress),
        "b10605, pins": zoo.reserved("real-compute", progress),
        "b10605, drafts": drafts.loaded("b10605", progress),
        "b11549, drafts": drafts.loaded("b11549", progress),
    }
    command = "python benchmarks/accuracy"
    command += "".join(f" --engine {_shown(engine)}" for engine in given.engine)
    text = page.write(command, sources, list(reports.lines()), reports.unlike(), loads)
    Path(given.output).write_text(text, encoding="utf-8")


def _shown(engine: str) -> str:
    return engine if engine == "embedded" else "LLAMA_SERVER"


if __name__ == "__main__":
    main()
