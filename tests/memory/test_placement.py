"""Layers to devices: -ngl, -ts, -sm, -mg, -dev, free memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.arch import describe
from kvwise.device import Device, Host
from kvwise.errors import Refused, UsageError
from kvwise.gguf.shape import header_of_shape
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.placement import (
    HOST,
    Placement,
    override_names,
    place,
    select,
    split_points,
)
from kvwise.units import GIB

MODEL = describe(header_of_shape("12x8x64"))


def gpus(*free: int, kind: str = "generic") -> tuple[Device, ...]:
    return tuple(
        Device(f"G{i}", kind, size * GIB, size * GIB, index=i) for i, size in enumerate(free)
    )


def placed(devices: tuple[Device, ...], **settings: Any) -> Placement:
    launch = Launch(**settings)
    return place(MODEL, launch, select(launch, devices))


def test_without_devices_everything_is_on_the_host() -> None:
    placement = placed((), n_gpu_layers=99)
    assert set(placement.layers) == {HOST} == {placement.output}
    assert placement.gpu_layers == 0


def test_the_output_layer_counts_as_one() -> None:
    one = placed(gpus(8), n_gpu_layers=1)
    assert (set(one.layers), one.output) == ({HOST}, 0)
    three = placed(gpus(8), n_gpu_layers=3)
    assert three.layers == (HOST,) * 10 + (0, 0)
    assert placed(gpus(8)).gpu_layers == 13


def test_shares_follow_free_memory_or_the_split() -> None:
    assert placed(gpus(16, 8)).layers.count(0) == 9
    assert placed(gpus(8, 8, 8), tensor_split=(0, 2, 1)).layers == (1,) * 9 + (2,) * 3
    assert placed(gpus(8, 8), tensor_split=(0, 0)).layers.count(0) == 7


def test_a_device_that_reports_no_memory_counts_as_the_host() -> None:
    dumb = (*gpus(8), Device("mute", index=1))
    points = split_points((), dumb, Host(8 * GIB, 8 * GIB))
    assert points == (0.5, 1.0)
    assert split_points((), (Device("mute"),)) == (1.0,)


def test_one_device_only() -> None:
    launch = Launch(split_mode="none", main_gpu=1)
    assert [device.name for device in select(launch, gpus(8, 4))] == ["G1"]
    assert select(Launch(split_mode="none", main_gpu=-1), gpus(8)) == ()
    with pytest.raises(Refused) as refused:
        select(Launch(split_mode="none", main_gpu=2), gpus(8, 4))
    assert refused.value.code == "other_model"


def test_devices_by_name_in_their_order() -> None:
    chosen = select(Launch(devices=("VGPU1", "g0")), gpus(8, 4))
    assert [device.name for device in chosen] == ["G1", "G0"]
    assert select(Launch(devices=("none",)), gpus(8)) == ()
    with pytest.raises(UsageError):
        select(Launch(devices=("CUDA0",)), gpus(8))


def test_pipeline_parallelism_needs_everything() -> None:
    fast = gpus(8, 8, kind="cuda")
    assert placed(fast).pipeline_parallel
    assert placed(fast).sched_copies == 4
    for unless in (
        {"n_gpu_layers": 12},
        {"offload_kqv": False},
        {"n_cpu_moe": 1},
        {"override_tensor": (("x", "CPU"),)},
        {"split_mode": "none"},
    ):
        assert not placed(fast, **unless).pipeline_parallel
    assert not placed(gpus(8, 8)).pipeline_parallel
    assert not placed(fast[:1]).pipeline_parallel


@given(
    asked=st.integers(-1, 40),
    shares=st.lists(st.floats(0, 100, width=32), min_size=1, max_size=5),
)
def test_devices_come_in_order_and_nothing_is_lost(asked: int, shares: list[float]) -> None:
    devices = gpus(*[8] * len(shares))
    placement = placed(devices, n_gpu_layers=asked, tensor_split=tuple(shares))
    where = (*placement.layers, placement.output)
    assert list(where) == sorted(where)
    assert sum(device != HOST for device in where) == placement.gpu_layers
    assert placement.gpu_layers == (13 if asked < 0 else min(asked, 13))
    if any(share > 1e-30 for share in shares):
        empty = {i for i, share in enumerate(shares) if not share}
        assert not empty & set(where)


def test_what_an_override_calls_a_remote_device() -> None:
    """By its number at its endpoint, whatever its number among all (ggml-rpc.cpp)."""
    there = [
        Device(name, "rpc", GIB, GIB, index=index)
        for index, name in enumerate(["1.1.1.1:50", "1.1.1.1:50", "2.2.2.2:50"])
    ]
    devices = (*there, *gpus(8, kind="cuda"))
    assert override_names(devices) == (
        "RPC0[1.1.1.1:50]", "RPC1[1.1.1.1:50]", "RPC0[2.2.2.2:50]", "CUDA0",
    )  # fmt: skip
    weights = []
    for name in ("RPC0[2.2.2.2:50]", "RPC2"):
        launch = Launch(n_ctx=256, override_tensor=((r"blk\.0\.ffn_", name),))
        weights.append([line.weights_bytes for line in account(MODEL, launch, devices).lines])
    assert weights[0] == weights[1]
    with pytest.raises(UsageError, match="not there"):
        account(MODEL, Launch(override_tensor=(("ffn", "RPC1[2.2.2.2:50]"),)), devices)
