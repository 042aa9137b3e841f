"""A context that the user fixed is kept, though the purpose would like a longer one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvwise.device import Device
from kvwise.launch import Launch
from kvwise.opening import open_model
from kvwise.plan.choose import Impossible, plan
from kvwise.plan.goal import Goal
from kvwise.units import GIB

MODEL = open_model(str(Path(__file__).parents[1] / "zoo/models/qwen3-8b.json.gz"))
CARD = Device("card", "generic", 12 * GIB, 12 * GIB)
LAUNCH = Launch(model="m.gguf", n_ctx=2048, n_seq_max=1, n_outputs_max=1)


def test_less_than_the_purpose_would_like() -> None:
    made = plan(MODEL, [CARD], Goal("chat"), launch=LAUNCH, fixed={"n_ctx"})
    assert made.choice.launch.n_ctx == 2048
    slots = plan(MODEL, [CARD], Goal("chat", slots=2), launch=LAUNCH, fixed={"n_ctx"})
    assert slots.choice.slot_tokens == 1024


def test_a_prompt_that_was_counted_still_must_fit() -> None:
    with pytest.raises(Impossible):
        plan(MODEL, [CARD], Goal("chat", prompt_tokens=4000), launch=LAUNCH, fixed={"n_ctx"})
    longer = replace(LAUNCH, n_ctx=8192)
    plan(MODEL, [CARD], Goal("chat", prompt_tokens=4000), launch=longer, fixed={"n_ctx"})


def test_a_refusal_names_the_context_that_was_fixed() -> None:
    launch = replace(LAUNCH, n_ctx=40960)
    small = Device("card", "generic", 6 * GIB, 6 * GIB)
    with pytest.raises(
        Impossible, match=r"^40,960 tokens per slot do not fit card with -c, --never-offload kept"
    ):
        plan(MODEL, [small], Goal("chat", never_offload=True), launch=launch, fixed={"n_ctx"})


def test_a_context_beyond_training_is_told_and_a_refusal_names_it_whole() -> None:
    trained = MODEL.n_ctx_train
    roomy = Device("card", "generic", 80 * GIB, 80 * GIB)
    made = plan(
        MODEL, [roomy], Goal("chat"), launch=replace(LAUNCH, n_ctx=2 * trained), fixed={"n_ctx"}
    )
    assert any(f"more than the {trained:,} the model was trained" in str(each)
               for each in made.choice.why)  # fmt: skip
    with pytest.raises(Impossible, match=r"^1,000,000,000 tokens per slot do not fit"):
        plan(
            MODEL, [CARD], Goal("chat", never_offload=True),
            launch=replace(LAUNCH, n_ctx=999_999_999),
            fixed={"n_ctx"},
        )  # fmt: skip
