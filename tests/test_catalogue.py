"""The catalogue of GPUs: names, and what is free at start, against public logs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from kvwise.catalogue import context_bytes, device_of, exactly, find, gpus, running_os, typical
from kvwise.catalogue.start import STARTS
from kvwise.device import KINDS, Device
from kvwise.errors import UsageError
from kvwise.units import MIB


def test_every_name_and_alias_finds_its_own_row() -> None:
    for gpu in gpus():
        for name in (gpu.name, *gpu.aliases):
            assert find(name) is gpu, name
            assert find(name.upper()) is gpu, name
            assert find(f"  {name.lower()} ") is gpu, name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("4060", "NVIDIA GeForce RTX 4060"),
        ("rtx4060", "NVIDIA GeForce RTX 4060"),
        ("GeForce RTX 4060 Ti 16 GB", "NVIDIA GeForce RTX 4060 Ti 16GB"),
        ("4060 ti 16GiB", "NVIDIA GeForce RTX 4060 Ti 16GB"),
        ("RTX-4090 mobile", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        ("radeon 7900xtx", "AMD Radeon RX 7900 XTX"),
        ("M4 Max 128 GB", "Apple M4 Max (128GB, 40-core)"),
        ("arc b580", "Intel(R) Arc(TM) B580 Graphics"),
        ("4070S", "NVIDIA GeForce RTX 4070 SUPER"),
        ("4070 TiS", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("1660s", "NVIDIA GeForce GTX 1660 SUPER"),
        ("4060m", "NVIDIA GeForce RTX 4060 Laptop GPU"),
        ("2080 max-q", "NVIDIA GeForce RTX 2080 with Max-Q Design"),
        ("gtx 970", "NVIDIA GeForce GTX 970"),
        ("L40S", "NVIDIA L40S"),
        ("6800", "AMD Radeon RX 6800"),
        ("9070", "AMD Radeon RX 9070"),
        ("rx 480 8gb", "AMD Radeon RX 480"),
        ("6800 XT 16GB", "AMD Radeon RX 6800 XT"),
        ("rx6700m", "AMD Radeon RX 6700M"),
        ("MacBook Pro M4 Max 128GB", "Apple M4 Max (128GB, 40-core)"),
        ("Mac Studio M2 Ultra 192 GB", "Apple M2 Ultra (192GB)"),
        ("iMac M3", "Apple M3 (8GB)"),
        ("radeon graphics 780M", "AMD Radeon 780M Graphics"),
        ("titan x pascal", "NVIDIA TITAN X (Pascal)"),
        ("4070Tisuper", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("GeForce RTX™ 4060", "NVIDIA GeForce RTX 4060"),
        ("RTX４０６０", "NVIDIA GeForce RTX 4060"),  # full-width digits of a Chinese keyboard
        ("英伟达 RTX 4060 显卡", "NVIDIA GeForce RTX 4060"),
        ("4090笔记本", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        ("RTX 4060 移动版", "NVIDIA GeForce RTX 4060 Laptop GPU"),
        ("RTX 4070 筆電", "NVIDIA GeForce RTX 4070 Laptop GPU"),
        ("2080ti魔改22G", "NVIDIA GeForce RTX 2080 Ti 22GB (modified)"),
        ("昇腾 910B", "Ascend910B3"),
        ("rtx 3080 12 gb", "NVIDIA GeForce RTX 3080 12GB"),
        ("A10G", "NVIDIA A10G"),
        ("B200", "NVIDIA B200"),
        ("RTX 3050 8GB", "NVIDIA GeForce RTX 3050"),
    ],
)
def test_names_as_people_type_them(text: str, name: str) -> None:
    assert find(text).name == name


def test_ambiguous_names_are_asked_back() -> None:
    with pytest.raises(UsageError) as caught:
        find("RX 7900")
    assert "7900 XT" in str(caught.value.hint)
    assert "7900 GRE" in str(caught.value.hint)
    assert exactly("RX 7900") is None


@pytest.mark.parametrize(
    "text",
    ["2x3090", "2 x RTX 3090", "RX 7900XTX x2", "3090x4", "2*4090", "RTX 4090 × 2", "3090 + 3060",
     "RTX 3090, RTX 3060", "3090 and 3060", "3090和3060"],
)  # fmt: skip
def test_several_cards_in_one_name(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        find(text)
    assert "once for each card" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("rtx 4O90", "RTX 4090"),
        ("4090 super", "NVIDIA GeForce RTX 4090"),
        ("4060 12gb", "NVIDIA GeForce RTX 4060"),
        ("titan x", "NVIDIA TITAN X (Pascal)"),
        ("rtx 4000", "NVIDIA RTX 4000 Ada Generation"),
        ("gtx titan", "TITAN X"),  # another card, of 2013
        ("GB200", "NVIDIA B200"),  # and no GH200 480GB
        ("rtx 3070 max-q", "NVIDIA GeForce RTX 3070 Laptop GPU, "),  # the first of them
        ("RTX 4060 ноутбук", "NVIDIA GeForce RTX 4060 Laptop GPU"),  # and not the desktop card
    ],
)
def test_near_names_are_suggested(text: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        find(text)
    assert near in str(caught.value.hint)


@pytest.mark.parametrize("text", ["nvidia", "geforce", "", "   ", "GPU", "gaudi 3", "x" * 5000])
def test_what_names_no_gpu(text: str) -> None:
    with pytest.raises(UsageError):
        find(text)


def test_every_row_is_whole() -> None:
    names = [gpu.name for gpu in gpus()]
    assert len(names) == len(set(names))
    for gpu in gpus():
        assert gpu.source, gpu.name
        assert gpu.family, gpu.name
        assert gpu.driver_name, gpu.name
        assert 2048 <= gpu.memory_mib_nominal <= 1 << 20, gpu.name
        assert gpu.bandwidth_gb_s is None or 50 <= gpu.bandwidth_gb_s <= 10_000, gpu.name
        assert gpu.backends, gpu.name
        assert ("cuda" in gpu.backends) == (gpu.compute_capability is not None), gpu.name
        assert ("metal" in gpu.backends) == (gpu.vendor == "Apple"), gpu.name
        if "hip" in gpu.backends:
            assert gpu.gfx, gpu.name
        for seen in gpu.reported.values():
            assert seen > gpu.memory_mib_nominal // 4, gpu.name


@pytest.mark.parametrize(
    ("name", "mib", "processors", "bandwidth"),
    [
        ("RTX 3090", 24576, 82, 936), ("RTX 4090", 24576, 128, 1008), ("RTX 4060", 8192, 24, 272),
        ("RTX 5090", 32768, 170, 1792), ("RTX 3060", 12288, 28, 360), ("T4", 16384, 40, 320),
        ("GTX 1660 Ti", 6144, 24, 288), ("RTX 2080 Ti", 11264, 68, 616), ("L4", 24576, 58, 300),
        ("A100 80GB PCIe", 81920, 108, 1935), ("H100", 81920, 132, 3350), ("P40", 24576, 30, 346),
        ("7900 XTX", 24576, None, 960), ("Arc B580", 12288, None, 456),
        ("M4 Max", 36864, None, 410),
    ],
)  # fmt: skip
def test_figures_of_well_known_cards(
    name: str, mib: int, processors: int | None, bandwidth: int
) -> None:
    gpu = find(name)
    assert (gpu.memory_mib_nominal, gpu.sm_count) == (mib, processors)
    assert gpu.bandwidth_gb_s == pytest.approx(bandwidth, rel=0.01)


def test_a_better_name_is_no_smaller_card() -> None:
    """Ti and SUPER have at least the multiprocessors of the card without them."""
    compared = 0
    for better in gpus():
        base = re.sub(r" (Ti|SUPER)\b", "", better.name)
        plain = next((gpu for gpu in gpus() if gpu.name == base), None)
        if plain is None or base == better.name or not (plain.sm_count and better.sm_count):
            continue
        compared += 1
        assert better.sm_count >= plain.sm_count, better.name
        assert (better.bandwidth_gb_s or 0) >= (plain.bandwidth_gb_s or 0) * 0.9, better.name
    assert compared > 20


def test_typical_memory_by_system_and_display() -> None:
    rows = {(each.os, each.backend, each.display): each.device for each in typical(find("4060"))}
    assert ("macos", "metal", None) not in rows
    windows = rows["windows", "cuda", True]
    headless = rows["linux", "cuda", False]
    desktop = rows["linux", "cuda", True]
    assert windows.free_bytes < desktop.free_bytes < headless.free_bytes
    assert (windows.reserve_bytes or 0) > (headless.reserve_bytes or 0)
    apple = list(typical(find("M4 Max 128GB")))
    assert [(each.os, each.backend, each.display) for each in apple] == [("macos", "metal", None)]
    for gpu in gpus():
        assert list(typical(gpu)), gpu.name


def test_every_gpu_on_every_system_is_sound() -> None:
    for gpu, os, display in itertools.product(gpus(), ("linux", "windows"), (True, False, None)):
        for backend in gpu.backends:
            device = device_of(gpu, os=os, backend=backend, display=display)
            assert device.kind in KINDS
            assert 0 < device.free_bytes <= device.total_bytes, (gpu.name, os, backend)
            assert device.reserve_bytes is not None
            assert str(device.reserve_bytes // MIB) in str(device.reserve_reason)
            if not gpu.unified:
                assert device.total_bytes <= gpu.memory_mib_nominal * MIB


def test_the_last_row_takes_everything() -> None:
    last = STARTS[-1]
    assert (last.os, last.backend, last.who, last.display) == ("", "", "any", None)


# starts of public logs: free as the engine printed it, MiB
STARTED = [
    ("RTX 4060 Laptop", "windows", 7099),
    ("RTX 4060 Laptop", "windows", 7097),
    ("RTX 4070", "windows", 11090),
    ("RTX 3060", "windows", 11255),
    ("RTX 4080", "windows", 15048),
    ("RTX 3090", "windows", 23335),
    ("RTX 4090", "windows", 22988),
    ("RTX 5090", "windows", 30930),
    ("GTX 1650", "windows", 3296),
    ("RTX 3060", "linux", 11798),
    ("RTX 4070", "linux", 11710),
    ("RTX 4060 Ti 16GB", "linux", 16062),
    ("RTX 3090", "linux", 23859),
    ("RTX 4090", "linux", 23687),
    ("RTX 5090", "linux", 31588),
    ("T4", "linux", 14807),
]


@pytest.mark.parametrize(("name", "os", "free"), STARTED)
def test_free_at_start_is_what_logs_show(name: str, os: str, free: int) -> None:
    device = device_of(find(name), os=os, display=False)
    assert device.reserve_bytes is not None
    # never promises more than was there once the reserve is kept, and wastes little
    assert device.free_bytes - device.reserve_bytes <= free * MIB
    assert abs(device.free_bytes - free * MIB) <= 250 * MIB


def test_the_card_of_the_report() -> None:
    """RTX 4060, 8188 MiB by nvidia-smi, on Windows: 8187 - 1000 - 109 at start, 6180 to plan."""
    device = Device.of("RTX 4060", os="windows")
    assert device.total_bytes == 8187 * MIB
    assert round(device.free_bytes / MIB) == 8187 - 1000 - 109
    assert device.reserve_bytes is not None
    assert (device.free_bytes - device.reserve_bytes) // MIB in range(6175, 6186)


def test_the_page_has_todays_figures() -> None:
    """docs/tables.md, `What a card has free`: MiB free at start and kept in reserve."""
    text = (Path(__file__).parents[1] / "docs/tables.md").read_text("utf-8")
    rows = re.findall(
        r"^\| (RTX [^|]+) \| (\d[^|]*) \| (.*) \| (.*) \| (.*) \|$", text, re.MULTILINE
    )
    assert len(rows) == 5
    for name, *shown in rows:
        cases = itertools.product(("linux", "windows"), (False, True))
        found = [device_of(find(name), os=os, display=display) for os, display in cases]
        assert shown == [
            f"{each.free_bytes // MIB:,} - {(each.reserve_bytes or 0) // MIB}" for each in found
        ]


def test_a_cuda_context_grows_with_the_card() -> None:
    assert context_bytes(28) == (420 + 28 * 28) * MIB // 10  # RTX 3060: 120 MiB, 113 seen
    assert context_bytes(None) > context_bytes(170)


def test_apple_is_always_macos_and_nothing_else_is() -> None:
    assert device_of(find("M4 Max 128GB"), os="linux").total_bytes == 110100 * MIB
    with pytest.raises(UsageError):
        device_of(find("RTX 4060"), os="macos")


def test_the_running_system_is_known() -> None:
    assert running_os() in ("linux", "windows", "macos")
