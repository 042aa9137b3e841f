"""Graphs that no recorded one proves: made of a recorded model under another architecture's name.

Where the source makes the same graph as a proven architecture does, the two must agree node by
node; elsewhere the operations of a layer are those that the source calls. What these graphs take is
held to llama.cpp's own pass in memory/test_drawn.py.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from built import _facts, job_for
from traces import architectures, load

from kvwise.arch import describe
from kvwise.arch.newer import NEWER
from kvwise.gguf.model import Model
from kvwise.gguf.source import BytesSource
from kvwise.gguf.zoo import read_zoo
from kvwise.memory.compute.builder import Unbuildable
from kvwise.memory.compute.families import BUILDERS
from kvwise.memory.compute.graph import Graph, Tensor
from kvwise.memory.compute.reserve import build, sizes

DRAWN = Path(__file__).parents[1] / "drawn.json.gz"
BESIDE = DRAWN.with_name("drafts.json.gz")
CONFIG = {"n_ctx": 3328, "n_ubatch": 112, "n_outputs_max": 7, "n_batch": 512}
NO_FLASH = {**CONFIG, "flash_attn": "off"}
TWO_GPUS = {**CONFIG, "n_gpu": 2, "tensor_split": [1, 1]}


def model_like(
    source: str,
    architecture: str,
    metadata: dict[str, Any] | None = None,
    weights: dict[str, list[int] | None] | None = None,
) -> Model:
    """The first traced model of `source`, called `architecture`.

    `metadata` and `weights` replace or (None) drop; the weights of a layer start with `blk.{i}.`.
    """
    row = load(source)["models"][0]
    known = {
        key.replace(source + ".", architecture + ".", 1): value
        for key, value in row["metadata"].items()
    }
    known["general.architecture"] = architecture
    known |= {f"{architecture}.{key}": value for key, value in (metadata or {}).items()}
    layers = ",".join(str(il) for il in range(known[architecture + ".block_count"]))
    table = {name: (shape, kind, which) for name, shape, kind, which in row["weights"]}
    for name, shape in (weights or {}).items():
        table.pop(name, None)
        if shape is not None:
            table[name] = (shape, "f32", layers if "{i}" in name else None)
    tensors = [
        [name, shape, kind, None, layers if "{i}" in name else None]
        for name, (shape, kind, _) in table.items()
    ]
    document = {"metadata": known, "tensors": tensors}
    return describe(read_zoo(BytesSource(json.dumps(document).encode(), "made.json")))


def graph(model: Model, config: dict[str, Any] | None = None) -> Graph:
    work = job_for(model, config or CONFIG)
    made = build(work)  # refuses when a loaded weight is not used
    assert all(size > 0 for size in sizes(work, made, pinned=True))
    return made


def ops_of(made: Graph) -> Counter[str]:
    return Counter(node.op for node in made.nodes)


def positions(made: Graph) -> Tensor:
    return next(t for t in made.leafs if t.name == "pos")


def test_every_graph_is_proven() -> None:
    refused = {"eagle3"}  # llama.cpp made no graph of the recorded model
    beside = json.loads(gzip.decompress(BESIDE.read_bytes())).values()
    heads = {pair["draft"]["metadata"]["general.architecture"] for pair in beside if pair["draft"]}
    measured = set(architectures()) | set(NEWER)  # those of newer builds: memory/test_builds.py
    drawn = json.loads(gzip.decompress(DRAWN.read_bytes()))["models"]
    measured |= {row["metadata"]["general.architecture"] for row in drawn}
    assert set(BUILDERS) <= measured - refused | heads


@pytest.mark.parametrize("config", [CONFIG, NO_FLASH, TWO_GPUS])
def test_qwen3vl_is_qwen3_with_four_positions(config: dict[str, Any]) -> None:
    sections = {"rope.dimension_sections": [24, 20, 20, 0]}
    mine = graph(model_like("qwen3", "qwen3vl", sections), config)
    like = graph(model_like("qwen3", "qwen3"), config)
    assert positions(mine).ne[0] == 4 * positions(like).ne[0]
    positions(mine).ne = positions(like).ne
    positions(mine).nb = positions(like).nb
    assert [_facts(t) for t in mine.tensors] == [_facts(t) for t in like.tensors]


@pytest.mark.parametrize(
    ("source", "architecture"), [("qwen3", "qwen3vl"), ("qwen3vlmoe", "qwen3vlmoe")]
)
def test_deepstack_adds_parts_of_wide_inputs(source: str, architecture: str) -> None:
    sections = {"rope.dimension_sections": [24, 20, 20, 0]}
    plain = graph(model_like(source, architecture, sections))
    stacked = graph(model_like(source, architecture, {**sections, "n_deepstack_layers": 3}))
    more = ops_of(stacked) - ops_of(plain)
    assert more == {"PAD": 1, "VIEW": 1 + 3, "ADD": 3}
    assert not ops_of(plain) - ops_of(stacked)
    parts = [n for n in stacked.nodes if n.op == "VIEW" and n.base and n.base.op == "PAD"]
    width = plain.nodes[0].ne[0]
    assert [p.offset // 4 // width for p in parts] == [0, 1, 2, 3]


def test_granite_adds_listed_parts_before_their_layers() -> None:
    plain = graph(model_like("granite", "granite"))
    listed = {"deepstack_mapping": [0, 2, -1, 1, -1, -1]}
    stacked = graph(model_like("granite", "granite", listed))
    more = ops_of(stacked) - ops_of(plain)
    assert more["PAD"] == 1
    assert more["ADD"] == 2  # the first layer's part is the input itself
    assert more["VIEW"] == 1 + 2


@pytest.mark.parametrize("skipped", [True, False])
def test_nanbeige_runs_its_layers_again(skipped: bool) -> None:
    once = graph(model_like("llama", "nanbeige"))
    assert [_facts(t) for t in once.tensors] == [
        _facts(t) for t in graph(model_like("llama", "llama")).tensors
    ]
    loops = {"num_loops": 2, "skip_loop_final_norm": skipped}
    twice = graph(model_like("llama", "nanbeige", loops))
    long = graph(model_like("llama", "llama", {"block_count": 12}))
    more = ops_of(twice) - ops_of(long)
    assert more == ({} if skipped else {"RMS_NORM": 1, "MUL": 1})
    used = {t.name for t in twice.leafs if t.weight}
    assert used == {t.name for t in once.leafs if t.weight}


def test_talkie_has_norms_without_weights() -> None:
    dropped = dict.fromkeys(
        ("output_norm.weight", "blk.{i}.attn_norm.weight", "blk.{i}.ffn_norm.weight")
    )
    model = model_like(
        "llama", "talkie", {"logit_scale": 0.5},
        {**dropped, "blk.{i}.attn_q_norm.weight": [1, 4], "blk.{i}.layer_output_scale.weight": [1]},
    )  # fmt: skip
    found, like = ops_of(graph(model)), ops_of(graph(model_like("llama", "llama")))
    layers = 6
    assert found - like == {
        "RMS_NORM": 1 + 2 * layers,  # the embeddings' and those of Q and K
        "ADD": layers,
        "GET_ROWS": 1,
        "SCALE": 1,
    }
    assert like - found == {"MUL": 1}  # 13 norm weights less, 12 for Q and the skip more


def test_openelm_views_heads_of_one_product() -> None:
    weights: dict[str, list[int] | None] = {
        f"blk.{{i}}.vis_{name}.weight": None
        for name in ("attn_output", "attn_qkv", "down", "gate", "up")
    }
    weights["output.weight"] = None
    weights |= {f"blk.{{i}}.attn_{t}_norm.weight": [64] for t in "qk"}
    made = graph(model_like("cogvlm", "openelm", weights=weights))
    like = graph(model_like("cogvlm", "cogvlm"))
    more = ops_of(made) - ops_of(like)
    assert more == {"RMS_NORM": 12, "MUL": 12, "RESHAPE": 6, "GET_ROWS": 2}
    sums = [n for n in made.nodes if n.op == "ADD"]
    first = sums[0].src
    assert first[0] is not None and first[0].op == "GET_ROWS"  # the residual comes first


@pytest.mark.parametrize("swin", [False, True])
def test_chameleon_suppresses_image_tokens(swin: bool) -> None:
    model = model_like(
        "llama", "chameleon", {"vocab_size": 9000, "swin_norm": swin},
        {
            "output.weight": [256, 9000], "token_embd.weight": [256, 9000],
            "blk.{i}.attn_q_norm.weight": [64, 4], "blk.{i}.attn_k_norm.weight": [64, 1],
        },
    )  # fmt: skip
    made = graph(model)
    like = ops_of(graph(model_like("llama", "llama")))
    assert ops_of(made) - like == {"NORM": 12, "MUL": 12, "CLAMP": 1, "SET": 1}
    last = made.nodes[-1]
    assert (last.op, last.flags, last.ne[0]) == ("SET", 2, 9000)
    first = next(n.op for n in made.nodes if n.op in {"RMS_NORM", "MUL_MAT"})
    assert first == ("MUL_MAT" if swin else "RMS_NORM")


def grove(groups: int) -> Model:
    chunk = {f"blk.{{i}}.ffn_{t}_chexps.weight": [256, 64, groups] for t in ("gate", "up")}
    return model_like(
        "qwen3vlmoe", "grovemoe",
        {"expert_chunk_feed_forward_length": 64, "experts_per_group": 4 // groups},
        {**chunk, "blk.{i}.ffn_down_chexps.weight": [64, 256, groups]},
    )  # fmt: skip


def test_grovemoe_has_a_second_set_of_experts() -> None:
    found = ops_of(graph(grove(2)))
    once = ops_of(graph(model_like("qwen3vlmoe", "qwen3vlmoe")))
    layers = 6
    assert found["MUL_MAT_ID"] == 2 * once["MUL_MAT_ID"]
    assert found["MUL_MAT"] == once["MUL_MAT"]
    assert (found["CPY"], found["UNARY:SIGMOID"]) == (2 * layers, 2 * layers)
    with pytest.raises(Unbuildable):
        graph(grove(1))  # a token uses two
