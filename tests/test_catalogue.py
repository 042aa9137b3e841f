"""The catalogue of GPUs: names, and what is free at start, against public logs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from kvwise.catalogue import (
    Gpu,
    context_bytes,
    device_of,
    exactly,
    find,
    gpus,
    named,
    of_driver,
    running_os,
    typical,
)
from kvwise.catalogue.start import STARTS
from kvwise.device import KINDS, Device
from kvwise.errors import Ambiguous, UsageError
from kvwise.units import MIB

SIZE = re.compile(r"\b\d+\s?GB\b|\(G?DDR\dX?\)|\b\d+-core\b|\(modified\)", re.IGNORECASE)
FORM = re.compile(
    r"\b(PCIE?|SXM\d?|NVL|HBM\d|Workstation Edition|Max-Q Workstation Edition|Server Edition)\b",
    re.IGNORECASE,
)


def product(gpu: Gpu) -> str:
    """What a row's name says without its memory and the board it is on."""
    bare = FORM.sub(" ", SIZE.sub(" ", gpu.name)) if gpu.family != "Jetson" else gpu.driver_name
    return " ".join(re.sub(r"[-(),]", " ", bare).split())


def figures(gpu: Gpu) -> tuple[object, ...]:
    return gpu.memory_mib_nominal, gpu.bandwidth_gb_s, gpu.sm_count


def test_every_row_has_names_of_its_own() -> None:
    """The name that answers show and the one that questions offer find the row, however typed."""
    for gpu in gpus():
        for name in (gpu.name, gpu.called):
            for typed in (name, name.upper(), f"  {name.lower()} "):
                found = find(typed)
                assert found is gpu or figures(found) == figures(gpu), name
        assert find(gpu.name) is gpu


def test_every_name_is_decided_or_asked_back() -> None:
    """Of all names of all rows: one row, or all rows that bear it, never one of several."""
    asked = 0
    for gpu in gpus():
        for name in (*gpu.aliases, *([] if gpu.modified else [gpu.driver_name])):
            bearing = named(name)
            assert gpu in bearing or len(bearing) == 0, name
            if len({figures(each) for each in bearing}) < 2:
                continue
            asked += 1
            with pytest.raises(Ambiguous) as caught:
                find(name)
            offered = caught.value.candidates
            assert gpu.called in offered, name
            assert [find(each).called for each in offered] == list(offered), name
            assert exactly(name) is None
    assert asked > 150


def test_no_name_of_a_product_of_several_memories_decides() -> None:
    """By the rows alone: a name that says no size must not find one row of a product that has
    rows with other figures."""
    rows: dict[str, list[Gpu]] = {}
    for gpu in gpus():
        if not gpu.modified:
            rows.setdefault(product(gpu), []).append(gpu)
    several = {name: found for name, found in rows.items() if len(set(map(figures, found))) > 1}
    assert len(several) > 45
    for name, found in several.items():
        with pytest.raises(Ambiguous) as caught:
            find(name)
        assert {gpu.called for gpu in found} <= set(caught.value.candidates), name


def test_another_product_with_a_longer_name_is_no_candidate() -> None:
    for name in ("RTX 4080", "4070 Ti", "RTX 3070", "RX 6800", "RX 7600", "L40", "RTX 4090",
                 "2080 Ti", "RTX 4060", "H200", "A10"):  # fmt: skip
        assert find(name).name.split()[-1] in name, name
    assert find("RTX 4080 laptop").memory_mib_nominal < find("RTX 4080").memory_mib_nominal


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("RTX 5060 Ti", ["RTX 5060 Ti 8GB", "RTX 5060 Ti 16GB"]),
        ("3080", ["RTX 3080 10GB", "RTX 3080 12GB"]),
        ("nvidia geforce rtx 3060", ["RTX 3060 8GB", "RTX 3060 12GB"]),
        ("3080 laptop", ["RTX 3080 Laptop 8GB", "RTX 3080 Laptop 16GB"]),
        ("A100", ["A100 PCIe 40GB", "A100 SXM 40GB", "A100 PCIe 80GB", "A100 SXM 80GB"]),
        ("A100 80GB", ["A100 PCIe 80GB", "A100 SXM 80GB"]),  # their bandwidth differs
        ("H100", ["H100 PCIe", "H100 SXM", "H100 NVL"]),
        ("M4 Max", ["M4 Max 36GB", "M4 Max 48GB", "M4 Max 64GB", "M4 Max 128GB"]),
        ("RX 580", ["RX 580 4GB", "RX 580 8GB"]),
        ("GT 1030", ["GT 1030 GDDR5", "GT 1030 DDR4"]),
        ("strix halo", ["Radeon 8060S 32GB", "Radeon 8060S 64GB", "Radeon 8060S 128GB"]),
    ],
)
def test_a_product_of_several_memories_is_asked_back(text: str, offered: list[str]) -> None:
    with pytest.raises(Ambiguous) as caught:
        find(text)
    assert sorted(caught.value.candidates) == sorted(offered)
    assert all(f'"{name}"' in str(caught.value.hint) for name in offered)
    assert "\n" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    "text", ["RTX 30", "rtx 30 series", "GeForce 30", "RTX 30系列", "RX 6000", "RX 6000 series",
             "RTX 50", "Jetson", "MX", "arc", "radeon 7000"],
)  # fmt: skip
def test_a_series_is_asked_back(text: str) -> None:
    with pytest.raises(Ambiguous) as caught:
        find(text)
    number = re.search(r"[1-9]0", text)
    first = caught.value.candidates[:12]
    assert len(first) > 5
    assert all(find(name).called == name for name in first)
    if number:
        alike = [name for name in first if re.search(rf"\b{number[0][0]}0?\d", name)]
        assert len(alike) >= len(first) - 1  # the RTX 2050 is of the 30 series


def test_rows_that_no_plan_can_tell_apart_are_not_asked_back() -> None:
    assert find("A100 40GB").memory_mib_nominal == 40960
    assert find("V100 16GB").bandwidth_gb_s == 900
    assert find("H200").memory_mib_nominal == 144384


def test_a_size_beside_the_name_decides() -> None:
    for total, name in (("16GiB", "16GB"), ("8GiB", "8GB"), ("16311MiB", "16GB")):
        device = Device.of(f"name=RTX 5060 Ti,total={total}", os="linux")
        assert device == Device.of(f"RTX 5060 Ti {name}", os="linux"), total
    shown = Device.of("name=RTX 5060 Ti,total=8GiB,display=yes,reserve=1GiB", os="linux")
    assert (shown.reserve_bytes, shown.kind) == (1 << 30, "cuda")
    own = Device.of("name=RTX 5060 Ti,total=12GiB")  # there is no such card: it is what was said
    assert (own.kind, own.free_bytes) == ("generic", 12 << 30)
    given = Device.of("name=RTX 5060 Ti,total=8GiB,free=7GiB,kind=cuda")
    assert (given.total_bytes, given.free_bytes) == (8 << 30, 7 << 30)


def test_a_driver_is_not_asked_back() -> None:
    """It says the total beside the name."""
    for gpu in gpus():
        if gpu.modified or gpu.driver_name == "QUALCOMM Adreno(TM)":
            continue
        found = of_driver(gpu.driver_name, gpu.memory_mib_nominal * MIB)
        assert found is not None, gpu.name
        assert found.memory_mib_nominal == gpu.memory_mib_nominal, gpu.name


def test_what_no_cuda_build_has_is_vulkan_only() -> None:
    """llama.cpp's CUDA backend begins at compute capability 5.0 (ggml-cuda/CMakeLists.txt)."""
    for gpu in gpus():
        if gpu.compute_capability:
            assert float(gpu.compute_capability) >= 5, gpu.name
    old = [gpu for gpu in gpus() if gpu.arch == "Kepler"]
    assert {gpu.backends for gpu in old} == {("vulkan",)}
    assert device_of(find("GTX 780"), os="linux").kind == "vulkan"


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
        ("rx 480 8gb", "AMD Radeon RX 480 8GB"),
        ("6800 XT 16GB", "AMD Radeon RX 6800 XT"),
        ("rx6700m", "AMD Radeon RX 6700M"),
        ("MacBook Pro M4 Max 128GB", "Apple M4 Max (128GB, 40-core)"),
        ("Mac Studio M2 Ultra 192 GB", "Apple M2 Ultra (192GB)"),
        ("iMac M3 8GB", "Apple M3 (8GB)"),
        ("MX150", "NVIDIA GeForce MX150"),
        ("quadro p620", "Quadro P620"),
        ("A100 40GB PCIe", "NVIDIA A100-PCIE-40GB"),
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
        ("RTX 3050 8GB", "NVIDIA GeForce RTX 3050 8GB"),
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
        ("titan x", "TITAN X Pascal"),
        ("rtx 4000", "RTX 4000 Ada"),
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
        assert gpu.bandwidth_gb_s is None or 16 <= gpu.bandwidth_gb_s <= 10_000, gpu.name
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
        ("RTX 5090", 32768, 170, 1792), ("RTX 3060 12GB", 12288, 28, 360), ("T4", 16384, 40, 320),
        ("GTX 1660 Ti", 6144, 24, 288), ("RTX 2080 Ti", 11264, 68, 616), ("L4", 24576, 58, 300),
        ("A100 80GB PCIe", 81920, 108, 1935), ("H100 SXM", 81920, 132, 3350),
        ("P40", 24576, 30, 346),
        ("7900 XTX", 24576, None, 960), ("Arc B580", 12288, None, 456),
        ("M4 Max 36GB", 36864, None, 410),
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
        base = re.sub(r" (Ti|SUPER)\b", "", product(better))
        if base == product(better) or not better.sm_count or better.modified:
            continue
        for plain in (gpu for gpu in gpus() if product(gpu) == base and not gpu.modified):
            compared += 1
            assert better.sm_count >= (plain.sm_count or 0), better.name
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
    ("RTX 3060 12GB", "windows", 11255),
    ("RTX 4080", "windows", 15048),
    ("RTX 3090", "windows", 23335),
    ("RTX 4090", "windows", 22988),
    ("RTX 5090", "windows", 30930),
    ("GTX 1650 GDDR5", "windows", 3296),
    ("RTX 3060 12GB", "linux", 11798),
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
