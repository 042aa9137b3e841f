"""Results made by hand, of two machines that nobody has: for reports and comparisons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvwise.results import EngineSeen, Machine, Measurement, ModelSeen, Sample
from results_made import CARD, MACHINE, MODEL

AT = 1_790_000_000.0
MIB = 1024**2
BENCH = EngineSeen("binary", "b10605", "llama-bench", "version: 10605 (abc)", "/opt/llama-bench")
QWEN = replace(MODEL, name="Qwen3 8B Q4_K_M", architecture="qwen3", tensor_bytes=4789 * MIB,
               n_params=8_190_735_360, fingerprint="8b" * 8, path="/models/qwen3.gguf")  # fmt: skip

MATRIX = (  # types, prompt, decode, KV MiB, mean KL, same top, verdict
    ("f16", "f16", 812.0, 31.4, 576.0, 0.0, 1.0, "lossless"),
    ("q8_0", "f16", 798.0, 31.1, 441.0, 0.0009, 0.991, "lossless"),
    ("q8_0", "q8_0", 845.0, 32.2, 306.0, 0.0012, 0.989, "lossless"),
    ("f16", "q4_0", 438.0, 30.2, 369.0, 0.0065, 0.972, "high"),
    ("q8_0", "q4_0", 805.0, 32.0, 234.0, 0.0071, 0.969, "medium"),
    ("q4_0", "q4_0", 839.0, 32.6, 162.0, 0.042, 0.921, "medium"),
)


def samples(value: float, count: int = 5, share: float = 0.012) -> tuple[Sample, ...]:
    """Around a value, the same each time."""
    shifts = (0.0, -0.7, 0.4, 1.0, -0.3, 0.8, -1.0)
    return tuple(
        Sample(value * (1 + share * shifts[number % 7]), "tokens/s", AT + number)
        for number in range(count)
    )


def memory(kv: float, weights: int, off: int = 0) -> dict[str, Any]:
    """As `memory_of` makes it, of one card and the host."""
    rows = [
        {"device": CARD.name, "host": False, "weights_bytes": weights,
         "context_bytes": int(kv * MIB), "compute_bytes": 304 * MIB + off, "output_bytes": 0,
         "overhead_bytes": 120 * MIB},
        {"device": "", "host": True, "weights_bytes": 334 * MIB, "context_bytes": 0,
         "compute_bytes": 17 * MIB, "output_bytes": 622_336, "overhead_bytes": 0},
    ]  # fmt: skip
    return {"predicted": rows, "measured": [{**row, "overhead_bytes": 0} for row in rows]}


def bench(
    model: ModelSeen = QWEN,
    machine: Machine = MACHINE,
    engine: EngineSeen = BENCH,
    depths: tuple[int, ...] = (0,),
    factor: float = 1.0,
) -> list[Measurement]:
    """A matrix of cache types with speeds, memory and fidelity."""
    found = []
    for place, (k, v, prompt, decode, kv, kl, same, verdict) in enumerate(MATRIX):
        settings = {"type_k": k, "type_v": v, "flash_attn": "on", "n_gpu_layers": -1,
                    "n_ubatch": 512, "n_ctx": 4096}  # fmt: skip
        base = Measurement("speed", AT + place, machine, engine, model, settings, {})
        for depth in depths:
            slower = factor / (1 + depth / 20_000)
            for metric, speed, n_prompt, n_gen in (
                ("prompt", prompt, 512, 0), ("decode", decode, 0, 128)
            ):  # fmt: skip
                test = {"metric": metric, "n_prompt": n_prompt, "n_gen": n_gen, "depth": depth}
                figures = {"memory": memory(kv, model.tensor_bytes)}
                found.append(replace(base, test=test, samples=samples(speed * slower),
                                     figures=figures))  # fmt: skip
        figures = {"kl_mean": kl, "kl_p99": kl * 9, "kl_max": kl * 80, "same_top": same,
                   "ppl_ratio": 1 + kl / 2, "noise_kl_mean": 0.0008,
                   "verdict": verdict}  # fmt: skip
        found.append(replace(base, kind="fidelity", figures=figures,
                             engine=replace(engine, tool="llama-perplexity"),
                             test={"metric": "fidelity", "text": "alice"}))  # fmt: skip
    return found


def failed(model: ModelSeen = QWEN) -> Measurement:
    """A setting that did not load, with the doctor's finding."""
    finding = {
        "kind": "kv-alloc-oom", "title": "the KV cache does not fit",
        "cause": "the KV cache of 9,216.0 MiB does not fit into the 7,078.0 MiB that were free",
        "confidence": "high",
    }  # fmt: skip
    settings = {"type_k": "f32", "type_v": "f32", "flash_attn": "off", "n_gpu_layers": -1,
                "n_ubatch": 512, "n_ctx": 4096}  # fmt: skip
    test = {"metric": "decode", "n_prompt": 0, "n_gen": 128, "depth": 0}
    return Measurement("speed", AT + 50, MACHINE, BENCH, model, settings, test,
                       findings=(finding,), state="failed")  # fmt: skip


def speculation(model: ModelSeen = QWEN) -> list[Measurement]:
    """Plain decoding, a draft at several depths, n-grams."""
    server = replace(BENCH, tool="llama-server")
    rows = (("", 0, 31.4, 1.0), ("draft", 2, 41.0, 2.4), ("draft", 4, 52.7, 3.6),
            ("draft", 8, 49.9, 5.8), ("ngram-mod", 8, 33.0, 1.3))  # fmt: skip
    found = []
    for kind, depth, speed, accepted in rows:
        settings = {"type_k": "f16", "type_v": "f16", "spec_types": [kind] if kind else [],
                    "draft_n_max": depth}  # fmt: skip
        figures = {"accepted_length": accepted, "passes_per_1000": round(1000 / accepted),
                   "same_text": True}  # fmt: skip
        found.append(Measurement("speculation", AT + depth, MACHINE, server, model, settings,
                                 {"metric": "speculation", "text": "code"}, samples(speed, 3),
                                 figures))  # fmt: skip
    return found


def tuning(model: ModelSeen = QWEN) -> list[Measurement]:
    """A search over threads and micro-batches."""
    speeds = (24.0, 28.1, 27.5, 30.9, 29.0, 31.2, 31.9, 30.2, 32.4, 32.1)
    return [
        Measurement(
            "tune", AT + place, MACHINE, BENCH, model,
            {"type_k": "f16", "type_v": "f16", "n_threads": 1 + place % 5,
             "n_ubatch": 64 << (place % 4)},
            {"metric": "decode", "n_gen": 128}, samples(speed, 3),
        )
        for place, speed in enumerate(speeds)
    ]  # fmt: skip


def embedding(model: ModelSeen = QWEN) -> list[Measurement]:
    """Two texts of a benchmark and a digest, whose memory is only predicted."""
    settings = {"type_k": "f16", "type_v": "f16", "n_ubatch": 512, "embeddings": True}
    both = memory(0.0, model.tensor_bytes)
    rows = (
        (64, 2100.0, both),
        (512, 3300.0, both),
        (512, 2800.0, {"predicted": both["predicted"]}),
    )
    return [
        Measurement(
            "embedding", AT + place, MACHINE, replace(BENCH, tool="llama-server"), model, settings,
            {"metric": "embedding", "n_prompt": tokens, "place": place}, samples(speed, 3),
            {"memory": sizes, "chunks": 40},
        )
        for place, (tokens, speed, sizes) in enumerate(rows)
    ]  # fmt: skip
