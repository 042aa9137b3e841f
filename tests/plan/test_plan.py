"""Plans hold what they promise: they fit, keep what is fixed, and use the memory up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvwise.device import Device
from kvwise.errors import Refused, UsageError
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.options import change, read
from kvwise.plan.candidate import CELLS
from kvwise.plan.choose import Choice, Impossible, Plan, argv_of, plan
from kvwise.plan.goal import PURPOSES, Goal
from kvwise.plan.quality import PAIRS, QUALITIES, meets, quality_of

from .setup import RAM, gpu, model

CASES = [
    ("qwen3-8b", [gpu(7.4)]),
    ("qwen3-8b", [gpu(5.8)]),
    ("qwen3-8b", []),
    ("qwen3-8b", [gpu(4), gpu(6, index=1)]),
    ("gpt-oss-20b", [gpu(7.4)]),
    ("gemma-3-4b", [gpu(4, kind="generic")]),
    ("deepseek-v2-lite", [gpu(7.4)]),
    ("mamba-130m", [gpu(2)]),
    ("falcon-h1-1.5b", [gpu(3)]),
    ("bge-small-en-v1.5", [gpu(2)]),
]


def _headroom(choice: Choice) -> list[int]:
    lines = choice.ledger.lines
    spare = [
        (line.headroom_bytes or 0) - (device.reserve_bytes or 0)
        for line, device in zip(lines, choice.ledger.devices, strict=False)
    ]
    return [*spare, lines[-1].headroom_bytes or 0]


EVERY_PURPOSE = [("llama-3.2-1b", [gpu(1.6)], purpose) for purpose in PURPOSES]
SOME = [(*case, "document") for case in CASES]


@pytest.mark.parametrize(("name", "devices", "purpose"), EVERY_PURPOSE + SOME)
def test_every_launch_of_a_plan_fits_with_its_reserve(
    name: str, devices: list[Device], purpose: str
) -> None:
    made = plan(model(name), devices, Goal(purpose), host=RAM)
    for choice in (made.choice, *made.alternatives, *made.ladder):
        assert min(_headroom(choice)) >= 0
        again = account(model(name), choice.launch, devices, host=RAM)
        assert again.lines == choice.ledger.lines
        assert choice.slot_tokens <= model(name).n_ctx_train


@pytest.mark.parametrize(("name", "devices"), CASES[4:])
def test_the_command_line_asks_for_exactly_the_plan(name: str, devices: list[Device]) -> None:
    made = plan(model(name), devices, host=RAM)
    argv = argv_of(made.choice.launch)
    assert argv[0] == "llama-server"
    heard = read(argv[1:]).launch
    assert account(model(name), heard, devices, host=RAM).lines == made.choice.ledger.lines
    assert heard.fit is False


@pytest.mark.parametrize("free", [5.2, 6.0, 7.4, 9.0])
@pytest.mark.parametrize("kind", ["cuda", "generic"])
def test_the_context_is_within_one_step_of_the_edge(free: float, kind: str) -> None:
    made = plan(model("qwen3-8b"), [gpu(free, kind=kind)], Goal("chat"), host=RAM)
    launch = made.choice.launch
    more = change(launch, n_ctx=launch.n_ctx + CELLS)
    ledger = account(model("qwen3-8b"), more, made.choice.ledger.devices, host=RAM)
    assert (ledger.lines[0].headroom_bytes or 0) < (ledger.devices[0].reserve_bytes or 0)


FIXED = [
    ("n_ctx", 6144),
    ("n_ubatch", 64),
    ("type_k", "q8_0"),
    ("type_v", "f16"),
    ("n_gpu_layers", 9),
    ("offload_kqv", False),
    ("kv_unified", True),
]


@pytest.mark.parametrize(("field", "value"), FIXED)
def test_what_the_user_fixed_stays(field: str, value: object) -> None:
    launch = replace(Launch(), **{field: value})
    made = plan(model("llama-3.2-1b"), [gpu(2.5)], launch=launch, fixed={field}, host=RAM)
    for choice in (made.choice, *made.alternatives, *made.ladder):
        assert getattr(choice.launch, field) == value


@pytest.mark.parametrize(
    ("name", "field", "value", "other"),
    [
        ("mamba-130m", "type_k", "f32", "f16"),  # keeps no cache at all
        ("mamba-130m", "type_v", "q8_0", "f16"),
        ("deepseek-v2-lite", "type_k", "f32", "f32"),  # both must be alike
        ("deepseek-v2-lite", "type_v", "q8_0", "q8_0"),
        ("llama-3.2-1b", "type_k", "f32", "f16"),
    ],
)
def test_one_cache_type_stays_whatever_the_model(
    name: str, field: str, value: str, other: str
) -> None:
    launch = replace(Launch(), **{field: value})
    made = plan(model(name), [gpu(24)], launch=launch, fixed={field}, host=RAM)
    for choice in (made.choice, *made.alternatives, *made.ladder):
        assert sorted((choice.launch.type_k, choice.launch.type_v)) == sorted((value, other))
        assert getattr(choice.launch, field) == value


@pytest.mark.parametrize("floor", QUALITIES)
def test_the_quality_floor_holds(floor: str) -> None:
    goal = Goal("max-context", min_quality=floor)
    made = plan(model("llama-3.1-8b"), [gpu(6, kind="generic")], goal, host=RAM)
    for choice in (made.choice, *made.alternatives, *made.ladder):
        assert meets(choice.quality, floor)


def test_lower_quality_buys_context() -> None:
    contexts = [
        plan(
            model("llama-3.1-8b"),
            [gpu(6, kind="generic")],
            Goal("max-context", min_quality=floor, never_offload=True),
            host=RAM,
        ).choice.slot_tokens
        for floor in ("lossless", "high", "any")
    ]
    assert contexts == sorted(set(contexts))


def test_cuda_gets_no_cache_types_that_its_attention_lacks() -> None:
    goal = Goal("max-context", min_quality="any", never_offload=True)
    made = plan(model("llama-3.1-8b"), [gpu(5.5)], goal, host=RAM)
    for choice in (made.choice, *made.alternatives):
        assert choice.launch.type_k == choice.launch.type_v


@pytest.mark.parametrize("kind", ["cuda", "generic"])
def test_without_flash_attention_only_k_is_quantized(kind: str) -> None:
    launch = Launch(flash_attn="off", n_outputs_max=1)
    goal = Goal("max-context", min_quality="any", never_offload=True)
    made = plan(
        model("llama-3.1-8b"), [gpu(7, kind=kind)], goal, launch=launch, fixed={"flash_attn"},
        host=RAM,
    )  # fmt: skip
    for choice in (made.choice, *made.alternatives, *made.ladder):
        assert choice.launch.type_v == "f16"
        assert not choice.ledger.context.flash_attn
    assert made.choice.launch.type_k == "q4_0"


def test_never_offload_keeps_every_layer() -> None:
    made = plan(model("gemma-3-4b"), [gpu(4)], Goal("max-context", never_offload=True), host=RAM)
    everything = model("gemma-3-4b").n_layer_all + 1
    assert made.choice.ledger.placement.gpu_layers == everything
    with pytest.raises(Impossible) as caught:
        plan(model("qwen3-8b"), [gpu(4)], Goal(never_offload=True), host=RAM)
    nearest = caught.value.nearest
    assert nearest is not None
    assert nearest.choice.ledger.placement.gpu_layers < 37


def test_experts_leave_first() -> None:
    launch = plan(model("gpt-oss-20b"), [gpu(7.4)], host=RAM).choice.launch
    assert launch.n_cpu_moe > 0
    assert launch.n_gpu_layers == model("gpt-oss-20b").n_layer_all + 1


def test_min_memory_takes_less_than_any_other_goal() -> None:
    def taken(purpose: str) -> int:
        made = plan(model("qwen3-0.6b"), [gpu(8)], Goal(purpose), host=RAM)
        return made.choice.ledger.lines[0].total_bytes

    least = taken("min-memory")
    assert all(least <= taken(purpose) for purpose in PURPOSES)


def test_slots_each_get_their_context() -> None:
    goal = Goal("document", prompt_tokens=3000, predict_tokens=500, slots=3)
    made = plan(model("gemma-3-4b"), [gpu(8)], goal, host=RAM)
    context = made.choice.ledger.context
    assert (context.n_seq_max, context.kv_unified) == (3, False)
    assert context.n_ctx_seq == made.choice.slot_tokens >= 3500
    assert made.predict_tokens_max == made.choice.slot_tokens - 3000


def test_the_ladder_goes_down() -> None:
    made = plan(model("qwen3-8b"), [gpu(7.4)], host=RAM)
    weights = [each.ledger.lines[0].total_bytes for each in (made.choice, *made.ladder)]
    assert len(made.ladder) >= 3
    assert weights == sorted(set(weights), reverse=True)


def test_alternatives_are_worth_a_look() -> None:
    made = plan(model("qwen3-8b"), [gpu(7.4)], host=RAM)
    everything = (made.choice, *made.alternatives)
    for one in everything:
        for other in everything:
            assert one is other or not (
                other.slot_tokens >= one.slot_tokens
                and meets(other.quality, one.quality if one.quality != "low" else "any")
                and other.speed.read_bytes_host <= one.speed.read_bytes_host
            )


# -- what cannot be ---------------------------------------------------------------


def _impossible(
    goal: Goal, launch: Launch | None = None, fixed: str = "", free: float = 7.4
) -> Impossible:
    with pytest.raises(Impossible) as caught:
        plan(
            model("qwen3-8b"), [gpu(free)], goal, launch=launch, fixed=set(fixed.split()), host=RAM
        )
    return caught.value


def test_the_reports_114_tokens_are_refused_and_the_nearest_is_named() -> None:
    """requirements.md A5: a prompt of 3,982 tokens at -c 3584."""
    goal = Goal("document", prompt_tokens=3982, predict_tokens=114)
    error = _impossible(goal, Launch(n_ctx=3584), "n_ctx")
    assert "3,982" in str(error)
    assert "3,584" in str(error)
    nearest = error.nearest
    assert isinstance(nearest, Plan)
    assert nearest.predict_tokens_max is not None
    assert nearest.predict_tokens_max >= 114
    exact = plan(
        model("qwen3-8b"), [gpu(7.4)], goal, launch=Launch(n_ctx=4096), fixed={"n_ctx"}, host=RAM
    )
    assert exact.predict_tokens_max == 114


def test_a_prompt_must_leave_room_for_one_token() -> None:
    launch = Launch(n_ctx=4096)
    devices = [gpu(7.4)]
    full = Goal("document", prompt_tokens=4095, predict_tokens=1)
    made = plan(model("qwen3-8b"), devices, full, launch=launch, fixed={"n_ctx"}, host=RAM)
    assert made.predict_tokens_max == 1
    _impossible(replace(full, prompt_tokens=4096), launch, "n_ctx")


def test_more_than_the_model_was_trained_for() -> None:
    error = _impossible(Goal("document", prompt_tokens=50_000), free=24)
    assert "40,960" in str(error)
    assert "enough for a prompt of 40,704" in str(error.hint)
    assert error.nearest is not None
    assert error.nearest.choice.slot_tokens == 40_960


def test_a_model_that_fits_nowhere_has_no_nearest() -> None:
    with pytest.raises(Impossible) as caught:
        plan(model("deepseek-v3"), [gpu(8)], host=RAM)
    assert caught.value.nearest is None
    assert caught.value.exit_code == 3


def test_what_the_engine_refuses_is_passed_on() -> None:
    launch = Launch(flash_attn="off", type_v="q8_0")
    with pytest.raises(Refused) as caught:
        plan(model("qwen3-8b"), [gpu(8)], launch=launch, fixed={"flash_attn", "type_v"}, host=RAM)
    assert caught.value.code == "v_quant_needs_flash_attn"


@pytest.mark.parametrize(
    "wrong",
    [{"purpose": "fun"}, {"min_quality": "best"}, {"prompt_tokens": -1}, {"predict_tokens": 0},
     {"slots": 0}],
)  # fmt: skip
def test_goals_that_cannot_be_meant(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Goal(**wrong)  # type: ignore[arg-type]


def test_pairs_are_ordered_by_quality() -> None:
    classes = [quality_of(*pair) for pair in PAIRS]
    assert classes == ["lossless", "high", "medium", "medium", "medium", "low"]
    assert quality_of("bf16", "f32") == "lossless"
    assert quality_of("f16", "q4_0") == "medium"
    assert quality_of("q4_0", "f16") == "low"


def test_the_context_of_a_ladder_gives_way_on_a_roomy_card_too() -> None:
    """More than the reserve is free there already, which is no reason to leave the context out."""
    types = {"type_k": "f16", "type_v": "f16", "n_ubatch": 512}
    made = plan(
        model("qwen3-0.6b"), [gpu(99)], Goal("chat"), host=RAM,
        launch=Launch(n_seq_max=1, n_outputs_max=1, **types), fixed=types,
    )  # fmt: skip
    contexts = [rung.launch.n_ctx for rung in (made.choice, *made.ladder)]
    assert contexts[1] < contexts[0]
    assert contexts == sorted(contexts, reverse=True)
    assert all(rung.launch.n_gpu_layers == made.choice.launch.n_gpu_layers for rung in made.ladder)
