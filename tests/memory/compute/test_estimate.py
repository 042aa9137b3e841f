"""Estimates: each architecture in turn is treated as unknown, and the truth is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from built import job_for
from test_unproven import model_like

from kvwise.memory.compute.alike import QUANTIZED
from kvwise.memory.compute.builder import Unbuildable
from kvwise.memory.compute.closed import closed, form
from kvwise.memory.compute.estimate import STRANGE, estimate
from kvwise.memory.compute.nearest import nearest, width_of
from kvwise.memory.compute.reserve import batch, build, sizes
from report import MIB, golden, measured, predict

SAMPLE = (
    "tiny-llama", "tiny-qwen2", "tiny-qwen3vlmoe", "tiny-olmoe", "tiny-qwen35", "tiny-starcoder2",
    "tiny-gemma3", "tiny-deepseek32", "tiny-rwkv7", "tiny-jamba",
)  # fmt: skip
CONFIG = {"n_ctx": 4096, "n_ubatch": 256, "n_batch": 512}


def left_out(names: list[str], every: int = 1) -> Counter[str]:
    """Buffers of the models with their own architecture left out: all, close, too small."""
    counts: Counter[str] = Counter()
    for number, (_, model, config, result) in enumerate(golden(names)):
        if number % every or config["mtp"]:
            continue
        work = job_for(model, config)
        skip = frozenset({model.architecture})
        found = estimate(work, batch(model, work.context), without=skip)
        for device, truth in measured(result).items():
            mine = found[device if device >= 0 else len(found) - 1]
            counts["all"] += 1
            counts["close"] += abs(mine - truth) <= max(truth * 0.02, 4 * MIB)
            counts["under"] += truth - mine > max(truth * 0.01, 2 * MIB)
    return counts


def test_architectures_left_out_are_hardly_ever_estimated_too_low() -> None:
    counts = left_out(list(SAMPLE), every=3)
    assert counts["all"] > 100
    assert counts["under"] <= 0.01 * counts["all"]
    assert counts["close"] >= 0.75 * counts["all"]


@pytest.mark.slow
def test_all_architectures_left_out() -> None:
    counts = left_out([], every=5)
    assert counts["under"] <= 0.005 * counts["all"]
    assert counts["close"] >= 0.7 * counts["all"]


def names_of(found: Iterable[object]) -> set[str]:
    names = {row.architecture for row in found}  # type: ignore[attr-defined]
    return {name for name in names if not name.startswith("(")}  # those are put together


def test_an_unknown_name_is_met_by_a_known_graph() -> None:
    model = model_like("llama", "novel")
    assert not model.verified
    work, known = job_for(model, CONFIG), job_for(model_like("llama", "llama"), CONFIG)
    with pytest.raises(Unbuildable):
        build(work)
    truth = sizes(known, build(known), pinned=False)
    found = estimate(work, batch(model, work.context))
    for mine, real in zip(found, truth, strict=True):
        assert real <= mine <= real * 1.02 + 4 * MIB


def test_weights_that_a_known_graph_leaves_unused_get_room() -> None:
    usual = job_for(model_like("llama", "llama"), CONFIG)
    extra = {"blk.{i}.novel_up.weight": [usual.model.n_embd, 256]}
    model = model_like("llama", "llama", weights=extra)
    work = job_for(model, CONFIG)
    with pytest.raises(Unbuildable, match="does not use blk"):
        build(work)
    (near, *_) = nearest(model)
    assert {name.partition(".novel")[1] for name in near.unused} == {".novel"}
    assert width_of(model, near.unused) == 256
    size = batch(model, work.context)
    truth = sizes(usual, build(usual), pinned=False)
    mine = estimate(work, size)
    assert mine[0] >= truth[0] + 256 * size.n_tokens * 4


def test_no_graph_is_near_to_weights_of_another_world() -> None:
    wide = {"blk.{i}.novel.weight": [256, 200_000]}
    model = model_like("llama", "novel", weights=wide)
    assert nearest(model) == ()
    work = job_for(model, CONFIG)
    size = batch(model, work.context)
    assert estimate(work, size)[0] == closed(work, size)[0] + closed(work, size)[0] // STRANGE
    assert closed(work, size)[0] > 200_000 * size.n_tokens * 4


def test_a_host_that_holds_inputs_only_is_hardly_raised() -> None:
    model = model_like("llama", "novel", weights={"blk.{i}.novel.weight": [256, 200_000]})
    size = batch(model, job_for(model, CONFIG).context)
    whole, half = (job_for(model, {**CONFIG, "n_gpu": 1, "ngl": ngl}) for ngl in (99, 2))
    raised = [estimate(work, size)[-1] / closed(work, size)[-1] for work in (whole, half)]
    assert 1 <= raised[0] < 1.5
    assert raised[1] > 1.49
    assert estimate(whole, size)[-1] <= closed(whole, size)[-1] + 2 * MIB


def test_matrices_that_turn_quantized_caches_count_for_the_widest_head() -> None:
    """Gemma 4 has wider heads where it sees everything."""
    compared = 0
    for _, model, config, result in golden(["gemma-4-26b-a4b"]):
        work = job_for(model, config)
        made = form(work)
        if made.idle_host and config["type_k"] in QUANTIZED and not config["mtp"]:
            compared += 1
            assert closed(work, batch(model, work.context))[-1] >= measured(result)[-1]
    assert compared > 2


def test_an_output_smaller_than_the_vocabulary_is_filled_up_in_an_estimate() -> None:
    counts = left_out(["tiny-qwen3tts"], every=4)
    assert counts["all"] > 3
    assert counts["under"] == 0


def test_leaving_an_architecture_out() -> None:
    _, model, _, _ = next(golden(["tiny-qwen35"]))
    assert names_of(nearest(model)) <= {"qwen35", "qwen35moe"}
    assert names_of(nearest(model, frozenset({"qwen35"}))) == {"qwen35moe"}


def test_widths_count_the_experts_in_use() -> None:
    model = model_like("qwen3moe", "qwen3moe")
    width = width_of(model, ["blk.0.ffn_up_exps.weight"])
    assert width == model.n_ff_exp * model.n_expert_used
    assert width_of(model, ["token_embd.weight"]) == model.n_embd
    assert width_of(model, ["blk.0.attn_norm.weight", "nowhere"]) == 0
    assert width_of(model, ["blk.0.attn_norm.weight"], norms=True) == model.n_embd


def test_an_estimate_says_so() -> None:
    model = model_like("llama", "novel")
    made = predict(model, {**CONFIG, "n_gpu": 1})
    assert made.basis == "estimated"
    assert "novel" in str(made.reason)
