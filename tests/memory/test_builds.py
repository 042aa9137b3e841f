"""Builds and their changes, and our figures beside those that a build's own tools printed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kvwise import builds
from kvwise.arch import describe
from kvwise.device import Device
from kvwise.gguf.open import open_header
from kvwise.launch import Launch
from kvwise.memory.account import account
from memory.builds import measured, outcome
from oracle.measure_build import described, recorded

NEWER = ["tiny-maple", "tiny-spark2_5", "tiny-hrm_text", "tiny-k2-horizon", "tiny-k2-horizon-moe",
         "tiny-gemma-embedding2"]  # fmt: skip
FEW = [
    "tiny-llama", "tiny-gemma3n", "tiny-qwen35", "tiny-deepseek32", "tiny-kimi-linear",
    "tiny-mamba2", "tiny-bert", "tiny-falcon-h1", "tiny-deepseek4", "qwen3-30b-a3b", *NEWER,
]  # fmt: skip
"""The rest run with `-m slow`."""

GB = 2**30


@pytest.mark.parametrize(
    "names", [pytest.param(FEW, id="few"), pytest.param([], id="all", marks=pytest.mark.slow)]
)
def test_every_figure_is_what_the_build_printed(names: list[str]) -> None:
    count: Counter[str] = Counter()
    wrong = []
    for name, model, config, said in measured("b11549", names):
        for part, verdict in outcome(model, config, said, "b11549"):
            count[part] += 1
            if verdict != "same":
                wrong.append((name, part, verdict, config))
    assert count["compute"] > 200
    assert wrong == []


def test_a_name_is_its_number() -> None:
    assert builds.number("b11549") == 11549
    assert builds.number("anything") == builds.OLDEST
    assert builds.name(11549) == "b11549"


def test_a_change_is_there_from_the_middle_of_its_interval_on() -> None:
    change = builds.Change("a change", 200, 100, "a file")
    assert [builds.has(build, change) for build in (100, 149, 151, 200, 999)] == [
        False, False, True, True, True,
    ]  # fmt: skip


def test_every_change_has_an_interval_and_a_source() -> None:
    changes = [each for each in vars(builds).values() if isinstance(each, builds.Change)]
    assert len(changes) > 20
    for change in changes:
        assert change.before < change.since
        assert change.name
        assert change.source


def test_an_architecture_that_a_build_does_not_know_is_said_to_be_unknown() -> None:
    model = describe(open_header(str(described("tiny-maple"))))
    old = account(model, Launch(build="b10605"), ())
    new = account(model, Launch(build="b11549"), ())
    assert any("maple" in str(doubt) and "b10605" in str(doubt) for doubt in old.doubts)
    assert not any("maple" in str(doubt) for doubt in new.doubts)


def test_a_build_that_is_newer_than_all_known_is_planned_with_the_newest_rules() -> None:
    model = describe(open_header(str(described("tiny-llama"))))
    newest = account(model, Launch(build="b11549"), ())
    later = account(model, Launch(build="b99999"), ())
    assert [line.total_bytes for line in later.lines] == [line.total_bytes for line in newest.lines]
    assert any("b11549" in str(doubt) for doubt in later.doubts)


def test_every_zoo_model_was_measured() -> None:
    models = recorded("b11549")["models"]
    assert set(models) >= set(NEWER)
    assert len(models) >= 220


def test_cuda_keeps_the_chosen_experts_alive() -> None:
    """Sum and choice of each layer: what was fused stays until its end, so the buffer grows."""
    model = describe(open_header(str(described("qwen3-30b-a3b"))))
    gpu = Device("CUDA0", "cuda", 80 * GB, 80 * GB)
    launch = Launch(n_ctx=8192, n_gpu_layers=999, n_seq_max=1, build="b11549")
    ledger = account(model, launch, (gpu,))
    generic = account(model, launch, (replace(gpu, kind="rpc"),))
    assert ledger.lines[0].basis["compute"] == "computed"
    assert ledger.lines[0].compute_bytes > generic.lines[0].compute_bytes


def test_cuda_takes_caches_of_two_types() -> None:
    """Before, attention went to the processor, whose buffer was larger for it."""
    model = describe(open_header(str(described("llama-3.1-8b"))))
    gpu = Device("CUDA0", "cuda", 80 * GB, 80 * GB)
    mixed = Launch(n_ctx=8192, n_gpu_layers=999, type_k="q8_0", type_v="q4_0", flash_attn="on",
                   build="b11549")  # fmt: skip
    same = replace(mixed, type_v="q8_0")
    host = [account(model, launch, (gpu,)).lines[-1].compute_bytes for launch in (mixed, same)]
    assert host[0] == host[1]
    old = account(model, replace(mixed, build="b10605"), (gpu,)).lines[-1].compute_bytes
    assert old > host[0]
