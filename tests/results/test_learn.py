"""What the planner may take from what was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kvwise
from kvwise.plan.quality import Fidelity
from kvwise.plan.speed.measured import Measured
from kvwise.results import (
    Measurement,
    fidelities_for,
    learn_fidelities,
    learn_speeds,
    memory_of,
    save,
    speeds_for,
    total_of,
    work_of,
)
from kvwise.results.learn import SPEED_HOLDS_S
from kvwise.store import Store
from results_made import CARD, ENGINE, MACHINE, MODEL, measurement
from zoo_files import ZOO

NOW = 1_790_000_000.0
WORK: dict[str, Any] = {
    "devices": [CARD.name], "read_bytes": 100, "host_bytes": 0, "flops": 5, "depth": 0,
    "type_k": "f16", "type_v": "f16", "n_ubatch": 512,
}  # fmt: skip


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "a.db") as store:
        yield store


def speed(**changes: Any) -> Measurement:
    return measurement(at=changes.pop("at", NOW), figures={"work": WORK}, **changes)


def why(kept: Store, **asked: Any) -> list[str]:
    found = learn_speeds(kept, MODEL, asked.pop("machine", MACHINE), now=NOW, **asked)
    assert not found.speeds
    return [str(reason) for _, reason in found.left_out]


def test_a_speed_comes_back_as_the_speed_model_takes_it(kept: Store) -> None:
    save(kept, speed(), speed(test={"metric": "prompt"}), measurement(kind="tune"))
    found = learn_speeds(kept, MODEL, MACHINE, ENGINE, NOW).speeds
    decode, prompt = sorted(found, key=lambda each: each.decode_tokens_per_s is None)
    around = speed().spread / 41.0
    work = {**WORK, "devices": (CARD.name,)}
    assert decode == Measured(**work, decode_tokens_per_s=41.0, spread=around)
    assert around > 0
    assert (prompt.decode_tokens_per_s, prompt.prompt_tokens_per_s) == (None, 41.0)


def test_only_the_newest_of_the_same_measurement_counts(kept: Store) -> None:
    late = replace(speed(at=NOW + 5), samples=speed().samples[:1])
    save(kept, late, speed())
    assert [each.decode_tokens_per_s for each in speeds_for(kept, MODEL, MACHINE)] == [40.0]


def test_what_was_disturbed_is_left_out_and_said(kept: Store) -> None:
    quiet, other = speed(), replace(MODEL, fingerprint="another")
    samples = [
        tuple(replace(each, flags=(flag,)) for each in quiet.samples)
        for flag in ("contended", "throttled")
    ]
    save(kept, *(replace(quiet, at=NOW + at, samples=each, test={"metric": "decode", "n": at})
                 for at, each in enumerate(samples)))  # fmt: skip
    save(kept, replace(quiet, samples=samples[0], model=other))  # another model's are not missed
    assert why(kept) == ["something else ran meanwhile", "the machine was slowed down meanwhile"]


def test_a_disturbed_run_does_not_replace_a_quiet_one(kept: Store) -> None:
    quiet = speed()
    flagged = tuple(replace(each, value=9.0, flags=("contended",)) for each in quiet.samples)
    save(kept, quiet, replace(quiet, at=NOW + 9, samples=flagged))
    found = learn_speeds(kept, MODEL, MACHINE, now=NOW)
    assert [each.decode_tokens_per_s for each in found.speeds] == [41.0]
    assert not found.left_out


def test_another_driver_build_age_or_machine_is_left_out_and_said(kept: Store) -> None:
    save(kept, speed(at=NOW))
    newer = replace(MACHINE, devices=(replace(CARD, driver="560 #0"),))
    assert why(kept, machine=newer) == ["measured under another driver"]
    assert why(kept, engine=replace(ENGINE, build="b9")) == ["measured with b10605"]
    assert why(kept, machine=replace(MACHINE, cores=4)) == []  # nothing of that machine
    late = learn_speeds(kept, MODEL, MACHINE, now=NOW + SPEED_HOLDS_S + 1)
    assert [str(reason) for _, reason in late.left_out] == ["measured 90 days ago"]


def test_other_models_stand_in_only_where_this_one_was_not_measured(kept: Store) -> None:
    other = replace(MODEL, fingerprint="other")
    save(kept, speed(model=other, test={"metric": "prompt"}))
    assert len(speeds_for(kept, MODEL, MACHINE)) == 1
    save(kept, speed())
    (only,) = speeds_for(kept, MODEL, MACHINE)
    assert only.decode_tokens_per_s


@pytest.mark.parametrize(
    "work", [None, {}, [], {**WORK, "flops": "5"}, {**WORK, "depth": -1}, {**WORK, "devices": [1]}]
)
def test_what_does_not_say_the_work_teaches_nothing(kept: Store, work: Any) -> None:
    save(kept, measurement(at=NOW, figures={"work": work}))
    assert speeds_for(kept, MODEL, MACHINE) == []


def test_fidelity_is_of_the_model_and_this_machine_counts_last(kept: Store) -> None:
    def found(kl: Any, **changes: Any) -> Measurement:
        figures = {"kl_mean": kl, "same_top": 0.98}
        return measurement(kind="fidelity", figures=figures, **changes)

    away = replace(MACHINE, name="away", cores=4)
    save(kept, found(0.02, at=1.0), found(0.5, at=9.0, machine=away), found(None, at=10.0,
         settings={"type_k": "q8_0", "type_v": "f16"}))  # fmt: skip
    save(kept, found(9.0, model=replace(MODEL, fingerprint="other")))
    known = fidelities_for(kept, MODEL, MACHINE)
    assert known == [Fidelity("f16", "f16", 0.5, 0.98), Fidelity("f16", "f16", 0.02, 0.98)]
    other = learn_fidelities(kept, MODEL, MACHINE, replace(ENGINE, build=""))
    assert (other.fidelities, len(other.left_out)) == ((), 3)


def test_memory_and_work_of_a_real_ledger_survive_json() -> None:
    model = kvwise.open_model(str(ZOO / "models/llama-3.1-8b.json.gz"))
    gpu = kvwise.Device.of("RTX 4060")
    ledger = kvwise.account(model, kvwise.Launch(n_ctx=4096), [gpu])
    memory = json.loads(json.dumps(memory_of(ledger, ledger)))
    assert memory["predicted"] == memory["measured"]
    totals = total_of(memory["predicted"])
    assert totals["context_bytes"] == sum(line.context_bytes for line in ledger.lines)
    work = json.loads(json.dumps(work_of(ledger, 512)))
    assert work["devices"] == [gpu.name]
    assert work["read_bytes"] == Measured.of(ledger, 512).read_bytes
