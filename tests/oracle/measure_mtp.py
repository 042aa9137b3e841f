"""Asks two builds of llama.cpp about the contexts of MTP layers: tests/memory/mtp.json.gz.

    python tests/oracle/measure_mtp.py FOLDER

FOLDER holds b10605's llama-server, which is asked about virtual GPUs too; b11549 is the embedded
engine. The models are those of the zoo with one layer of theirs once more at the end, and what an
MTP layer has beside it; each build is asked about the same drawn settings. Kept are a draft
context's figures as printed: caches whole MiB, cut off, compute and output rounded to 0.01 MiB.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from kvwise.device import Device
from kvwise.engine.find import Engine, binary, embedded
from kvwise.errors import EngineError, Refused
from kvwise.gguf.header import Header
from kvwise.gguf.source import BytesSource
from kvwise.gguf.writer import write_twin
from kvwise.gguf.zoo import read_zoo
from kvwise.launch import Launch
from kvwise.simulate import simulation
from kvwise.tiers import tiers
from kvwise.units import GIB

ZOO = Path(__file__).parents[1] / "zoo"
KEPT = Path(__file__).parents[1] / "memory" / "mtp.json.gz"
SETTINGS = 6
"""Of each model and build."""

Document = dict[str, Any]
OWN = {"shared_head_norm": 1, "embed_tokens": 2, "shared_head_head": 2}
"""What an MTP layer may have of its own, with the number of its dimensions."""


def _layers(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def grown(name: str, donor: int, *own: str, skip: Sequence[str] = ()) -> Document:
    """A model of the zoo with its layer `donor` once more, as an MTP layer; not these: `skip`."""
    known = json.loads(gzip.decompress((ZOO / "models" / f"{name}.json.gz").read_bytes()))
    metadata, tensors = known["metadata"], [row[:3] + row[4:] for row in known["tensors"]]
    start = known["architecture"] + "."
    count, width = metadata[start + "block_count"], metadata[start + "embedding_length"]
    words = next(shape[1] for label, shape, *_ in tensors if label == "token_embd.weight")
    for row in tensors:
        if row[3] and donor in _layers(row[3]) and not any(part in row[0] for part in skip):
            row[3] += f",{count}"
    more = {"eh_proj": [2 * width, width], "enorm": [width], "hnorm": [width]}
    more |= {each: [width, words][: OWN[each]] for each in own}
    for label, shape in more.items():
        add(tensors, count, f"nextn.{label}.weight", *shape)
    for key, value in metadata.items():
        if key.startswith(start) and isinstance(value, list) and len(value) == count:
            value.append(value[donor])
    metadata[start + "block_count"], metadata[start + "nextn_predict_layers"] = count + 1, 1
    return {"metadata": metadata, "tensors": tensors}


def add(tensors: list[list[Any]], layer: int, label: str, *shape: int) -> None:
    kind = "q8_0" if len(shape) > 1 and "gate_inp" not in label else "f32"
    tensors.append([f"blk.{{i}}.{label}", list(shape), kind, str(layer)])


def cohere() -> Document:
    """Its pattern of windows leaves the MTP layer out."""
    made = grown("tiny-cohere2moe", 5)
    made["metadata"]["cohere2moe.attention.sliding_window_pattern"].pop()
    return made


def mimo() -> Document:
    """Its MTP layer is dense, with one matrix for Q, K and V."""
    skip = ("_exps", "gate_inp", "attn_q.", "attn_k.", "attn_v.")
    made = grown("tiny-mimo2", 5, "shared_head_norm", skip=skip)
    add(made["tensors"], 6, "attn_qkv.weight", 256, 384)
    return made


def nemotron() -> Document:
    """Attention and experts are one layer there."""
    made, start = grown("tiny-nemotron_h_moe", 3, "shared_head_norm"), "nemotron_h_moe."
    made["tensors"] = [row for row in made["tensors"] if ".ffn_" not in row[0]]
    for label, shape in (
        ("ffn_gate_inp.weight", (256, 4)), ("exp_probs_b.bias", (4,)),
        ("ffn_down_exps.weight", (512, 256, 4)), ("ffn_up_exps.weight", (256, 512, 4)),
        ("ffn_down_shexp.weight", (256, 256)), ("ffn_up_shexp.weight", (256, 256)),
    ):  # fmt: skip
        for layer in (2, 5, 6):
            add(made["tensors"], layer, label, *shape)
    add(made["tensors"], 6, "post_attention_norm.weight", 256)
    made["metadata"] |= {
        start + "expert_count": 4, start + "expert_used_count": 2,
        start + "expert_shared_count": 1, start + "expert_feed_forward_length": 512,
        start + "expert_shared_feed_forward_length": 256, start + "expert_gating_func": 2,
    }  # fmt: skip
    return made


def deepseek2() -> Document:
    """DeepSeek 3.2 without its indexer."""
    text = json.dumps(grown("tiny-deepseek32", 5, skip=("indexer",)))
    made: Document = json.loads(text.replace("deepseek32", "deepseek2"))
    made["tensors"] = [row for row in made["tensors"] if "indexer" not in row[0]]
    return made


def ling() -> Document:
    """The norm of its head has another name."""
    made = grown("tiny-bailingmoe3", 5, "shared_head_norm")
    for row in made["tensors"]:
        row[0] = row[0].replace("nextn.shared_head_norm", "layer_output_norm")
    return made


def deepseek4() -> Document:
    """Its MTP layer attends to the window alone."""
    made = grown("deepseek-v4-flash", 42, skip=("compressor", "indexer"))
    made["metadata"]["deepseek4.attention.compress_ratios"][-1] = 0
    return made


MODELS: dict[str, Callable[[], Document]] = {
    "bailingmoe3": ling, "cohere2moe": cohere, "deepseek2": deepseek2, "deepseek4": deepseek4,
    "deepseek32": lambda: grown("tiny-deepseek32", 5),
    "glm-dsa": lambda: grown("tiny-glm-dsa", 5),
    "hy_v3": lambda: grown("tiny-hy_v3", 5),
    "hy_v3-own": lambda: grown("tiny-hy_v3", 5, *OWN),
    "mimo2": mimo, "nemotron_h_moe": nemotron,
    "qwen35": lambda: grown("tiny-qwen35", 5),
    "qwen35-own": lambda: grown("tiny-qwen35", 5, *OWN),
    "qwen35moe": lambda: grown("tiny-qwen35moe", 5),
    "qwen3next": lambda: grown("tiny-qwen3next", 5),
    "step35": lambda: grown("tiny-step35", 5),
    "glm4": lambda: grown("tiny-glm4", 5),
}  # fmt: skip
"""The last has no graph for it and runs the whole model; newer builds refuse that."""


def header_of(document: Document) -> Header:
    tensors = [[*row[:3], None, row[3]] for row in document["tensors"]]
    text = json.dumps({"metadata": document["metadata"], "tensors": tensors})
    return read_zoo(BytesSource(text.encode(), "mtp.json"))


def drawn(seed: str, *, gpus: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """GPUs and fields of a launch."""
    rng = random.Random(seed)
    for _ in range(SETTINGS):
        count, slots = rng.choice((0, 1, 1, 2)) if gpus else 0, rng.choice((1, 1, 2, 3))
        kind = rng.choice(("f16", "f16", "q8_0", "bf16"))
        yield count, {
            "n_ctx": rng.choice((512, 1000, 4096, 10000, 33000)),
            "n_ubatch": rng.choice((1, 7, 32, 100, 512)),
            "n_seq_max": slots, "n_outputs_max": 4 * slots, "kv_unified": rng.random() < 0.5,
            "flash_attn": "on" if kind == "q8_0" else rng.choice(("auto", "on", "off")),
            "draft_type_k": kind, "draft_type_v": kind,
            "n_gpu_layers": rng.choice((999, 999, 2)), "offload_kqv": rng.random() < 0.7,
        }  # fmt: skip


def launch_of(build: str, fields: dict[str, Any]) -> Launch:
    words = ["-b", "512", "--spec-type", "draft-mtp"]
    return replace(Launch.parse(words, build=build), mmap=False, repack=False, **fields)


def devices_of(count: int) -> tuple[Device, ...]:
    return tuple(Device(f"G{i}", "rpc", 24 * GIB, 24 * GIB, index=i) for i in range(count))


def measure(path: Path, engine: Engine, build: str, seed: str) -> Iterator[Document]:
    for count, fields in drawn(seed, gpus=engine.kind != "embedded"):
        launch, devices = launch_of(build, fields), devices_of(count)
        try:
            beside = tiers(simulation(str(path), launch, devices, engine=engine))
        except (EngineError, Refused) as why:
            print(f"  {build} {fields}: {why}", flush=True)
            continue
        said = [
            [row.buffer, row.part, [[p.units, p.decimals, p.cut] for p in row.simulated.parts]]
            for row in beside.rows
            if row.of == "mtp"
        ]
        yield {"build": build, "gpus": count, "fields": fields, "said": said}


def main(folder: str) -> None:
    own = embedded()
    assert own is not None
    engines = {"b10605": binary(Path(folder) / "llama-server"), "b11549": own}
    kept: dict[str, Document] = {}
    for name, make in MODELS.items():
        document = make()
        rows: list[Document] = []
        with tempfile.TemporaryDirectory(prefix="kvwise-mtp-") as place:
            twin = Path(place) / "twin.gguf"
            write_twin(header_of(document), twin)
            for build, engine in engines.items():
                if (name, build) != ("glm4", "b11549"):
                    rows += measure(twin, engine, build, f"{name} {build}")
        kept[name] = document | {"results": rows}
        print(name, len(rows), flush=True)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in kept.items())
    KEPT.write_bytes(gzip.compress(f"{{\n{lines}\n}}\n".encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
