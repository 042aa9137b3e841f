"""Measurements for tests: one made by hand, and hypothesis strategies for any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from kvwise.results import DeviceSeen, EngineSeen, Machine, Measurement, ModelSeen, Sample
from kvwise.results.record import KINDS, STATES

CARD = DeviceSeen("NVIDIA GeForce RTX 4060", "cuda", 8 << 30, "550.54.14 #1a2b3c4d")
MACHINE = Machine("desk", "linux x86_64", "AMD Ryzen 7 5800X", 8, 32 << 30, (CARD,))
ENGINE = EngineSeen("binary", "b10605", "llama-bench", "version: 10605 (abc)", "/opt/llama-bench")
MODEL = ModelSeen("SmolLM2 135M", "llama", 100 << 20, 134_515_008, "0f" * 8, "/models/smol.gguf")


def measurement(**changes: Any) -> Measurement:
    """A speed of a small model on a card, with three samples."""
    base = Measurement(
        kind="speed",
        at=1_790_000_000.5,
        machine=MACHINE,
        engine=ENGINE,
        model=MODEL,
        settings={"type_k": "f16", "type_v": "f16", "flash_attn": "on", "n_ctx": 4096},
        test={"metric": "decode", "n_prompt": 0, "n_gen": 128, "depth": 0},
        samples=tuple(Sample(value, "tokens/s", 1_790_000_000.5) for value in (40.0, 41.0, 42.0)),
    )
    return replace(base, **changes)


_texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
_numbers = st.floats(allow_nan=False, allow_infinity=False)
_sizes = st.integers(0, 1 << 50)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 60), 1 << 60) | _numbers | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_mappings = st.dictionaries(_texts, _values, max_size=4)
_devices = st.builds(DeviceSeen, _texts, _texts, _sizes, _texts)
_machines = st.builds(
    Machine, _texts, _texts, _texts, st.integers(0, 512), _sizes, st.tuples(_devices) | st.just(())
)
_engines = st.builds(
    EngineSeen, st.sampled_from(["binary", "embedded"]), _texts, _texts, _texts, _texts
)
_models = st.builds(ModelSeen, _texts, _texts, _sizes, _sizes, _texts, _texts)
_samples = st.builds(
    Sample, st.floats(-1e14, 1e14), _texts, _numbers, st.lists(_texts, max_size=1).map(tuple)
)
measurements = st.builds(
    Measurement,
    kind=st.sampled_from(KINDS),
    at=st.sampled_from([0.0, 1.5, 1_790_000_000.25]) | st.floats(0, 4e9),
    machine=_machines | st.just(MACHINE),
    engine=_engines | st.just(ENGINE),
    model=_models | st.just(MODEL),
    settings=_mappings | st.just({}),
    test=_mappings | st.just({}),
    samples=st.lists(_samples, max_size=3).map(tuple),
    figures=_mappings,
    findings=st.lists(_mappings, max_size=2).map(tuple),
    state=st.sampled_from(STATES),
)
