"""The ladder: each knob, its order, what it gives back, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from guard.running import QWEN
from kvwise.arch import describe
from kvwise.device import Device, Host
from kvwise.gguf.open import open_header
from kvwise.guard.case import Case, line_of
from kvwise.guard.cause import Cause
from kvwise.guard.steps import RESERVE, SHARES, Exhausted, Ladder
from kvwise.launch import Launch
from kvwise.plan.choose import plan
from kvwise.plan.goal import Goal
from kvwise.plan.step import KNOBS, Step, knobs_moved
from kvwise.text import phrase
from kvwise.units import GIB, MIB

CARD = Device("card", "generic", 8 * GIB, 8 * GIB)
HOST = Host(64 * GIB, 60 * GIB)
START = Launch(
    model="m.gguf", n_ctx=16384, n_seq_max=1, n_gpu_layers=99, fit=False, n_outputs_max=1
)
MODEL = describe(open_header(QWEN))
MOE = describe(open_header(QWEN.replace("qwen3-8b", "qwen3-30b-a3b")))
ALL = frozenset().union(*KNOBS.values())


def cause(kind: str, asked: int | None = None, buffer: str | None = None) -> Cause:
    part = {"weights-oom": "weights", "kv-alloc-oom": "context"}.get(kind)
    return Cause(kind, phrase("x"), part=part, asked_bytes=asked, buffer=buffer)


def case(**changes: object) -> Case:
    return replace(Case(MODEL, (CARD,), HOST, fixed=frozenset({"n_seq_max"})), **changes)


def step(why: Cause, launch: Launch = START, **changes: object) -> Step:
    found = Ladder(case(**changes)).next(launch, why)
    assert isinstance(found, Step), found
    return found


def only(knob: str) -> frozenset[str]:
    """All but one knob fixed."""
    return ALL - KNOBS[knob] | {"n_seq_max"}


@pytest.mark.parametrize("knob", list(KNOBS))
def test_each_knob_alone_gives_back_what_it_says(knob: str) -> None:
    found = step(cause("out-of-memory"), fixed=only(knob))
    assert found.knobs == (knob,)
    before, after = case().ledger(START), case().ledger(found.launch)
    assert before is not None
    assert after is not None
    freed = before.lines[0].total_bytes - after.lines[0].total_bytes
    assert found.frees_bytes == freed > 0
    assert (
        set(found.changes)
        <= {
            "ubatch": {"-ub"},
            "types": {"-ctk", "-ctv"},
            "context": {"-c"},
            "layers": {"-ngl"},
        }[knob]
    )


def test_the_gentlest_knob_that_is_enough_comes_first() -> None:
    assert step(cause("out-of-memory", 100 * MIB)).knobs == ("ubatch",)
    assert step(cause("out-of-memory", 4 * GIB)).knobs == ("types",)
    assert step(cause("out-of-memory", 4 * GIB), fixed=KNOBS["types"]).knobs == ("context",)
    fixed = KNOBS["types"] | KNOBS["context"]
    assert step(cause("out-of-memory", 4 * GIB), fixed=fixed).knobs == ("layers",)


def test_a_step_gives_back_a_growing_share_of_what_was_refused() -> None:
    ladder, launch, why = Ladder(case(fixed=only("context"))), START, cause("kv-alloc-oom", GIB)
    for share in SHARES[:3]:
        found = ladder.next(launch, why)
        assert isinstance(found, Step)
        assert (found.frees_bytes or 0) >= GIB * share[0] // share[1]
        launch = found.launch
    contexts = [START.n_ctx, launch.n_ctx]
    assert contexts == sorted(contexts, reverse=True)


def test_only_what_was_allocated_before_counts() -> None:
    """A smaller compute buffer is no help to a cache that is refused, nor a cache to weights."""
    assert step(cause("kv-alloc-oom", 100 * MIB)).knobs == ("types",)
    found = step(cause("weights-oom", 400 * MIB))
    assert found.knobs == ("layers",)
    assert found.launch.n_ctx == START.n_ctx


def test_several_knobs_together_when_none_is_enough() -> None:
    found = step(cause("out-of-memory", 20 * GIB), fixed=KNOBS["layers"])
    assert found.knobs[:2] == ("ubatch", "types")
    assert "context" in found.knobs


def test_experts_go_before_layers() -> None:
    found = step(cause("weights-oom", 2 * GIB), model=MOE)
    assert list(found.changes) == ["-ncmoe"]


def test_experts_leave_layer_by_layer() -> None:
    """As many as it takes and not one more: a layer fewer would not be enough."""
    why, fixed = cause("weights-oom", 2 * GIB), frozenset({"n_seq_max"})
    found = step(why, model=MOE, fixed=fixed)
    needed = 2 * GIB * SHARES[0][0] // SHARES[0][1]
    assert (found.frees_bytes or 0) >= needed
    fewer = replace(found.launch, n_cpu_moe=found.launch.n_cpu_moe - 1)
    before, after = (case(model=MOE).ledger(each) for each in (START, fewer))
    assert before is not None
    assert after is not None
    assert before.lines[0].weights_bytes - after.lines[0].weights_bytes < needed


def test_after_a_new_plan_its_own_ladder_is_gone_down() -> None:
    ladder = Ladder(case(goal=Goal(), fixed=frozenset()))
    first = ladder.next(START, cause("kv-alloc-oom", GIB))
    assert isinstance(first, Step)
    assert first.knobs == (RESERVE,)
    second = ladder.next(first.launch, cause("kv-alloc-oom", 256 * MIB))
    assert isinstance(second, Step)
    assert set(second.knobs) <= set(KNOBS)  # what it moves
    assert (second.frees_bytes or 0) >= 64 * MIB


def test_what_was_planned_goes_down_the_plans_own_ladder_first() -> None:
    made = plan(MODEL, [CARD], Goal(), host=HOST)
    planned = case(goal=Goal(), fixed=frozenset(), plan=made)
    ladder, launch = Ladder(planned), made.choice.launch
    for rung in made.ladder:
        found = ladder.next(launch, cause("out-of-memory"))
        assert isinstance(found, Step)
        assert found.launch == rung.launch
        assert found.knobs == knobs_moved(launch, rung.launch)
        assert str(found.reason) == str(rung.step)
        launch = found.launch
    after = ladder.next(launch, cause("out-of-memory"))
    assert isinstance(after, Step)
    assert after.knobs == (RESERVE,)


def test_a_plans_ladder_is_left_where_it_leads_back() -> None:
    """Its rungs have the cache types that the engine lacks."""
    goal = Goal(min_quality="any")
    made = plan(MODEL, [CARD], goal, host=HOST)
    ladder = Ladder(case(goal=goal, fixed=frozenset(), plan=made))
    launch = made.choice.launch
    while launch.type_k == "f16":
        found = ladder.next(launch, cause("out-of-memory"))
        assert isinstance(found, Step)
        launch = found.launch
    lacking = ladder.next(launch, cause("cache-types"))
    assert isinstance(lacking, Step)
    for _ in range(3):
        assert (lacking.launch.type_k, lacking.launch.type_v) == ("f16", "f16")
        again = ladder.next(lacking.launch, cause("out-of-memory"))
        assert isinstance(again, Step)
        lacking = again


def test_a_lost_gpu_asks_for_shorter_work() -> None:
    found = step(cause("device-lost-timeout"))
    assert found.changes == {"-ub": (512, 256)}
    fixed = KNOBS["ubatch"] | {"n_seq_max"}
    assert list(step(cause("device-lost-timeout"), fixed=fixed).changes) == ["-c"]


def test_what_was_fixed_is_named_and_moved_only_when_it_may() -> None:
    why = cause("kv-alloc-oom", GIB)
    found = Ladder(case(fixed=ALL)).next(START, why)
    assert isinstance(found, Exhausted)
    assert found.would is not None
    assert found.would.knobs == ("types",)
    moved = step(why, fixed=ALL, may_change=frozenset({"context"}))
    assert moved.knobs == ("context",)


def test_nothing_left_is_said() -> None:
    small = replace(START, n_ctx=512, n_ubatch=64, n_gpu_layers=0, type_k="q4_0", type_v="q4_0")
    assert Ladder(case(devices=())).next(small, cause("kv-alloc-oom", GIB)) == Exhausted(None)


def test_a_prompt_that_must_fit_is_kept() -> None:
    goal = Goal("document", prompt_tokens=12000, predict_tokens=1000)
    fixed = only("context")
    ladder, launch = Ladder(case(goal=goal, fixed=fixed)), START
    while isinstance(found := ladder.next(launch, cause("out-of-memory", GIB)), Step):
        launch = found.launch
        assert launch.n_ctx >= 13000
    assert launch.n_ctx < START.n_ctx


def test_quality_is_kept_where_it_was_asked_for() -> None:
    lossless = Goal("chat", min_quality="lossless")
    found = step(cause("kv-alloc-oom", 100 * MIB), goal=lossless)
    assert found.launch.type_k == "f16"
    anything = Goal("chat", min_quality="any")
    fixed = only("types")
    ladder = Ladder(case(goal=anything, fixed=fixed))
    first = ladder.next(START, cause("kv-alloc-oom", GIB))
    assert isinstance(first, Step)
    assert first.launch.type_k == "q8_0"
    second = ladder.next(first.launch, cause("kv-alloc-oom", GIB))
    assert isinstance(second, Step)
    assert second.launch.type_v == "q4_0"


def test_layers_stay_on_the_gpu_where_that_was_asked_for() -> None:
    goal = Goal("chat", never_offload=True)
    found = Ladder(case(goal=goal, fixed=only("layers"))).next(START, cause("kv-alloc-oom", GIB))
    assert isinstance(found, Exhausted)


def test_a_plan_is_made_anew_first_and_once() -> None:
    goal, why = Goal("chat"), cause("out-of-memory", 2 * GIB)
    ladder = Ladder(case(goal=goal))
    first = ladder.next(START, why)
    assert isinstance(first, Step)
    assert first.knobs == ("reserve",)
    assert (first.frees_bytes or 0) >= 2 * GIB // 8
    second = ladder.next(first.launch, why)
    assert isinstance(second, Step)
    assert "reserve" not in second.knobs


def test_spilled_bytes_are_taken_back_at_once() -> None:
    ladder = Ladder(case())
    found = ladder.next(START, cause("vram-spill-slow"), spilled=GIB)
    assert isinstance(found, Step)
    assert (found.frees_bytes or 0) >= GIB


def test_a_killed_server_frees_the_host_and_not_the_gpu() -> None:
    launch = replace(START, n_gpu_layers=0)
    found = step(cause("killed"), launch)
    assert case().ledger(found.launch).host.total_bytes < case().ledger(launch).host.total_bytes  # type: ignore[union-attr]


def test_an_encoder_keeps_its_micro_batch() -> None:
    encoder = describe(open_header(QWEN.replace("qwen3-8b", "nomic-embed-text-v1.5")))
    launch = replace(START, n_ctx=2048, n_batch=2048, n_ubatch=2048, embeddings=True)
    found = Ladder(case(model=encoder, fixed=only("ubatch"))).next(launch, cause("out-of-memory"))
    assert isinstance(found, Exhausted)


def test_without_a_ledger_the_knobs_are_moved_blindly() -> None:
    ladder = Ladder(case(model=None))
    first = ladder.next(START, cause("compute-oom"))
    assert isinstance(first, Step)
    assert first.changes == {"-ub": (512, 256)}
    assert first.frees_bytes is None
    weights = ladder.next(START, cause("weights-oom", GIB))
    assert isinstance(weights, Step)
    assert weights.changes == {"-ngl": (99, 86)}


@pytest.mark.parametrize(
    ("buffer", "kind", "line"),
    [
        ("CUDA1", "kv-alloc-oom", 1),
        ("RPC0[127.0.0.1:5]", "kv-alloc-oom", 0),
        ("CPU", "kv-alloc-oom", -1),
        ("CUDA_Host", "compute-oom", -1),
        (None, "killed", -1),
        (None, "hang", 0),
    ],
)
def test_the_device_that_a_cause_is_about(buffer: str | None, kind: str, line: int) -> None:
    ledger = case(devices=(CARD, replace(CARD, index=1, free_bytes=4 * GIB))).ledger(START)
    assert ledger is not None
    assert line_of(ledger, cause(kind, buffer=buffer)) is ledger.lines[line]
