"""Graphs of architectures after b10605 that are in no measured zoo: the embedded engine decides.

Its no-alloc pass over twins of small synthetic models, on the processor.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvwise import builds
from kvwise.arch import describe
from kvwise.engine.find import embedded
from kvwise.errors import Refused
from kvwise.gguf.header import Header, Tensor
from kvwise.gguf.open import open_header
from kvwise.gguf.writer import write_twin
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.placement import place
from kvwise.memory.weights import weigh
from kvwise.simulate import simulation
from kvwise.tiers import tiers
from thinning import thinned
from zoo_files import ZOO

pytestmark = [
    pytest.mark.engine,
    pytest.mark.xdist_group("engine"),
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="no xllamacpp"),
]
NAMES = (
    "tiny-hy_v4",
    "tiny-hy_v4-dense",
    "tiny-clef",
    "tiny-glm5-next",
    "tiny-glm5-next-mtp",
    "tiny-qwen4exp",
    "tiny-qwen4exp-mtp",
)
WIDE = ("layer_multipliers", "head_offsets", "head_vocab_sizes")
"""Arrays that the engine reads as uint64, which small numbers in JSON are not."""
PLAIN = Launch(n_ctx=4096, n_batch=512, n_outputs_max=1, mmap=False, repack=False)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"flash_attn": "off"},
    {"n_seq_max": 3, "n_outputs_max": 3, "n_ubatch": 96},
    {"n_seq_max": 2, "n_outputs_max": 2, "kv_unified": True, "type_k": "q8_0", "type_v": "q8_0"},
    {"n_ctx": 20000, "n_ubatch": 1},
)


DRAFTING = replace(
    Launch.parse(["-c", "4096", "-b", "512", "-np", "1", "--spec-type", "draft-mtp"]),
    mmap=False,
    repack=False,
)
DRAFTS: tuple[dict[str, Any], ...] = (
    {},
    {"flash_attn": "off"},
    {"n_seq_max": 3, "n_outputs_max": 3, "n_ubatch": 96},
    {"draft_type_k": "q8_0", "draft_type_v": "q8_0", "n_ctx": 20000, "n_ubatch": 1},
)
OWN: dict[str, list[Any]] = {
    "blk.{i}.nextn.embed_tokens.weight": [256, 1536],
    "blk.{i}.nextn.shared_head_head.weight": [256, 1536],
}
"""What the next-token layer of GLM 5 Next may have of its own."""


def twin(header: Header, folder: Path) -> Path:
    """A sparse file of the model."""
    wide = {key: "[uint64]" for key in header.metadata if key.rpartition(".")[2] in WIDE}
    path = folder / "twin.gguf"
    write_twin(replace(header, value_types={**header.value_types, **wide}), path)
    return path


def newer(name: str) -> Header:
    return open_header(str(ZOO / "newer" / f"{name}.json"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("settings", thinned(SETTINGS), ids=lambda each: "-".join(each) or "plain")
def test_the_engines_pass_says_the_same(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    launch = replace(PLAIN, **settings)
    said = simulation(str(twin(newer(name), tmp_path)), launch, engine=embedded())
    beside = tiers(said)
    assert beside.expected.host.basis["compute"] == "computed"
    assert beside.agrees, [(row.part, row.expected, str(row.simulated)) for row in beside.wrong]
    assert {row.part for row in beside.rows} >= {"weights", "compute"}


def own_words() -> Header:
    """Embeddings and a head of the next-token layer's own."""
    header = newer("tiny-glm5-next-mtp")
    like = header.by_name["output.weight"]
    more = [replace(like, name=name.format(i=6), shape=tuple(OWN[name])) for name in OWN]
    return replace(header, tensors=(*header.tensors, *more))


def dense() -> Header:
    """Only earlier layers look at pools."""
    header = newer("tiny-qwen4exp-mtp")
    ratios = {"qwen4exp.attention.compress_ratios": (0, 0, 4, 0, 0, 4, 0)}
    return replace(header, metadata={**header.metadata, **ratios})


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(lambda: newer("tiny-glm5-next-mtp"), id="glm5-next"),
        pytest.param(own_words, id="glm5-next-own"),
        pytest.param(lambda: newer("tiny-qwen4exp-mtp"), id="qwen4exp"),
        pytest.param(dense, id="qwen4exp-dense"),
    ],
)
@pytest.mark.parametrize("settings", thinned(DRAFTS), ids=lambda each: "-".join(each) or "plain")
def test_the_contexts_of_next_token_layers_too(
    header: Callable[[], Header], settings: dict[str, Any], tmp_path: Path
) -> None:
    launch = replace(DRAFTING, **settings)
    said = simulation(str(twin(header(), tmp_path)), launch, engine=embedded())
    beside = tiers(said)
    (draft,) = [extra for extra in beside.expected.extras if extra.of == "mtp"]
    assert draft.basis["compute"] == "computed"
    assert beside.agrees, [(row.part, row.expected, str(row.simulated)) for row in beside.wrong]
    assert {row.part for row in beside.rows if row.of == "mtp"} >= {"context", "compute"}


@pytest.mark.parametrize("name", ["tiny-hy_v4", "tiny-clef"])
def test_hy4_and_clef_have_none(name: str) -> None:
    with pytest.raises(Refused) as caught:
        account(describe(newer(name)), DRAFTING, ())
    assert caught.value.code == "mtp_unavailable"


def fused(header: Header) -> Header:
    """The same model with gate and up of its experts in one tensor."""
    rows: list[Tensor] = []
    for row in header.tensors:
        if row.name.endswith(".ffn_gate_exps.weight"):
            width, rank, experts = row.shape
            name = row.name.replace("gate_exps", "gate_up_exps")
            rows.append(replace(row, name=name, shape=(width, 2 * rank, experts)))
        elif not row.name.endswith(".ffn_up_exps.weight"):
            rows.append(row)
    return replace(header, tensors=tuple(rows))


def test_fused_experts_of_a_next_token_layer_stay_in_the_file(tmp_path: Path) -> None:
    header = fused(open_header(str(ZOO / "models" / "qwen3.6-35b-a3b-mtp.json.gz")))
    path = tmp_path / "fused.gguf"
    write_twin(header, path)
    engine = embedded()
    if builds.number(engine.build or "") < builds.FUSED_EXPERTS_LEFT.since:
        pytest.skip("the embedded engine is older than the change")
    launch = replace(PLAIN, build=engine.build or "", n_gpu_layers=0)
    beside = tiers(simulation(str(path), launch, engine=engine))
    weights = [row for row in beside.rows if row.part == "weights"]
    assert weights
    assert not [row for row in weights if row in beside.wrong]
    model = describe(header)
    old = weigh(model, replace(launch, build="b10605"), place(model, launch, ()), ())
    new = weigh(model, launch, place(model, launch, ()), ())
    assert set(new.skipped) - set(old.skipped) == {"blk.40.ffn_gate_up_exps.weight"}
