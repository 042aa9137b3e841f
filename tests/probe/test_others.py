"""HIP, Metal and Windows' budgets against imitations of their libraries; none ran on hardware."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvwise.probe import backends, child
from kvwise.probe.advice import advise, usable
from kvwise.probe.backends.hip import HipDriver
from kvwise.probe.child import main
from kvwise.probe.dxgi import Adapter, Budget
from kvwise.probe.library import DriverError, Missing, load
from kvwise.probe.pdh import SharedUsage
from kvwise.probe.report import DeviceReport, Report
from kvwise.probe.survey import Wish, expected, survey

MIB = 1 << 20
Compile = Callable[..., str]
Probed = Callable[..., Report]


# -- HIP ---------------------------------------------------------------------------


@pytest.fixture
def hip(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> Probed:
    def probe(fake: str = "") -> Report:
        monkeypatch.setenv("FAKE", fake)
        libraries = {"hip": compiled("cuda.c", "HIP")}
        return survey(Wish(libraries=libraries, only=("hip",), full=True, patience=0.2))

    return probe


def test_hip_is_measured_like_cuda(hip: Probed) -> None:
    (found,) = hip("budget=19000").devices
    assert (found.backend, found.device, found.outcome) == ("hip", "ROCm0", "measured")
    assert found.driver == "HIP 6.3"
    assert found.all_blocks_bytes == 19000 * MIB
    assert found.spilled is False  # its own speed is not known, but no bus is as fast
    assert "fakes" in found.has
    assert {"free_over_reported"} <= found.has


def test_hip_spills_crashes_and_refuses(hip: Probed) -> None:
    assert hip("spill=20000").devices[0].spilled is True
    assert "crashed" in hip("crash=hipMalloc").devices[0].has
    ((_, note),) = hip("fail=hipInit:100").failures
    assert "no device" in str(note.message)


def test_hips_free_does_not_see_the_desktop(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKE", "")
    kernel = tmp_path / "0000:01:00.0"
    kernel.mkdir()
    (kernel / "mem_info_vram_total").write_text(f"{24576 * MIB}\n")
    (kernel / "mem_info_vram_used").write_text(f"{3000 * MIB}\n")
    driver = HipDriver(load([compiled("cuda.c", "HIP")]), tmp_path)
    assert driver.devices()[0]["unified"] is False
    free, total = driver.open(0).memory()
    assert (free, total) == ((24576 - 3000) * MIB, 24564 * MIB)
    (kernel / "mem_info_vram_total").write_text(f"{512 * MIB}\n")
    assert driver.devices()[0]["unified"] is True  # an APU: a carve-out beside the system's memory


# -- Metal -------------------------------------------------------------------------


def test_metal_has_a_limit_and_is_not_taken(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(fake: str) -> Report:
        monkeypatch.setenv("METAL", fake)
        return survey(Wish(libraries={"metal": compiled("metal.c")}, only=("metal",)))

    (found,) = probe("used=900").devices
    assert (found.name, found.device, found.outcome) == ("Apple M9 Fake", "MTL0", "asked")
    assert found.unified is True
    assert found.total_bytes == 22906 * MIB
    assert found.free_bytes is not None
    assert 0 < found.free_bytes <= 22006 * MIB  # or what this machine has
    assert found.max_buffer_bytes == 14000 * MIB
    assert {"metal_limit", "fakes"} <= found.has
    assert advise(found, "darwin").max_block_bytes == 14000 * MIB
    assert [device.kind for device in usable(probe(""))] == ["metal"]
    assert probe("none=1").devices == ()


# -- Windows' budgets --------------------------------------------------------------


def test_an_adapter_is_found_by_its_number(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DXGI", "budget=9000;usage=40")
    adapter = Adapter(7, compiled("dxgi.c"))
    assert adapter.local() == Budget(9000 * MIB, 40 * MIB)
    assert adapter.shared() == Budget(16384 * MIB, 100 * MIB)
    with pytest.raises(DriverError) as caught:
        Adapter(8, compiled("dxgi.c"))
    assert caught.value.code == 0x887A0002
    assert Adapter(None, compiled("dxgi.c"), name="fake gpu b").luid == 3
    assert Adapter(None, compiled("dxgi.c"), name="Fake GPU A").luid == 7  # not the processor
    for name in ("Fake GPU", ""):
        with pytest.raises(DriverError):
            Adapter(None, compiled("dxgi.c"), name=name)
    monkeypatch.setenv("DXGI", "twins=1")
    with pytest.raises(DriverError, match="more than one"):
        Adapter(None, compiled("dxgi.c"), name="Fake GPU A")
    monkeypatch.setenv("DXGI", "factory=-1")
    with pytest.raises(DriverError):
        Adapter(7, compiled("dxgi.c"))


def _windows(probed: Probed, compiled: Compile, fake: str, pdh: str = "") -> DeviceReport:
    """A CUDA card under WDDM with the fake adapter and, if given, the counters beside it."""
    libraries = {"dxgi": compiled("dxgi.c"), "pdh": pdh or "/nothing/pdh.dll"}
    (found,) = probed(fake, nvml="model=0", libraries_more=libraries).devices
    return found


def test_the_budget_is_a_ceiling_and_shared_memory_a_witness(
    probed: Probed, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DXGI", "budget=12000;usage=500")
    found = _windows(probed, compiled, "luid=1")
    assert found.driver_model == "WDDM"
    assert "dxgi_fakes" in found.has
    budget = next(note for note in found.notes if note.code == "windows_budget")
    assert dict(budget.values) == {
        "local_bytes": 12000 * MIB, "used_bytes": 500 * MIB, "shared_bytes": 16384 * MIB,
    }  # fmt: skip
    assert "pdh_fakes" not in found.has
    assert found.luid == 7
    margin = found.margin_bytes or 0
    assert found.ceiling_bytes == (11500 * MIB - margin) // (2 * MIB) * 2 * MIB
    assert found.all_blocks_bytes == found.ceiling_bytes
    assert found.spilled is False
    assert advise(found, "win32").free_bytes == found.ceiling_bytes + margin + 16 * MIB


def test_two_witnesses_must_agree(
    probed: Probed, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DXGI", "budget=40000")
    slow_only = _windows(probed, compiled, "luid=1;spill=20000")
    assert slow_only.spilled is None
    assert "perhaps_spilled" in slow_only.has
    monkeypatch.setenv("DXGI", "budget=40000;grow=3000")
    assert _windows(probed, compiled, "luid=1;spill=20000").spilled is True
    counted = _windows(probed, compiled, "luid=1")
    assert counted.spilled is None
    assert "perhaps_counted_out" in counted.has


def test_without_a_budget_the_output_says_so(
    probed: Probed, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DXGI", "factory=-1")
    found = _windows(probed, compiled, "luid=1")
    assert {"no_budget"} <= found.has
    assert not found.has & {"dxgi_fakes", "pdh_fakes"}


def test_hip_on_windows_is_joined_by_its_name(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HIP tells no number of its adapter, and its own free there is no limit at all."""
    monkeypatch.setenv("DXGI", "budget=12000;usage=500")
    monkeypatch.setenv("FAKE", "")
    monkeypatch.setattr("kvwise.probe.backends.hip._driver_model", lambda: "WDDM")
    driver = HipDriver(load([compiled("cuda.c", "HIP")]))
    assert driver.devices()[0]["driver_model"] == "WDDM"
    request = {"windows": True, "luid": None, "name": "Fake GPU A", "dxgi": compiled("dxgi.c"),
               "pdh": "/nothing/pdh.dll", "margin": 500 * MIB}  # fmt: skip
    said: list[dict[str, Any]] = []
    room, witnesses = child._windows(request, lambda **fields: said.append(fields))  # type: ignore[arg-type]
    assert room == 11000 * MIB
    assert [witness() for witness in witnesses] == [100 * MIB]


# -- Windows' counters -------------------------------------------------------------


def test_shared_memory_of_one_process_on_one_card(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = compiled("pdh.c")
    monkeypatch.setenv("PDH", "grow=1000")
    counter = SharedUsage(7, library)
    assert [counter.bytes_of(), counter.bytes_of()] == [50 * MIB, 1050 * MIB]
    assert counter.bytes_of(1) == 0
    assert SharedUsage(99, library).bytes_of() == 0
    monkeypatch.setenv("PDH", f"luid={(5 << 32) + 6}")
    assert SharedUsage((5 << 32) + 6, library).bytes_of() > 0  # more than 32 bits
    monkeypatch.setenv("PDH", "status=3221228474")  # PDH_INVALID_DATA
    assert SharedUsage(7, library).bytes_of() == 0


def test_counters_that_are_not_there(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Missing):
        SharedUsage(7, "/nothing/pdh.dll")
    monkeypatch.setenv("PDH", "object=0")  # before Windows 10 version 1709
    with pytest.raises(DriverError):
        SharedUsage(7, compiled("pdh.c"))
    monkeypatch.setenv("PDH", "fail=5")
    with pytest.raises(DriverError):
        SharedUsage(7, compiled("pdh.c")).bytes_of()


@pytest.mark.parametrize(
    ("slow", "dxgi", "pdh", "spilled"),
    [
        (False, 0, 0, False), (True, 0, 0, None), (False, 3000, 0, None), (False, 0, 3000, None),
        (True, 0, 3000, True), (True, 3000, 0, True), (False, 3000, 3000, True),
        (True, 3000, 3000, True), (False, 60, 60, False),
    ],
)  # fmt: skip
def test_two_of_three_witnesses(
    counted: Callable[[bool, int, int], DeviceReport],
    slow: bool, dxgi: int, pdh: int, spilled: bool | None,
) -> None:  # fmt: skip
    found = counted(slow, dxgi, pdh)
    assert found.spilled is spilled
    assert {"dxgi_fakes", "pdh_fakes"} <= found.has
    if spilled and not slow:  # nobody knows which piece, but how much
        assert found.spilled_bytes == 3000 * MIB
        assert "counted_out" in found.has
    had = (found.all_blocks_bytes or 0) - found.spilled_bytes
    assert advise(found, "win32").free_bytes <= had + (found.margin_bytes or 0) + 16 * MIB


@pytest.fixture
def counted(
    probed: Probed, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bool, int, int], DeviceReport]:
    """A card that is slow beyond 20,000 MiB or not, and MiB that DXGI and PDH count as moved."""

    def probe(slow: bool, dxgi: int, pdh: int) -> DeviceReport:
        monkeypatch.setenv("DXGI", f"budget=40000;grow={dxgi}")
        monkeypatch.setenv("PDH", f"grow={pdh}")
        fake = "luid=1;spill=20000" if slow else "luid=1"
        return _windows(probed, compiled, fake, compiled("pdh.c"))

    return probe


# -- the list of backends ----------------------------------------------------------


def test_backends_are_found_by_their_files() -> None:
    assert backends.names() == ["cuda", "hip", "metal", "vulkan"]
    assert expected({"metal": "x"})[-2:] == ["metal", "vulkan"]
    assert main.__module__ == "kvwise.probe.child"
