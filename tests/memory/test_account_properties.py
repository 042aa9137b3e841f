"""Any launch on any model is accounted or refused with a sentence; more asked never costs less."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import cache_setup as setup

from kvwise.device import Device
from kvwise.errors import Refused, UsageError
from kvwise.gguf.model import Model
from kvwise.gguf.types import CACHE_TYPES
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.backends import KINDS
from kvwise.memory.ledger import Ledger
from kvwise.memory.report import ledger_json

NAMES = setup.golden_names()[::5]
DEVICES = st.lists(
    st.builds(
        Device,
        name=st.just("A"),
        kind=st.sampled_from(sorted(KINDS)),
        total_bytes=st.just(2**35),
        free_bytes=st.integers(0, 2**35),
        index=st.integers(0, 3),
    ),
    max_size=3,
)
LAUNCHES = st.fixed_dictionaries(
    {},
    optional={
        "n_ctx": st.integers(0, 2**21),
        "n_batch": st.integers(0, 8192),
        "n_ubatch": st.integers(0, 8192),
        "n_seq_max": st.integers(-1, 300),
        "kv_unified": st.booleans(),
        "flash_attn": st.sampled_from(["auto", "on", "off"]),
        "type_k": st.sampled_from(CACHE_TYPES),
        "type_v": st.sampled_from(CACHE_TYPES),
        "n_gpu_layers": st.integers(-2, 1000),
        "split_mode": st.sampled_from(["none", "layer", "row"]),
        "tensor_split": st.lists(st.floats(0, 1e30), max_size=4).map(tuple),
        "main_gpu": st.integers(-1, 3),
        "n_cpu_moe": st.integers(-1, 10**6),
        "offload_kqv": st.booleans(),
        "op_offload": st.booleans(),
        "swa_full": st.booleans(),
        "mmap": st.booleans(),
        "repack": st.booleans(),
        "embeddings": st.booleans(),
        "n_outputs_max": st.integers(0, 9000),
        "n_rs_seq": st.integers(0, 9),
        "load_mtp": st.booleans(),
        "mtp": st.booleans(),
    },
)


@cache
def model_of(name: str) -> Model:
    return setup.zoo_model(name)


def ledger_of(name: str, devices: list[Device], launch: dict[str, Any]) -> Ledger:
    return account(model_of(name), Launch(**launch), devices, compute_mode="none")


@given(name=st.sampled_from(NAMES), devices=DEVICES, launch=LAUNCHES)
def test_accounted_or_refused(name: str, devices: list[Device], launch: dict[str, Any]) -> None:
    try:
        ledger = ledger_of(name, devices, launch)
    except (Refused, UsageError) as error:
        assert "{" not in str(error)
        return
    assert len(ledger.lines) == len(ledger.devices) + 1
    assert all(part.weights_bytes >= 0 for line in ledger.lines for part in line.parts)
    held = sum(cache.nbytes for cache in ledger.caches)
    assert sum(line.context_bytes for line in ledger.lines) >= held
    document = ledger_json(ledger)
    assert document["fits"] == (document["misses_by_bytes"] == 0)
    assert sum(row["total_bytes"] for row in document["buffers"]) == sum(
        line.total_bytes for line in ledger.lines
    )


@given(
    name=st.sampled_from(NAMES), launch=LAUNCHES, tokens=st.lists(st.integers(1, 2**20), min_size=2)
)
def test_a_longer_context_never_costs_less(
    name: str, launch: dict[str, Any], tokens: list[int]
) -> None:
    sizes = []
    for n_ctx in sorted(tokens):
        try:
            ledger = ledger_of(name, [], launch | {"n_ctx": n_ctx})
        except (Refused, UsageError):
            return
        sizes.append(ledger.host.total_bytes)
    assert sizes == sorted(sizes)
