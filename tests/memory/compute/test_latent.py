"""Latent and indexed attention: every measured cell, and fused operations that are switched off."""

from __future__ import annotations

from dataclasses import replace

import pytest
from built import job_for, job_of, model_of
from test_golden import check
from traces import Trace, traces

from kvwise.memory.compute.backend import Backend
from kvwise.memory.compute.families import BUILDERS
from kvwise.memory.compute.fused import PROBED
from kvwise.memory.compute.graph import Graph, Tensor
from kvwise.memory.compute.reserve import Job, build

ARCHITECTURES = (
    "deepseek2", "deepseek2-ocr", "mistral4", "minicpm3", "plm", "deepseek32", "glm-dsa",
    "dots3note", "minimax-m3", "deepseek4",
)  # fmt: skip
TINY = (
    "tiny-deepseek2-ocr", "tiny-mistral4", "tiny-deepseek32", "tiny-glm-dsa", "tiny-dots3note",
    "tiny-minimax-m3", "tiny-deepseek4",
)  # fmt: skip


def test_all_are_there() -> None:
    assert set(ARCHITECTURES) <= set(BUILDERS)


@pytest.mark.parametrize("name", TINY)
def test_every_cell_of_the_small_models(name: str) -> None:
    assert check([name]) > 15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("deepseek-v2-lite", 90), ("deepseek-v2-lite-nomla", 90), ("deepseek-v3", 90),
        ("deepseek-v3.2", 90), ("deepseek-v4-flash", 90), ("minicpm3-4b", 90),
    ],
)  # fmt: skip
def test_every_cell_of_the_large_models(name: str, least: int) -> None:
    assert check([name]) > least


def without(job: Job, *ops: str) -> Job:
    """The same job on a GPU that lacks operations."""

    def supports(node: Tensor) -> bool:
        return node.op not in ops

    first: Backend = replace(job.backends[0], supports=supports)
    return replace(job, backends=(first, *job.backends[1:]))


def trace_of(architecture: str, label: str = "default") -> Trace:
    return next(t for t in traces(architecture) if t.data["label"] == label)


def used(graph: Graph) -> set[str]:
    return {node.op for node in graph.nodes}


@pytest.mark.parametrize("architecture", ["deepseek32", "glm-dsa", "dots3note", "deepseek4"])
def test_an_indexer_the_device_lacks_is_built_from_parts(architecture: str) -> None:
    work = job_of(trace_of(architecture))
    assert "LIGHTNING_INDEXER" in used(build(work))
    graph = build(without(work, "LIGHTNING_INDEXER"))
    assert "LIGHTNING_INDEXER" not in used(graph)
    # its mask is added to scores then, and so no longer half as wide
    masks = [leaf for leaf in graph.leafs if "indexer" in leaf.name and "mask" in leaf.name]
    assert [mask.type.name for mask in masks] == ["f32"]


@pytest.mark.parametrize("op", PROBED)
def test_each_fused_operation_goes_alone(op: str) -> None:
    work = job_of(trace_of("deepseek4"))
    every = used(build(work))
    assert set(PROBED) <= every
    one_less = build(without(work, op))
    assert set(PROBED) - used(one_less) == {op}
    assert len(one_less.nodes) > len(build(work).nodes)


def test_without_any_fused_operation_the_streams_keep_their_shape() -> None:
    work = job_of(trace_of("deepseek4"))
    graph = build(without(work, *PROBED))
    assert not set(PROBED) & used(graph)
    model = work.model
    assert graph.nodes[-1].ne[:2] == (model.n_vocab, 512)
    before = [n for n in build(work).nodes if n.op == "DSV4_HC_POST"]
    after = [n for n in graph.nodes if n.op == "CONCAT" and n.ne == before[0].ne]
    assert len(after) == len(before)


def test_a_processor_alone_has_every_operation() -> None:
    work = job_of(trace_of("deepseek4"))
    alone = replace(work, backends=work.backends[-1:])
    assert set(PROBED) <= used(build(alone))


@pytest.mark.parametrize(("n_seq_max", "stays"), [(16, True), (32, False)])
def test_only_dense_layers_of_minimax_m3_decide_about_flash_attention(
    n_seq_max: int, stays: bool
) -> None:
    """Its sparse layers call the operation directly, where llama.cpp does not look."""
    config = {"device": "cuda", "ngl": 3, "n_ctx": 65536, "n_seq_max": n_seq_max}
    work = job_for(model_of("minimax-m3", "tiny-minimax-m3"), config)
    assert work.model.indexer_n_head * 16 >= 32
    assert work.context.flash_attn is stays
