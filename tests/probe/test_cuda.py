"""The CUDA driver that is not there: whatever it does is a result."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvwise.probe.advice import advise
from kvwise.probe.host import host
from kvwise.probe.measure import SMALLEST
from kvwise.probe.report import DeviceReport, Report

MIB = 1 << 20
TOTAL = 24564 * MIB
FREE = TOTAL - 300 * MIB  # the fake's context
MARGIN = 64 * MIB
Card = Callable[..., DeviceReport]
Probed = Callable[..., Report]


def test_a_healthy_card(card: Card, tmp_path: Path) -> None:
    found = card(f"log={tmp_path / 'log'}")
    assert found.outcome == "measured"
    assert (found.name, found.device, found.index) == ("Fake GPU A", "CUDA0", 0)
    assert (found.total_bytes, found.free_bytes) == (TOTAL, FREE)
    assert found.compute_capability == "8.9"
    assert found.sm_count == 128
    assert found.bus_bytes_per_s == 1_008_096_000_000
    assert found.ceiling_bytes == (FREE - MARGIN) // (2 * MIB) * 2 * MIB
    assert found.largest_block_bytes == found.all_blocks_bytes == found.ceiling_bytes
    assert found.spilled is False
    assert found.write_bytes_per_s == pytest.approx(800e9, rel=0.01)
    assert found.has == {"fakes", "ceiling"}
    assert advise(found, "linux").free_bytes == FREE
    assert advise(found, "linux").max_block_bytes is None
    calls = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    asked = [int(size) for what, size in calls if what == "alloc"]
    assert max(asked) == found.ceiling_bytes
    assert len([1 for what, _ in calls if what == "free"]) == len(asked)


def test_a_fragmented_card(card: Card) -> None:
    found = card("extents=9000,5000,3000,8")
    assert found.largest_block_bytes == 9000 * MIB
    assert found.blocks == (9000 * MIB, 5000 * MIB, 3000 * MIB)
    assert found.all_blocks_bytes == 17000 * MIB
    assert {"largest_block", "free_over_reported"} <= found.has
    advice = advise(found, "linux")
    assert advice.max_block_bytes == 9000 * MIB
    assert advice.free_bytes == 17000 * MIB
    assert advice.missing_bytes == FREE - 17000 * MIB


def test_the_largest_block_is_found_in_few_tries(card: Card, tmp_path: Path) -> None:
    card(f"extents=9000;log={tmp_path / 'log'}")
    calls = (tmp_path / "log").read_text().splitlines()
    first_kept = calls.index(f"alloc {9000 * MIB}")
    assert first_kept <= 28  # tries and the frees of those that were granted


def test_a_limit_on_a_single_block(card: Card) -> None:
    found = card("block=4096")
    assert found.largest_block_bytes == 4096 * MIB
    assert found.all_blocks_bytes == found.ceiling_bytes
    assert advise(found, "linux").free_bytes == FREE
    assert advise(found, "linux").max_block_bytes == 4096 * MIB


def test_memory_that_spills_silently(card: Card) -> None:
    found = card("spill=20000")
    assert found.spilled is True
    assert found.all_blocks_bytes == found.ceiling_bytes  # the driver gave it all
    in_system = found.ceiling_bytes + 300 * MIB - 20000 * MIB
    assert found.spilled_bytes == pytest.approx(in_system, abs=256 * MIB)
    advice = advise(found, "linux")
    assert advice.free_bytes <= 20000 * MIB - 300 * MIB
    assert advice.free_bytes == found.all_blocks_bytes - found.spilled_bytes
    assert advice.max_block_bytes == advice.free_bytes


def test_memory_that_is_paged_when_all_of_it_is_used(card: Card) -> None:
    found = card("paging=20000")
    assert found.spilled is True


def test_a_slow_first_touch_is_no_spill(card: Card) -> None:
    assert card("first_slow=1").spilled is False


def test_a_slow_card_of_unknown_speed_is_not_judged(card: Card) -> None:
    found = card("all_slow=1;clock=0")
    assert found.spilled is None
    assert "slow_card" in found.has


def test_allocations_are_refused(card: Card) -> None:
    found = card("budget=300")
    assert (found.largest_block_bytes, found.all_blocks_bytes) == (0, 0)
    assert found.spilled is None
    assert advise(found, "linux").free_bytes == 0
    assert "free_over_reported" in found.has


def test_free_is_reported_too_high(card: Card) -> None:
    """Windows 10 and WSL2: less is granted than is called free."""
    found = card("budget=19000")
    assert found.free_bytes == FREE
    assert found.all_blocks_bytes == found.largest_block_bytes == 18700 * MIB
    assert advise(found, "linux").free_bytes == 18700 * MIB
    assert advise(found, "linux").missing_bytes == FREE - 18700 * MIB


def test_wsl_refuses_with_another_code(card: Card) -> None:
    assert card("budget=19000;refusal=600").all_blocks_bytes == 18700 * MIB


def test_more_free_than_there_is(card: Card) -> None:
    found = card("greedy=5000")
    assert found.free_bytes == found.total_bytes == TOTAL
    assert found.all_blocks_bytes <= FREE


@pytest.mark.parametrize("call", ["cuInit", "cuDevicePrimaryCtxRetain", "cuMemAlloc_v2",
                                  "cuMemsetD32Async", "cuEventSynchronize", "cuMemFree_v2",
                                  "load"])  # fmt: skip
@pytest.mark.parametrize(("way", "code"), [("crash", "crashed"), ("abort", "crashed"),
                                           ("exit", "left")])  # fmt: skip
def test_a_crash_inside_a_call(probed: Probed, way: str, code: str, call: str) -> None:
    """`exit` is `_exit(0)`: only the last record means success."""
    report = probed(f"{way}={call}")
    notes = [note for _, note in report.failures]
    notes += [note for device in report.devices for note in device.notes]
    found = next(note for note in notes if note.code == code)
    if way == "crash":
        assert found.values["how"] == "SIGSEGV"
    if call in ("cuInit", "load"):
        assert report.devices == ()
    elif call == "cuMemFree_v2":  # everything was measured before
        assert report.devices[0].outcome == "measured"
        assert report.devices[0].spilled is False
    else:
        if call in ("cuMemsetD32Async", "cuEventSynchronize"):  # given, but of no use
            assert report.devices[0].all_blocks_bytes == report.devices[0].ceiling_bytes
        assert report.devices[0].outcome == "failed"
        assert advise(report.devices[0], "linux").free_bytes == 0


@pytest.mark.parametrize("call", ["cuInit", "cuMemAlloc_v2"])
@pytest.mark.parametrize("way", ["hang", "spin"])
def test_a_call_that_does_not_come_back(probed: Probed, way: str, call: str) -> None:
    begun = time.monotonic()
    report = probed(f"{way}={call}", patience=0.15)
    assert time.monotonic() - begun < 15
    notes = [note for _, note in report.failures]
    notes += [note for device in report.devices for note in device.notes]
    phase = {"cuInit": "init", "cuMemAlloc_v2": "allocate"}[call]
    assert next(note for note in notes if note.code == "hung").values["phase"] == phase


def test_somebody_else_holds_the_pipe(probed: Probed) -> None:
    """The wait for a child is bounded even if its output never ends."""
    begun = time.monotonic()
    report = probed("fork=cuInit", patience=0.15)
    assert time.monotonic() - begun < 15
    assert [note.code for _, note in report.failures] == ["hung"]


def test_what_happens_at_the_end_of_the_process_does_not_matter(card: Card) -> None:
    for way in ("crash", "hang"):
        assert card(f"{way}=unload").outcome == "measured"


@pytest.mark.parametrize("code", [100, 803])
def test_no_device_or_the_wrong_driver(probed: Probed, code: int) -> None:
    report = probed(f"fail=cuInit:{code}")
    assert report.devices == ()
    ((backend, note),) = report.failures
    assert (backend, note.code, note.values["number"]) == ("cuda", "driver", code)
    message = str(note.message)
    assert {100: "no device", 803: "restart after an update"}[code] in message
    assert {100: "CUDA_ERROR_OTHER", 803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}[code] in message


def test_a_driver_without_devices_or_no_driver(probed: Probed) -> None:
    report = probed("devices=0")
    assert (report.devices, report.failures) == ((), ())
    from kvwise.probe.survey import Wish, survey

    nothing = survey(Wish(only=("cuda",), libraries={"cuda": "/nothing/libcuda.so.1"}))
    assert (nothing.devices, nothing.failures) == ((), ())


def test_a_stub_instead_of_a_driver(probed: Probed) -> None:
    ((_, note),) = probed("stub=1").failures
    assert note.values["number"] == 34
    assert "stub for compiling" in str(note.message)


def test_a_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    from kvwise.probe.survey import Wish, survey

    broken = tmp_path / "libcuda.so.1"
    broken.write_bytes(b"\x7fELF nonsense")
    ((_, note),) = survey(Wish(only=("cuda",), libraries={"cuda": str(broken)})).failures
    assert note.code == "driver"
    assert note.values["call"] == "dlopen"


@pytest.mark.parametrize("code", [46, 101, 304, 802, 999, 4242])
def test_other_codes_when_the_device_is_opened(card: Card, code: int) -> None:
    found = card(f"fail=cuDevicePrimaryCtxRetain:{code}")
    assert found.outcome == "failed"
    note = next(note for note in found.notes if note.code == "driver")
    assert note.values["number"] == code
    assert str(code) in str(note.message)


def test_a_sticky_failure_ends_the_search(card: Card) -> None:
    found = card("fail=cuMemsetD32Async:700")
    assert {"driver", "never_written"} <= found.has
    assert found.all_blocks_bytes == found.ceiling_bytes
    assert found.outcome == "failed"
    assert advise(found, "linux").free_bytes == 0


@pytest.mark.parametrize(("resident", "eighths"), [(22000, 7), (20000, 6), (13000, 4), (5000, 0)])
def test_what_cannot_be_written_is_no_memory(card: Card, resident: int, eighths: int) -> None:
    """WSL2 gives memory that it cannot make resident, and says so at the first write (600)."""
    found = card(f"resident={resident}")
    given = found.ceiling_bytes or 0
    planned = advise(found, "linux").free_bytes
    if not eighths:
        assert (found.outcome, planned) == ("failed", 0)
        return
    assert "unwritten" in found.has
    assert found.outcome == "measured"
    assert given * eighths // 8 - 2 * MIB <= planned <= resident * MIB
    assert found.all_blocks_bytes == planned


def test_an_old_driver_lacks_functions(card: Card) -> None:
    found = card("version=11040", defines=("OLD",))
    assert found.outcome == "measured"
    assert found.driver == "CUDA 11.4"
    assert found.uuid.startswith("10101010-1010")


def test_two_devices_reordered(probed: Probed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's order is llama.cpp's, whatever PCI says; each is measured as itself."""

    def names() -> list[tuple[str, str, int | None]]:
        report = probed("devices=2;reverse=1", nvml="count=2")
        return [(each.device, each.name, each.all_blocks_bytes) for each in report.devices]

    small = (TOTAL - 8192 * MIB - 364 * MIB) // (2 * MIB) * 2 * MIB
    large = (FREE - MARGIN) // (2 * MIB) * 2 * MIB
    assert names() == [("CUDA0", "Fake GPU B", small), ("CUDA1", "Fake GPU A", large)]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert names() == [("CUDA0", "Fake GPU A", large), ("CUDA1", "Fake GPU B", small)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert names() == [("CUDA0", "Fake GPU B", small)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert names() == []


def test_devices_by_uuid_and_what_hides_them(
    probed: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the driver reads it: unique prefixes of UUIDs; a bad entry hides itself and all after."""

    def shown(variable: str) -> tuple[list[str], int]:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        report = probed("devices=3;total=40000", nvml="count=3", quick=True)
        names = [each.name[-1] for each in report.devices]
        hidden = [note.values["count"] for _, note in report.remarks if note.code == "hidden"]
        return names, int(sum(hidden))

    assert shown("GPU-11,GPU-1010") == (["B", "A"], 1)
    assert shown("2,GPU-11111111-1111") == (["C", "B"], 1)
    assert shown("0,nonsense,1") == (["A"], 2)
    assert shown("GPU-1") == ([], 3)  # several begin so
    assert shown("1,9,0") == (["B"], 2)
    assert shown("") == ([], 3)
    assert shown("0,1,2") == (["A", "B", "C"], 0)


def test_many_devices(probed: Probed) -> None:
    report = probed("devices=3;total=40000", quick=True)
    assert [each.device for each in report.devices] == ["CUDA0", "CUDA1", "CUDA2"]


def test_a_huge_and_a_tiny_card(card: Card) -> None:
    huge = card("total=196608")
    assert huge.largest_block_bytes > 1 << 37
    assert huge.spilled is False
    tiny = card("others=24200")
    assert (tiny.ceiling_bytes, tiny.blocks) == (0, ())
    assert "nothing" in tiny.has
    assert advise(tiny, "linux").free_bytes == 64 * MIB


def test_memory_that_does_not_come_back(card: Card) -> None:
    assert "leak" in card("leak=1").has
    assert "leak" not in card("").has


def test_a_driver_that_lies(card: Card) -> None:
    assert "driver" in card("null=1").has
    assert "read_back" in card("forget=1").has


def test_another_program_takes_memory_meanwhile(card: Card) -> None:
    found = card("budget=20000;thief=9")
    assert found.outcome == "measured"
    assert found.largest_block_bytes <= 17700 * MIB


def test_every_third_allocation_fails(card: Card) -> None:
    found = card("flaky=3")
    assert found.outcome == "measured"
    assert found.all_blocks_bytes > 20000 * MIB


def test_refusals_without_a_pattern(card: Card) -> None:
    assert card("only_even=1").outcome == "measured"


def test_an_integrated_gpu_is_not_taken(card: Card) -> None:
    found = card("integrated=1")
    assert found.outcome == "asked"
    assert {"unified", "host_free"} <= found.has
    assert found.free_bytes == pytest.approx(min(TOTAL, host().usable_bytes), rel=0.2)
    full = card("integrated=1;others=24000")  # page cache that the system can take back
    assert full.free_bytes == pytest.approx(min(TOTAL, host().usable_bytes), rel=0.2)


def test_quick_takes_nothing(card: Card, tmp_path: Path) -> None:
    found = card(f"log={tmp_path / 'log'}", quick=True)
    assert (found.outcome, found.free_bytes) == ("asked", FREE)
    assert found.largest_block_bytes is None
    assert not (tmp_path / "log").exists()


def test_a_margin_of_ones_own(card: Card) -> None:
    assert card(margin=4096 * MIB).ceiling_bytes == (FREE - 4096 * MIB) // (2 * MIB) * 2 * MIB


def test_more_stays_free_on_a_card_with_a_display(card: Card) -> None:
    found = card(nvml="display=1")
    assert found.display is True
    assert found.margin_bytes == TOTAL * 3 // 100
    assert card("display=1").margin_bytes == TOTAL * 3 // 100  # the driver's time limit tells


@pytest.mark.parametrize(("model", "name"), [(0, "WDDM"), (1, "TCC"), (2, "MCDM")])
def test_driver_models_of_windows(card: Card, model: int, name: str) -> None:
    found = card(nvml=f"model={model}")
    assert found.driver_model == name
    assert (found.margin_bytes > MARGIN) == (name != "TCC")


def test_nvml_hangs_or_crashes_alone(card: Card) -> None:
    for trouble in ("hang=1", "crash=1", "init=9", "memory=15"):
        found = card(nvml=trouble, patience=0.15)
        assert found.outcome == "measured"
        assert found.context_bytes is None


def test_the_contexts_own_cost_is_measured(card: Card) -> None:
    found = card("sm=128", nvml="context=250")
    assert found.context_bytes == 250 * MIB
    advice = advise(found, "linux")
    assert advice.reserve_bytes == 192 * MIB + (420 + 28 * 128) * MIB // 10 - 250 * MIB


def test_a_card_that_others_use_is_left_alone(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvwise.probe.survey.running_engines", tuple)
    found = card(nvml="others=9000", full=False)
    assert found.outcome == "asked"
    assert found.others_bytes == 9000 * MIB
    assert "others" in found.has
    assert card(nvml="others=9000").outcome == "measured"
    assert card(nvml="others=-1", full=False).outcome == "measured"  # Windows does not tell
    monkeypatch.setattr("kvwise.probe.survey.running_engines", lambda: ("llama-server",))
    busy = card(full=False)
    assert (busy.outcome, "busy" in busy.has) == ("asked", True)


def test_a_slice_of_a_card(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvwise.probe.survey.running_engines", tuple)
    found = card(nvml="mig=1;others=9000", full=False)  # others compute in other slices
    assert found.outcome == "measured"
    assert "mig" in found.has
    assert (found.others_bytes, found.card_free_bytes, found.context_bytes) == (None, None, None)


def test_a_prohibited_card(card: Card) -> None:
    assert "prohibited" in card("mode=2;fail=cuDevicePrimaryCtxRetain:999").has


def test_smallest_is_what_a_model_could_use() -> None:
    assert SMALLEST == 16 * MIB
