"""What must hold for every cache whatever the settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import cache_setup as setup

from kvwise.gguf.types import CACHE_TYPES
from kvwise.memory.cache import caches
from kvwise.memory.placement import HOST, Placement

MODELS = {
    name: setup.zoo_model(name)
    for name in (
        "qwen3-8b", "gemma-3-27b", "deepseek-v3.2", "deepseek-v4-flash", "falcon-h1-1.5b",
        "deci-nemotron-51b-like", "gemma-3n-e4b", "mamba-130m", "tiny-dots3note", "tiny-minimax-m3",
    )
}  # fmt: skip
names = st.sampled_from(sorted(MODELS))
contexts = st.builds(
    lambda cells, slots, unified, ubatch, full, flash, k, v, snapshots: setup.context(
        n_ctx=256 * cells * (1 if unified else slots),
        n_ctx_seq=256 * cells,
        n_seq_max=slots,
        kv_unified=unified,
        n_ubatch=ubatch,
        swa_full=full,
        flash_attn=flash,
        v_trans=not flash,
        type_k=k,
        type_v=v,
        n_rs_seq=snapshots,
    ),
    st.integers(1, 4096),
    st.integers(1, 8),
    st.booleans(),
    st.integers(1, 4096),
    st.booleans(),
    st.booleans(),
    st.sampled_from(CACHE_TYPES),
    st.sampled_from(CACHE_TYPES),
    st.integers(0, 4),
)


def total(name: str, context: Any, kind: str = "generic") -> int:
    model = MODELS[name]
    made = caches(model, context, setup.on_one_gpu(model), [setup.gpu(kind)])
    return sum(size for cache in made for size in cache.by_device.values())


@given(names, contexts, st.sampled_from(["generic", "cuda"]))
@settings(deadline=None)
def test_devices_hold_at_least_what_is_stored(name: str, context: Any, kind: str) -> None:
    model = MODELS[name]
    for cache in caches(model, context, setup.on_one_gpu(model), [setup.gpu(kind)]):
        held = sum(cache.by_device.values())
        tensors = 2 * len(cache.layers)
        # alignment to 128 and at most one row of padding for each tensor
        assert cache.nbytes <= held <= cache.nbytes + tensors * (128 + 512 * 4)
        assert cache.cells % 256 == 0 or cache.kind != "kv"


@given(names, contexts, st.data())
@settings(deadline=None)
def test_splitting_layers_moves_bytes_and_makes_none(name: str, context: Any, data: Any) -> None:
    model = MODELS[name]
    where = st.integers(HOST, 2)
    layers = data.draw(st.tuples(*[where] * model.n_layer_all))
    spread = Placement(layers, 0, 3, 0)
    alone = caches(model, context, setup.on_one_gpu(model), [setup.gpu()])
    split = caches(model, context, spread, [setup.gpu()] * 3)
    for one, many in zip(alone, split, strict=True):
        assert one.nbytes == many.nbytes
        on_gpus = {device for device in many.by_device if device != HOST}
        assert on_gpus <= {layers[il] for il in many.layers}
        if HOST not in many.by_device:
            assert sum(many.by_device.values()) == sum(one.by_device.values())


@given(names, contexts)
@settings(deadline=None)
def test_more_context_never_takes_less(name: str, context: Any) -> None:
    from dataclasses import replace

    more = replace(context, n_ctx=context.n_ctx + 256, n_ctx_seq=context.n_ctx_seq + 256)
    assert total(name, context) <= total(name, more)


@given(names, contexts)
@settings(deadline=None)
def test_full_windows_never_take_less(name: str, context: Any) -> None:
    from dataclasses import replace

    windowed, full = replace(context, swa_full=False), replace(context, swa_full=True)
    # a window padded to 256 can exceed a context only if the context is smaller, then both agree
    assert total(name, windowed) <= total(name, full)


@given(names, contexts)
@settings(deadline=None)
def test_transposed_values_never_take_less(name: str, context: Any) -> None:
    from dataclasses import replace

    assert total(name, replace(context, v_trans=False)) <= total(
        name, replace(context, v_trans=True)
    )


@pytest.mark.parametrize("name", sorted(MODELS))
def test_cuda_pads_only_quantized_rows(name: str) -> None:
    plain = setup.context()
    assert total(name, plain, "cuda") == total(name, plain)
    quantized = setup.context(type_k="q8_0", type_v="q8_0")
    assert total(name, quantized, "cuda") >= total(name, quantized)
