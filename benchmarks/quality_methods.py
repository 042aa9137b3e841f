"""The two ways to a KL divergence, side by side on one engine: llama-perplexity and HTTP.

    python benchmarks/quality_methods.py MODEL.gguf --engine FOLDER [--chunks N] [--threads N]

FOLDER has a llama-server and a llama-perplexity of one build. The text, the positions and the
settings are the same; what may differ is the noise of each way, which is printed beside.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvwise.engine.find import find
from kvwise.launch import Launch
from kvwise.opening import open_model
from kvwise.quality import Request, measure
from kvwise.store import Store

PAIRS = ("q8_0/q8_0", "q4_0/f16", "f16/q4_0", "q4_0/q4_0")
WITHIN = 0.15


def table(request: Request) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(types, figures of llama-perplexity, figures over HTTP) of each setting."""
    with Store() as store:
        both = [
            measure(replace(request, method=method), store)  # type: ignore[arg-type]
            for method in ("llama-perplexity", "http")
        ]
    for one, other in zip(*both, strict=True):
        types = f"{one.settings['type_k']}/{one.settings['type_v']}"
        yield types, dict(one.figures), dict(other.figures)


def main() -> int:
    """0 when every pair agrees within WITHIN."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--engine", required=True)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--threads", type=int, default=0)
    asked = parser.parse_args()
    launches = tuple(
        Launch(flash_attn="on", type_k=pair.split("/")[0], type_v=pair.split("/")[1])
        for pair in PAIRS
    )
    request = Request(
        open_model(asked.model), launches, find(asked.engine), chunks=asked.chunks,
        threads=asked.threads, ask=False,
    )  # fmt: skip
    agree = True
    print("types       tool     noise    http     noise    ratio  same top (tool, http)")
    for types, tool, http in table(request):
        ratio = http["kl_mean"] / tool["kl_mean"]
        agree = agree and abs(ratio - 1) <= WITHIN
        print(
            f"{types:10}  {tool['kl_mean']:.5f}  {tool['noise_kl_mean']:.5f}"
            f"  {http['kl_mean']:.5f}  {http['noise_kl_mean']:.5f}  {ratio:.3f}"
            f"  {tool['same_top']:.3f} {http['same_top']:.3f}"
        )
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
