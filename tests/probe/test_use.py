"""What a probe found out is planned with: here, later, and on a friend's machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise import here, paths
from kvwise.device import Device, Host
from kvwise.errors import EngineError, SourceError, UsageError
from kvwise.probe.advice import advise, planned, usable
from kvwise.probe.document import document, read_document
from kvwise.probe.remember import last, read, save
from kvwise.probe.report import DeviceReport, Report, environment

MIB = 1 << 20
GIB = 1 << 30
NOW = datetime.now(UTC).replace(microsecond=0)


def _card(**fields: Any) -> DeviceReport:
    values: dict[str, Any] = {
        "name": "NVIDIA GeForce RTX 4060", "backend": "cuda", "index": 0, "outcome": "measured",
        "total_bytes": 8188 * MIB, "free_bytes": 7900 * MIB, "largest_block_bytes": 7836 * MIB,
        "all_blocks_bytes": 7836 * MIB, "ceiling_bytes": 7836 * MIB, "margin_bytes": 64 * MIB,
        "blocks": (7836 * MIB,), "spilled": False, "sm_count": 24, "device": "CUDA0",
        "compute_capability": "8.9", "write_bytes_per_s": 250 * 10**9, "pci": "0000:01:00.0",
    }  # fmt: skip
    return DeviceReport(**(values | fields))


def _report(*devices: DeviceReport, time: datetime = NOW, system: str = "linux") -> Report:
    return Report(time, system, devices, Host(32 * GIB, 20 * GIB, 24 * GIB))


def test_a_document_is_read_as_it_was_written() -> None:
    report = _report(_card().noted("leak", left_bytes=5 * MIB), _card(index=1, spilled=None))
    again = read_document(json.loads(json.dumps(document(report))))
    assert again == report


def test_the_contracts_fields_are_enough() -> None:
    row = {"name": "RTX 3090", "backend": "cuda", "index": 0, "total_bytes": 24 * GIB,
           "free_bytes": 23 * GIB, "largest_block_bytes": 10 * GIB, "all_blocks_bytes": 20 * GIB,
           "spilled": False, "driver_model": None, "compute_capability": "8.6",
           "write_bytes_per_s": 10**12}  # fmt: skip
    value = {"devices": [row], "host": {"total_bytes": 32 * GIB, "available_bytes": 30 * GIB}}
    report = read_document(value)
    device = planned(report.devices[0], report.system)
    assert (device.free_bytes, device.max_block_bytes) == (20 * GIB, 10 * GIB)
    assert device.bandwidth_bytes_per_s == 936 * 10**9  # of the catalogue
    assert report.host == Host(32 * GIB, 30 * GIB)


@pytest.mark.parametrize("value", [
    None, [], {}, {"devices": {}}, {"schema": "kvwise/plan/1", "devices": []}, {"devices": [1]},
    {"devices": [{"name": "A"}]}, {"devices": [{"total_bytes": -1}]},
    {"devices": [{"total_bytes": 1 << 60}]}, {"devices": [{"total_bytes": "8 GiB"}]},
    {"devices": [{"total_bytes": True}]}, {"devices": [], "host": 3},
    {"devices": [{"total_bytes": 1.5}]}, {"devices": [{"total_bytes": 5, "notes": [3]}]},
    {"devices": [{"total_bytes": 5, "notes": [{"values": {"seconds": 10**400}}]}]},
    {"devices": [{"total_bytes": 5, "backend": "cuda", "index": 0}] * 2},
])  # fmt: skip
def test_what_is_no_probe_is_refused(value: object) -> None:
    with pytest.raises(UsageError):
        read_document(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
_FIELDS = st.sampled_from(sorted(document(_report(_card()))["devices"][0]))


@given(st.dictionaries(_FIELDS, json_values), st.dictionaries(st.text(max_size=9), json_values))
@settings(max_examples=150, deadline=None)
def test_any_document_is_read_or_refused(row: dict[str, Any], host: dict[str, Any]) -> None:
    """And whatever is read can be planned with, shown and written again."""
    try:
        report = read_document({"devices": [{"total_bytes": GIB, **row}], "host": host})
    except UsageError:
        return
    for device in usable(report):
        assert 0 <= device.free_bytes <= device.total_bytes
    assert read_document(json.loads(json.dumps(document(report, "zh")))) == report


def test_a_refusal_is_one_line_whatever_the_file_says() -> None:
    with pytest.raises(UsageError) as caught:
        read_document({"devices": [{"total_bytes": GIB, "free_bytes": "\u202e\n\x1b[31m"}]})
    assert str(caught.value).isprintable()


def test_more_devices_than_an_engine_uses() -> None:
    """llama_max_devices() is 16; a file of hundreds is refused."""
    rows = [{"total_bytes": GIB, "backend": "cuda", "index": number} for number in range(20)]
    assert len(usable(read_document({"devices": rows}))) == 16
    with pytest.raises(UsageError):
        read_document({"devices": rows * 5})


def test_files(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        read(tmp_path / "none.json")
    for text in ("", "{", "[" * 100_000, "\xff"):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(UsageError):
            read(tmp_path / "bad.json")
    (tmp_path / "large.json").write_bytes(b" " * (5 << 20))
    with pytest.raises(UsageError, match="too large"):
        read(tmp_path / "large.json")


def test_the_last_probe_is_kept() -> None:
    assert last() is None
    save(_report(_card()))
    assert last() == _report(_card())
    (paths.data_dir() / "probe.json").write_text("broken")
    assert last() is None
    assert [path.name for path in paths.data_dir().iterdir()] == ["probe.json"]


def test_a_reserve_by_what_was_found() -> None:
    headless = advise(_card(display=False), "linux").reserve_bytes
    display = advise(_card(display=True, margin_bytes=256 * MIB), "linux").reserve_bytes
    windows = advise(_card(driver_model="WDDM", margin_bytes=256 * MIB), "win32").reserve_bytes
    assert headless == 192 * MIB
    assert headless < display < windows
    assert advise(_card(margin_bytes=2 * GIB), "linux").reserve_bytes == 2 * GIB


def test_a_budget_of_windows_below_the_drivers_free() -> None:
    """All that Windows grants was had: no more than that can be planned with."""
    found = _card(driver_model="WDDM", ceiling_bytes=5000 * MIB, all_blocks_bytes=5000 * MIB,
                  largest_block_bytes=5000 * MIB, margin_bytes=256 * MIB)  # fmt: skip
    assert advise(found, "win32").free_bytes == (5000 + 256 + 16) * MIB


def test_a_card_that_two_backends_show_is_used_once() -> None:
    cuda = _card()
    vulkan = _card(backend="vulkan", device="Vulkan0", pci="")
    igpu = _card(backend="vulkan", name="Intel UHD", index=1, unified=True, outcome="asked")
    assert [device.kind for device in usable(_report(vulkan, igpu, cuda))] == ["cuda"]
    assert [device.name for device in usable(_report(igpu))] == ["Intel UHD"]
    two = usable(_report(cuda, _card(index=1, pci="0000:02:00.0")))
    assert [device.index for device in two] == [0, 1]
    assert usable(_report(_card(outcome="failed"))) == ()
    software = _card(backend="vulkan", software=True)  # only there where a variable names it
    assert [device.kind for device in usable(_report(software))] == ["vulkan"]


# -- here --------------------------------------------------------------------------


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """An engine that lists these devices, or fails."""

    def answer(devices: object) -> None:
        def listed(_engine: object) -> object:
            if isinstance(devices, Exception):
                raise devices
            return devices

        monkeypatch.setattr("kvwise.here.may_have_gpu", lambda: True)
        monkeypatch.setattr("kvwise.engine.find.find", lambda *_: object())
        monkeypatch.setattr("kvwise.engine.devices.list_devices", listed)

    return answer


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files of Linux' drivers")
def test_a_software_gpu_counts_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It leaves no file behind; without the variable llama.cpp never takes it."""
    nothing = [str(tmp_path / "none")]
    monkeypatch.delenv("GGML_VK_VISIBLE_DEVICES", raising=False)
    assert here.may_have_gpu(nothing) is False
    assert here.may_have_gpu([*nothing, str(tmp_path)]) is True
    for named, found in (("0", True), ("1,0", True), ("", False)):
        monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", named)
        assert here.may_have_gpu(nothing) is found


LISTED = Device("NVIDIA GeForce RTX 4060", "cuda", 8188 * MIB, 7000 * MIB, source="engine")


def test_what_is_here_is_planned_with_what_was_measured(engine: Callable[[object], None]) -> None:
    engine([LISTED])
    without = here.devices()[0]
    assert (without.free_bytes, without.max_block_bytes) == (7000 * MIB, None)
    save(_report(_card(all_blocks_bytes=6900 * MIB, largest_block_bytes=4000 * MIB)))
    found = here.devices()[0]
    assert found.free_bytes == (7000 - 1000) * MIB  # called free and not to be had
    assert found.max_block_bytes == 4000 * MIB
    assert found.reserve_bytes == 192 * MIB
    assert found.sm_count == 24


def test_an_old_measurement_leaves_the_facts(engine: Callable[[object], None]) -> None:
    engine([LISTED])
    short = _card(all_blocks_bytes=6900 * MIB, largest_block_bytes=4000 * MIB, display=True)
    save(_report(short, time=NOW - timedelta(hours=1)))
    found = here.devices()[0]
    assert (found.free_bytes, found.max_block_bytes) == (7000 * MIB, None)
    assert found.reserve_bytes == 512 * MIB  # a display hangs on it
    save(_report(replace(short, display=False), time=NOW - timedelta(hours=1)))
    assert here.devices()[0].max_block_bytes == 4000 * MIB


def test_a_measurement_under_another_driver_leaves_the_facts(
    engine: Callable[[object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvwise.probe.remember.driver_of", lambda _kind: "570.1 #b")
    engine([LISTED])
    short = _card(all_blocks_bytes=6900 * MIB, largest_block_bytes=4000 * MIB, display=True)
    for driver, free in (("570.1 #b", 6000), ("550.54 #a", 7000), ("", 6000)):
        save(replace(_report(short), drivers={"cuda": driver}))
        assert here.devices()[0].free_bytes == free * MIB
        assert here.devices()[0].reserve_bytes == 512 * MIB


def test_a_probe_of_another_card_says_nothing(engine: Callable[[object], None]) -> None:
    engine([LISTED])
    save(_report(_card(name="NVIDIA GeForce RTX 3060", largest_block_bytes=1)))
    assert here.devices()[0].max_block_bytes is None


def test_numbers_hold_only_while_the_same_devices_are_shown(
    engine: Callable[[object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA_VISIBLE_DEVICES=1 makes another card the first one, and it has the same name."""
    small = _card(all_blocks_bytes=6000 * MIB, largest_block_bytes=6000 * MIB)
    two = [LISTED, replace(LISTED, index=1)]
    save(_report(small, _card(index=1, pci="0000:02:00.0")))
    engine(two)
    assert [each.free_bytes // MIB for each in here.devices()] == [5100, 7000]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    engine([LISTED])
    assert here.devices()[0].free_bytes == 7000 * MIB
    save(_report(small))  # one card of that name then, as now
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert here.devices()[0].free_bytes == 5100 * MIB
    engine(two)  # one of two that were hidden then
    assert [each.free_bytes // MIB for each in here.devices()] == [7000, 7000]
    both = _report(small, _card(index=1, pci="0000:02:00.0"))
    save(replace(both, environment=environment()))
    assert [each.free_bytes // MIB for each in here.devices()] == [5100, 7000]


def test_a_device_without_a_number_gets_the_next() -> None:
    row = {"name": "A", "backend": "cuda", "total_bytes": GIB}
    other = {"name": "B", "backend": "vulkan", "total_bytes": GIB}
    report = read_document({"devices": [row, row, other]})
    assert [each.index for each in report.devices] == [0, 1, 0]


def test_of_namesakes_the_one_with_that_memory_is_meant() -> None:
    """The driver calls both sizes of this card the same; their bandwidth differs."""
    name = "NVIDIA GeForce RTX 3060"
    for total, bandwidth in ((8191, 240), (12287, 360), (11911, 360), (9000, 360), (90000, 360)):
        found = _card(name=name, total_bytes=total * MIB, free_bytes=None, outcome="asked")
        assert planned(found, "linux").bandwidth_bytes_per_s == bandwidth * 10**9
    radv = _card(name="AMD Radeon RX 7900 XTX (RADV NAVI31)", backend="vulkan",
                 total_bytes=24560 * MIB)  # fmt: skip
    assert planned(radv, "linux").bandwidth_bytes_per_s == 960 * 10**9


def test_on_windows_what_other_programs_hold_is_counted() -> None:
    """CUDA's free does not see them; 768 MiB of what NVML calls free stay free."""
    free = {"free_bytes": 7000 * MIB, "largest_block_bytes": 6700 * MIB,
            "all_blocks_bytes": 6700 * MIB, "ceiling_bytes": 6700 * MIB,
            "margin_bytes": 256 * MIB, "driver_model": "WDDM", "display": True}  # fmt: skip
    blind = advise(_card(**free), "win32")
    assert (blind.free_bytes, blind.reserve_bytes) == ((6700 + 256 + 16) * MIB, 896 * MIB)
    for card_free in (5000, 7500):
        seen = advise(_card(**free, card_free_bytes=card_free * MIB), "win32")
        usable_bytes = min(6700 + 256 + 16 - 640, card_free - 768) * MIB
        assert seen.free_bytes - seen.reserve_bytes == usable_bytes
        assert seen.reserve_bytes == 640 * MIB
    assert advise(_card(**free, card_free_bytes=100 * MIB), "win32").free_bytes == 0


def test_a_shared_memory_gpu_of_nvidia_has_its_own_rules() -> None:
    """A Jetson refuses one allocation of half of what is free; a GB10 needs a larger reserve."""
    shared = {
        "unified": True, "outcome": "asked", "largest_block_bytes": None,
        "all_blocks_bytes": None, "total_bytes": 15655 * MIB, "free_bytes": 12000 * MIB,
    }  # fmt: skip
    orin = advise(_card(name="Orin", **shared), "linux")
    assert (orin.max_block_bytes, orin.reserve_bytes) == (6000 * MIB, 1280 * MIB)
    unknown = advise(_card(name="Tegra X", **shared), "linux")
    assert unknown.max_block_bytes == 6000 * MIB
    spark = advise(_card(name="NVIDIA GB10", **shared), "linux")
    assert (spark.max_block_bytes, spark.reserve_bytes) == (None, 4096 * MIB)


def test_a_fresh_probe_stands_in_for_an_engine(engine: Callable[[object], None]) -> None:
    engine(EngineError("none"))
    with pytest.raises(EngineError):
        here.devices()
    save(_report(_card()))
    assert [device.source for device in here.devices()] == ["probe"]
    save(_report(_card(), time=NOW - timedelta(days=2)))
    with pytest.raises(EngineError):
        here.devices()
