"""Settings that were taken and not used, in logs of real engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvwise.bench.effects import effects, seen, widest
from kvwise.engine.loaded import Collector, Loaded
from kvwise.engine.log import read
from kvwise.launch import Launch

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "diagnose/logs"
QUANTIZED = Launch(
    n_ctx=1024, n_batch=2048, n_ubatch=512, n_seq_max=2, type_k="q8_0", type_v="q8_0",
    flash_attn="on",
)  # fmt: skip


def loaded(name: str) -> Loaded:
    return Collector().add_all(read([(LOGS / f"{name}.log").read_bytes()]))


def codes(launch: Launch, name: str, *missing: str) -> list[str]:
    return [each.code for each in effects(launch, loaded(name), missing) if each.lost]


@pytest.mark.parametrize("build", ["b10605", "b11549"])
def test_what_took_effect_is_not_told(build: str) -> None:
    assert codes(QUANTIZED, f"healthy-quantized-{build}") == []


@pytest.mark.parametrize("build", ["b10605", "b11549"])
def test_another_cache_type_than_asked(build: str) -> None:
    asked = replace(QUANTIZED, type_k="q4_0")
    (found,) = effects(asked, loaded(f"healthy-quantized-{build}"))
    assert (found.code, found.lost) == ("cache_type", True)
    assert "K was asked for as q4_0 and is q8_0" in str(found.message)


def test_a_dead_rpc_server_and_layers_that_went_nowhere() -> None:
    launch = Launch(n_ctx=512, n_gpu_layers=99)
    found = codes(launch, "dead-rpc-b10605", "127.0.0.1:50061")
    assert found == ["device_missing", "no_gpu"]  # though it says that all 31 layers are offloaded
    assert seen(loaded("dead-rpc-b10605"))["devices"] == []


def test_a_micro_batch_that_the_context_cuts() -> None:
    asked = replace(QUANTIZED, n_ubatch=4096, n_batch=4096)
    log = loaded("healthy-quantized-b10605")
    context = widest(log)
    assert context is not None
    context.facts["n_ubatch"] = "1024"  # what the engine makes of it with 1024 cells
    assert [(each.code, each.lost) for each in effects(asked, log)] == [("batch_cut", False)]
    context.facts["n_ubatch"] = "64"
    assert [(each.code, each.lost) for each in effects(asked, log)] == [("batch_cut", True)]


def test_flash_attention_by_what_the_log_says() -> None:
    log = loaded("healthy-quantized-b10605")
    context = widest(log)
    assert context is not None
    context.facts["flash_attn"], context.flash_attn = "disabled", None
    assert [each.code for each in effects(QUANTIZED, log)] == ["flash_attn"]
    assert [each.code for each in effects(replace(QUANTIZED, flash_attn="off"), log)] == []
    context.facts["flash_attn"], context.flash_attn = "auto", True
    assert [each.code for each in effects(replace(QUANTIZED, flash_attn="off"), log)] == [
        "flash_attn"
    ]


def test_a_padded_context_is_known_and_not_lost() -> None:
    log = loaded("healthy-quantized-b10605")
    (found,) = effects(replace(QUANTIZED, n_ctx=1000), log)
    assert (found.code, found.lost) == ("context_padded", False)
