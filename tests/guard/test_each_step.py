"""Every step that docs/run.md names is provoked, by the program that fails as it is told.

`PROVOKED` has a row for each; real engines do it in test_run_engine.py: reserve, types, context,
layers and ubatch on a virtual card with a limit for one block, types in an address space that is
too small.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from guard.fakes import SERVE_AND_END, fake, last, starts
from guard.running import GPU, KV_OOM, QWEN, ROOT, TAKEN, Inside
from kvwise.plan.step import KNOBS

MOE = QWEN.replace("qwen3-8b", "qwen3-30b-a3b")
REFUSED = "0.01.000.000 E alloc_tensor_range: failed to allocate CUDA0 buffer of size {size}"
WEIGHTS = [
    REFUSED.format(size=5 << 30),
    "0.01.000.001 E load_tensors: unable to allocate CUDA0 buffer",
]
COMPUTE = [
    REFUSED.format(size=320 << 20),
    "0.01.000.001 E graph_reserve: failed to allocate compute buffers",
]
SAID_NOTHING = ["E something: std::bad_alloc"]


@dataclass(frozen=True)
class Provoked:
    """`words` of the run, `lines` that the engine says each time until `until` (a behaviour's key)
    lets it start; then the knobs of the first step and the flags that it moves."""

    words: tuple[str, ...]
    lines: list[str]
    knobs: tuple[str, ...]
    flags: frozenset[str]
    until: dict[str, Any] = field(default_factory=dict)


PROVOKED = {
    "the plan's ladder: more kept free": Provoked(
        (QWEN, *GPU), SAID_NOTHING, ("context",), frozenset({"-c"})
    ),
    "the plan's ladder: types": Provoked(
        (QWEN, *GPU, "-c", "4096"),
        SAID_NOTHING, ("types",), frozenset({"-ctk", "-ctv"}),
    ),
    "the plan's ladder: ubatch": Provoked(
        (QWEN, *GPU, "-c", "4096", "-ctk", "f16", "-ctv", "f16", "-fa", "off"),
        COMPUTE, ("ubatch",), frozenset({"-ub"}), {"above": {"-ub": 256}},
    ),
    "the plan's ladder: layers": Provoked(
        (QWEN, *GPU), WEIGHTS, ("context", "layers"), frozenset({"-ngl"}), {"above": {"-ngl": 36}}
    ),
    "the plan's ladder: experts": Provoked(
        (MOE, *GPU), WEIGHTS, ("context", "layers"), frozenset({"-ncmoe"})
    ),
    "reserve": Provoked(
        ("-m", QWEN, *GPU, "-np", "1"), KV_OOM, ("reserve",), frozenset({"-c"})
    ),
    "ubatch": Provoked(
        (*TAKEN, "-c", "4096", "-fa", "off"), COMPUTE, ("ubatch",), frozenset({"-ub"})
    ),
    "types": Provoked(
        (*TAKEN, "-c", "16384"), KV_OOM, ("types",), frozenset({"-ctk", "-ctv"})
    ),
    "context": Provoked(
        (*TAKEN, "-c", "16384", "-ctk", "q8_0", "-ctv", "q8_0", "--may-change", "context"),
        KV_OOM, ("context",), frozenset({"-c"}), {"above": {"-c": 9000}},
    ),
    "layers": Provoked(
        (*TAKEN, "-c", "4096", "--may-change", "layers"),
        WEIGHTS, ("layers",), frozenset({"-ngl"}), {"above": {"-ngl": 33}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVOKED)
def test_the_step_is_taken_and_the_server_comes_up(
    tmp_path: Path, inside: Inside, name: str
) -> None:
    wanted = PROVOKED[name]
    failing = {"lines": wanted.lines, "exit": 1, **wanted.until}
    behaviours = [{**failing, "soon": True}] if wanted.until else [failing, SERVE_AND_END]
    program = fake(tmp_path, *behaviours)
    done = inside(program, *wanted.words)
    assert done.code == 0
    steps = done.named("step")
    assert set(steps[0]["knobs"]) <= set(wanted.knobs)
    assert wanted.flags <= {flag for step in steps for flag in step["changes"]}
    assert all(step["frees_bytes"] > 0 for step in steps)
    (ready,) = done.named("ready")
    assert ready["attempt"] == len(starts(tmp_path)) == len(steps) + 1


def test_steps_that_failed_before_give_back_more(tmp_path: Path, inside: Inside) -> None:
    """Three refusals of a GiB: an eighth of it, a quarter, a half."""
    program = fake(tmp_path, *[{"lines": KV_OOM, "exit": 1}] * 3, SERVE_AND_END)
    done = inside(program, *TAKEN, "-c", "32768", "--may-change", "context", "-ctk", "f16")
    assert done.code == 0
    freed = [step["frees_bytes"] for step in done.named("step")]
    assert all(a >= (1 << 30) // b for a, b in zip(freed, (8, 4, 2), strict=True))


def test_below_the_ladder_everything_is_planned_again(tmp_path: Path, inside: Inside) -> None:
    """Every rung of the plan is tried; then more is kept free than any rung left."""
    program = fake(tmp_path, *[{"lines": SAID_NOTHING, "exit": 1}] * 7, SERVE_AND_END)
    done = inside(program, QWEN, *GPU, "--tries", "8")
    assert done.code == 0
    steps = done.named("step")
    assert len(steps) == 7
    assert steps[-1]["knobs"] == ["reserve"]
    contexts = [int(last(each["argv"], "-c") or 0) for each in starts(tmp_path)]
    assert contexts[:-1] == sorted(contexts[:-1], reverse=True)


def test_every_step_of_the_page_is_provoked() -> None:
    page = (ROOT / "docs/run.md").read_text(encoding="utf-8")
    table = page.partition("| knob | what it changes |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\w+) \|", table, re.MULTILINE)
    assert set(rows) == {"reserve", *KNOBS}
    assert set(rows) <= set(PROVOKED)
