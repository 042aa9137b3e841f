"""Whoever wants answers fast is offered what reads least from the host, down to single matrices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.options import change
from kvwise.plan.candidate import missing
from kvwise.plan.choose import Choice, Plan, plan
from kvwise.plan.edge import edge
from kvwise.plan.experts import packed
from kvwise.plan.goal import Goal
from kvwise.plan.offload import levels
from kvwise.plan.quality import CLASSES
from kvwise.plan.speed.work import work
from thinning import thinned

from .setup import gpu, model

LEAST = 4096
START = Launch(n_seq_max=1, n_outputs_max=0, fit=False)
CASES = [
    ("qwen3-coder-480b-a35b", 24, "generic"),
    ("qwen3-next-80b-a3b", 12, "cuda"),
    ("qwen3-next-80b-a3b", 8, "cuda"),
    ("gpt-oss-20b", 8, "generic"),
    ("mixtral-8x7b", 16, "cuda"),
    ("glm-4.5-air", 24, "cuda"),
]


def card(free: float, kind: str) -> Device:
    """All of it is free, and 256 MiB stay so."""
    return replace(gpu(free, kind=kind), overhead_bytes=0, reserve_bytes=256 << 20)


def read(made: Choice) -> int:
    """Bytes of the host that a token reads at the least context."""
    return work(made.ledger, LEAST)[-1].read_bytes


def layers_in_turn(of: Model, device: Device) -> int:
    """The same where layers leave the card in turn, the last of them matrix by matrix, at the least
    context with a plain cache: how llama.cpp's `--fit` fills a card."""
    base = change(START, n_ctx=LEAST, type_k="f16", type_v="f16", n_ubatch=512)
    steps = levels(of, 1, frozenset())

    def left(number: int) -> int:
        return -missing(account(of, change(base, **steps[number]), [device]))

    first = edge(left, len(steps) - 1, 0)
    return work(account(of, change(base, **steps[first]), [device]), LEAST)[-1].read_bytes


def shown(made: Plan) -> list[Choice]:
    return [made.choice, *made.alternatives]


@pytest.mark.parametrize(("name", "free", "kind"), thinned(CASES))
@pytest.mark.parametrize("floor", ["lossless", "high"])
def test_nothing_reads_less_than_the_least_that_is_shown(
    name: str, free: float, kind: str, floor: str
) -> None:
    device = card(free, kind)
    made = plan(model(name), [device], Goal("chat", min_quality=floor), launch=START)
    kept = [each for each in shown(made) if each.launch.offload_kqv]
    assert min(map(read, kept)) <= layers_in_turn(model(name), device)
    assert all(each.slot_tokens >= LEAST for each in kept)


@pytest.mark.parametrize(("name", "free", "kind"), CASES[:3])
def test_a_worse_cache_does_not_hide_what_reads_less_with_a_good_one(
    name: str, free: float, kind: str
) -> None:
    """q8_0 reads a hair less than all: f16 that reads less than the choice is still shown."""
    made = plan(model(name), [card(free, kind)], Goal("chat", min_quality="high"), launch=START)
    least = min(made.alternatives, key=read)
    assert read(least) < read(made.choice)
    assert CLASSES.index(least.quality) <= CLASSES.index(made.choice.quality)
    assert "less from the host" in str(least.trades)


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v2-lite"])
@pytest.mark.parametrize("layers", [3, 7, 12])
def test_matrices_in_any_order_are_no_more_than_layers_in_turn(name: str, layers: int) -> None:
    """Fewer broken layers cost no more bytes than the plain way has."""
    for step in levels(model(name), 1, frozenset())[3 * layers - 2 : 3 * layers + 1]:
        launch = change(START, n_ctx=LEAST, **step)
        ledger = account(model(name), launch, [gpu(99)], compute_mode="none")
        here = work(ledger, LEAST)[-1].read_bytes
        host = packed(ledger, [0, 0])
        if host is not None:
            used = model(name).n_expert_used / model(name).n_expert
            assert sum(each.nbytes for each in host) * used <= here * (1 + 1e-6)
