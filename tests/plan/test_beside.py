"""Drafts and projectors in a plan: counted, in cache types of their own, aside where that helps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kvwise.device import Device
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.parts.companions import Companions
from kvwise.options import read
from kvwise.plan.candidate import missing
from kvwise.plan.choose import Plan, argv_of, plan
from kvwise.plan.goal import Goal

from .setup import RAM, gpu, model

sys.path.insert(0, str(Path(__file__).parents[1] / "memory/parts"))
from encoders import encoder

DRAFT = Companions(draft=model("qwen3-0.6b"))
SIGHT = Companions(mmproj=encoder("gemma3", embd=1152, heads=16, layers=27, ff=4304, image=896))
AWAY = "--no-mmproj-offload"


def drafted(devices: Sequence[Device], words: str = "", goal: Goal | None = None) -> Plan:
    reading = read(["-md", "draft.gguf", "--spec-type", "draft-simple", *words.split()])
    launch = replace(reading.launch, n_seq_max=1, n_outputs_max=4)
    return plan(
        model("qwen3-8b"), devices, goal or Goal("chat"), launch=launch,
        fixed=set(reading.origins), host=RAM, companions=DRAFT,
    )  # fmt: skip


def test_a_draft_is_counted_and_everything_fits() -> None:
    made = drafted([gpu(8.5)])
    for choice in (made.choice, *made.alternatives, *made.ladder):
        ledger = account(model("qwen3-8b"), choice.launch, [gpu(8.5)], host=RAM, companions=DRAFT)
        assert missing(ledger) == 0
        assert any(extra.of == "draft" for extra in ledger.extras)
    alone = plan(model("qwen3-8b"), [gpu(8.5)], Goal("chat"), host=RAM)
    assert made.choice.slot_tokens < alone.choice.slot_tokens


def test_the_drafts_cache_has_the_targets_types_unless_the_user_chose() -> None:
    launch = drafted([gpu(6.8)]).choice.launch
    assert launch.type_k == "q8_0"
    assert (launch.draft_type_k, launch.draft_type_v) == (launch.type_k, launch.type_v)
    launch = drafted([gpu(6.8)], "-ctkd f16 -ctvd f16").choice.launch
    assert (launch.draft_type_k, launch.draft_type_v) == ("f16", "f16")


def test_a_draft_goes_aside_before_layers_of_its_target_do() -> None:
    """0.6 GiB less on the card decide whether the target fits as a whole."""
    launches = [drafted([gpu(free)]).choice.launch for free in (6.8, 5.8)]
    assert launches[0].draft_gpu_layers == -1
    assert launches[1].draft_gpu_layers == 0
    assert launches[1].n_gpu_layers == 37
    heard = read(argv_of(launches[1])[1:]).launch
    assert heard.draft_gpu_layers == 0


def test_a_projector_goes_aside_where_it_costs_layers() -> None:
    def planned(free: float, *extra: str) -> Launch:
        base = Launch(mmproj="mmproj.gguf", extra=extra, n_outputs_max=1)
        return plan(
            model("gemma-3-4b"), [gpu(free)], Goal("chat"), launch=base, host=RAM, companions=SIGHT
        ).choice.launch

    assert AWAY not in planned(8).extra
    tight = planned(3.4)
    assert AWAY in tight.extra
    assert tight.n_gpu_layers == model("gemma-3-4b").n_layer_all + 1
    assert planned(3.4, "--mmproj-offload").extra == ("--mmproj-offload",)


def test_slots_share_a_cache_where_the_engine_refuses_separate_ones() -> None:
    made = plan(model("flan-t5-large"), [gpu(4)], Goal("chat", slots=3), host=RAM)
    context = made.choice.ledger.context
    assert context.kv_unified
    assert made.choice.slot_tokens == min(context.n_ctx // 3, model("flan-t5-large").n_ctx_train)
    separate = plan(model("qwen3-0.6b"), [gpu(4)], Goal("chat", slots=3), host=RAM)
    assert not separate.choice.ledger.context.kv_unified
