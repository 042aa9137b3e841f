"""What llama.cpp gets out of a device: shares of its nominal rates, from public measurements.

Each row holds the two ends of what was seen (benchmarks/speed/rows.csv: 225 measurements of 50
GPUs from builds of 2023 to 2026, each with its source, and 39 more that the ends were not set on;
benchmarks/speed_order.py counts how many lie between the ends). Where no row was found the ends
are wider, and `source` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.text import Phrase, phrase

US = 1e-6


@dataclass(frozen=True, slots=True)
class Factors:
    """(slow end, fast end) of each.

    `memory`: share of the bandwidth that reading weights and cache reaches; `layer_s`: seconds a
    layer costs beside its bytes (kernel starts, norms, synchronisation); `per_weight`: arithmetic
    operations of the vector units per weight and generated token (unpacking and multiplying);
    `matrix`: share of the arithmetic rate that a full micro-batch reaches; `attention`: the same
    for attention; `half_batch`: tokens per matrix at which half of that is reached.
    """

    memory: tuple[float, float]
    layer_s: tuple[float, float]
    per_weight: tuple[float, float]
    matrix: tuple[float, float]
    attention: tuple[float, float]
    half_batch: tuple[float, float]
    source: Phrase


CUDA = Factors(
    (0.72, 0.98), (130 * US, 3 * US), (2, 0), (0.34, 0.72), (0.08, 0.40), (90, 40),
    phrase("27 GeForce and RTX cards from RTX 2080 to 5090"),
)  # fmt: skip
CUDA_SERVER = Factors(
    (0.55, 0.90), (130 * US, 5 * US), (2, 0), (0.08, 0.40), (0.05, 0.30), (220, 60),
    phrase("A100 and H100; prompts without a row"),
)  # fmt: skip
CUDA_PASCAL = Factors(
    (0.60, 0.92), (110 * US, 8 * US), (4, 0), (0.90, 1.50), (0.10, 0.50), (60, 20),
    phrase("Tesla P40 and GTX 1070 Ti; the rate is that of f32"),
)  # fmt: skip
CUDA_NO_TENSOR = Factors(
    (0.60, 0.92), (130 * US, 8 * US), (4, 0), (0.25, 1.00), (0.05, 0.40), (60, 20),
    phrase("nothing: Turing without tensor cores, as Pascal and wider"),
)  # fmt: skip
HIP = Factors(
    (0.55, 0.92), (130 * US, 10 * US), (2, 0), (0.22, 0.68), (0.025, 0.20), (110, 40),
    phrase("RX 7900 XTX, 9060 XT, AI PRO R9700, Radeon 8060S, MI100"),
)  # fmt: skip
VULKAN = Factors(
    (0.50, 0.93), (130 * US, 10 * US), (3, 0), (0.12, 0.55), (0.015, 0.12), (110, 40),
    phrase("RX 5700 XT, 9070 XT, AI PRO R9700, Radeon 8060S"),
)  # fmt: skip
VULKAN_OLD = Factors(
    (0.28, 0.80), (150 * US, 20 * US), (4, 0), (0.10, 0.60), (0.03, 0.30), (110, 40),
    phrase("GTX 1050 Ti; cards without fast f16 or integer dot products in Vulkan"),
)  # fmt: skip
METAL = Factors(
    (0.60, 0.92), (300 * US, 50 * US), (6, 1), (0.52, 1.05), (0.20, 0.90), (40, 10),
    phrase("13 Apple M1 to M4"),
)  # fmt: skip
OTHER = Factors(
    (0.40, 0.92), (200 * US, 10 * US), (4, 0), (0.05, 0.45), (0.03, 0.30), (220, 40),
    phrase("nothing of this kind: a wide guess"),
)  # fmt: skip
HOST = Factors(
    (0.55, 0.95), (60 * US, 5 * US), (3, 4), (1.0, 1.0), (0.30, 1.0), (8, 1),
    phrase("CPU runs of llama-bench b10605; bandwidth and arithmetic are ranges themselves"),
)  # fmt: skip

NARROW = 1000
"""Elements: a matrix so narrow reaches half of what a wide one does (Llama 3.2 1B and Gemma 3 4B
beside Llama 3.1 8B and 70B on the same cards)."""

UNPACKED = (0.3, 0.7)
"""What attention on a processor keeps of its rate with a quantized cache: llama-bench b10605, one
thread of an EPYC, SmolLM2 135M at depth 1,024: 127 and 79 prompt tokens/s with f16 and q8_0, 67
and 51 generated, 179 and 161, 93 and 84 at depth 0."""

SWITCH_S = (60 * US, 10 * US)
"""Seconds to hand a token's activations to another device and wait for it."""

BUS = (0.20, 0.80)
"""Share of the bus that copies reach: 6 GB/s of PCIe 4.0 x16 from memory that is not pinned
(github.com/efeslab/fiddler/issues/7), 24.7 from pinned memory (same place)."""

HOST_BYTES_PER_S = (10e9, 70e9)
"""What a processor nobody measured reads while it generates: nine of ten of the 75 machines that
ran Llama 3.1 8B on LocalScore without a GPU lie between 9 and 62
(github.com/d893a/localscore-insights, July 2025)."""

CORE_FLOPS = (20e9, 160e9)
"""One core of a processor on llama.cpp's quantized matrices: 20 GFLOP/s generating and 36 reading
prompts in llama-bench b10605 on two cores of an EPYC (SmolLM2 135M, idle), 45 to 150 for nine of
ten of the Ryzen and EPYC processors on LocalScore."""
