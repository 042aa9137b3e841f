"""Which fused operations stay on is asked once, not for every batch and length."""

from __future__ import annotations

from dataclasses import replace

import pytest
from built import job_for

from kvwise.gguf.model import Model
from kvwise.memory.compute import fused
from kvwise.memory.compute.reserve import build
from report import golden


@pytest.fixture
def model() -> Model:
    fused.unfused.cache_clear()
    return next(golden(["tiny-deepseek4"]))[1]


def asked() -> int:
    return fused.unfused.cache_info().misses


def test_batches_and_lengths_share_an_answer(model: Model) -> None:
    config = {"device": "cuda", "n_ctx": 4096, "n_ubatch": 128, "n_batch": 512}
    for changes in ({}, {"n_ctx": 16384}, {"n_ubatch": 256}, {"n_outputs_max": 3}):
        build(job_for(model, config | changes))
    assert asked() == 1


@pytest.mark.parametrize(
    "changes",
    [{"ngl": 3}, {"type_k": "q8_0", "type_v": "q8_0"}, {"device": "generic"}, {"n_seq_max": 2}],
)
def test_what_can_change_the_answer_is_asked_anew(model: Model, changes: dict[str, object]) -> None:
    config = {"device": "cuda", "n_ctx": 4096, "n_ubatch": 128, "n_batch": 512}
    build(job_for(model, config))
    build(job_for(model, config | changes))
    assert asked() == 2


def test_a_device_that_lacks_an_operation_switches_it_off(model: Model) -> None:
    config = {"device": "cuda", "n_ctx": 4096, "n_ubatch": 128, "n_batch": 512}
    work = job_for(model, config)
    ops = {node.op for node in build(work).nodes}
    gone = next(op for op in fused.PROBED if op in ops)
    card, *rest = work.backends
    lame = replace(card, supports=lambda tensor: tensor.op != gone and card.supports(tensor))
    made = build(replace(work, backends=(lame, *rest)))
    assert gone not in {node.op for node in made.nodes}
