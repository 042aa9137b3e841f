"""Devices and hosts out of words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.device import KINDS, Device, Host
from kvwise.errors import UsageError
from kvwise.units import GIB, MIB


def test_a_size_is_a_device_that_takes_everything() -> None:
    device = Device.of("6GiB")
    assert (device.kind, device.total_bytes, device.free_bytes) == ("generic", 6 * GIB, 6 * GIB)
    assert device.reserve_bytes is None
    assert Device.of(str(6 * GIB)).total_bytes == 6 * GIB


def test_pairs() -> None:
    device = Device.of("name=A,total=6144MiB,free=5900MiB,kind=cuda", index=2)
    assert (device.name, device.kind, device.index) == ("A", "cuda", 2)
    assert (device.total_bytes, device.free_bytes) == (6144 * MIB, 5900 * MIB)


def test_all_pairs() -> None:
    device = Device.of(
        "total=8GiB,kind=cuda,reserve=300MiB,bandwidth=272,cc=8.9,sm=24,unified=no,name=my, card"
    )
    assert device.name == "my, card"
    assert device.free_bytes == 8 * GIB
    assert device.reserve_bytes == 300 * MIB
    assert device.bandwidth_bytes_per_s == 272 * 10**9
    assert (device.compute_capability, device.sm_count, device.unified) == ("8.9", 24, False)


def test_a_catalogue_gpu_with_changes() -> None:
    device = Device.of("name=RTX 4060,free=5GiB", os="windows")
    assert (device.name, device.kind, device.free_bytes) == (
        "NVIDIA GeForce RTX 4060",
        "cuda",
        5 * GIB,
    )
    quiet = Device.of("name=RTX 4060,os=linux,display=no")
    assert Device.of("name=RTX 4060,os=linux,display=yes").free_bytes < quiet.free_bytes
    assert Device.of("name=RX 7900 XTX,kind=vulkan", os="linux").kind == "vulkan"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name=A,total=6GiB,free=7GiB", "more free"),
        ("name=A,total=6GiB,kind=rocm", "cuda"),
        ("name=A,size=6GiB", "total"),
        ("total=6GiB,total=7GiB", "twice"),
        ("free=6GiB", "neither a total nor a name"),
        ("total=0", "no memory"),
        ("0GiB", "no memory"),
        ("total=6GiB,display=yes", "catalogue"),
        ("total=6GiB,bandwidth=fast", "GB/s"),
        ("total=6GiB,cc=89", "8.9"),
        ("total=6GiB,sm=-1", "whole number"),
        ("total=6GiB,unified=perhaps", "yes"),
        ("RTX 5O90", "RTX 5090"),
        ("", "catalogue"),
        ("7900", "RX 7900 XTX"),
        ("name=RTX 4060,os=beos", "windows"),
        ("name=RTX 4060,backend=metal", "cuda"),
    ],
)
def test_mistakes_are_named(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        Device.of(text)
    assert says in f"{caught.value} {caught.value.hint}"


@given(st.text(max_size=40) | st.text("=,abcdefgklmnotuy0123456789GiB. ", max_size=40))
def test_any_words_give_a_device_or_a_usage_error(text: str) -> None:
    try:
        device = Device.of(text)
    except UsageError as error:
        assert str(error)
        assert error.hint is None or str(error.hint)
    else:
        assert device.kind in KINDS
        assert 0 <= device.free_bytes <= device.total_bytes


def test_host() -> None:
    assert Host.of("32GiB") == Host(32 * GIB, 32 * GIB)
    host = Host.of("total=32GiB,available=20GiB,limit=16GiB")
    assert (host.total_bytes, host.available_bytes, host.usable_bytes) == (
        32 * GIB,
        20 * GIB,
        16 * GIB,
    )
    assert Host.of("8GiB").usable_bytes == 8 * GIB


@pytest.mark.parametrize("text", ["", "much", "0", "available=3GiB", "total=3GiB,available=4GiB"])
def test_no_host(text: str) -> None:
    with pytest.raises(UsageError):
        Host.of(text)
