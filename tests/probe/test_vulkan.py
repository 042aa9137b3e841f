"""A Vulkan loader that is not there: heaps, budgets and limits as drivers state them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvwise.probe.advice import advise
from kvwise.probe.backends.vulkan import Memory, Seen, chosen
from kvwise.probe.library import DriverError
from kvwise.probe.report import DeviceReport, Report
from kvwise.probe.survey import Wish, survey

MIB = 1 << 20
Card = Callable[..., DeviceReport]


@pytest.fixture
def vulkan(compiled: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Survey the fake loader: `vulkan("budget=4000")`."""
    monkeypatch.delenv("GGML_VK_VISIBLE_DEVICES", raising=False)

    def probe(fake: str = "", **wish: object) -> Report:
        monkeypatch.setenv("VK", fake)
        libraries = {"vulkan": compiled("vulkan.c")}
        return survey(Wish(libraries=libraries, only=("vulkan",), full=True, **wish))  # type: ignore[arg-type]

    return probe


@pytest.fixture
def card(vulkan: Callable[..., Report]) -> Card:
    def probe(fake: str = "", **wish: object) -> DeviceReport:
        report = vulkan(fake, **wish)
        assert report.failures == ()
        return report.devices[0]

    return probe


def test_a_healthy_card(card: Card) -> None:
    found = card("")
    assert (found.name, found.device, found.outcome) == ("Fake Vulkan A", "Vulkan0", "measured")
    assert found.pci == "0000:03:00.0"
    assert found.free_bytes == found.total_bytes == 8192 * MIB
    assert found.largest_block_bytes == 4094 * MIB  # maxBufferSize, in steps
    assert found.all_blocks_bytes == found.ceiling_bytes
    assert advise(found, "linux").max_block_bytes == 4094 * MIB
    assert "software_only" in found.has


def test_a_budget_below_the_heap(card: Card) -> None:
    found = card("budget=7424;usage=200")
    assert found.free_bytes == 7224 * MIB
    assert found.all_blocks_bytes <= 7224 * MIB


def test_a_budget_above_the_heap_is_clamped(card: Card) -> None:
    assert card("budget=10000").free_bytes == 8192 * MIB


def test_a_budget_of_zero_means_that_there_is_none(card: Card) -> None:
    assert card("budget=0").free_bytes == 8192 * MIB


def test_more_used_than_granted_does_not_wrap(card: Card) -> None:
    found = card("budget=1000;usage=3000")
    assert found.free_bytes == 0
    assert "nothing" in found.has


def test_less_than_the_heap_can_be_had(card: Card) -> None:
    found = card("real=5000")
    assert found.all_blocks_bytes == 5000 * MIB
    assert "free_over_reported" in found.has


def test_a_small_heap_that_the_host_sees_is_counted_as_llama_cpp_does(card: Card) -> None:
    """256 MiB of a card's memory twice: once as a heap of its own (llama.cpp issue 22368)."""
    found = card("bar=256;heap=7936")
    assert found.total_bytes == 8192 * MIB
    assert [heap["size_bytes"] for heap in found.heaps] == [7936 * MIB, 16384 * MIB, 256 * MIB]
    assert found.outcome == "measured"


def test_a_driver_that_tells_no_limits(card: Card) -> None:
    found = card("allocation=0;buffer=0")
    assert found.outcome == "measured"
    assert found.all_blocks_bytes == found.ceiling_bytes
    assert found.max_buffer_bytes == 16384 * MIB  # the largest heap


def test_a_device_that_is_lost(card: Card) -> None:
    found = card("lost=1")
    note = next(note for note in found.notes if note.code == "driver")
    assert note.values["error"] == "-4 VK_ERROR_DEVICE_LOST"
    assert found.all_blocks_bytes == found.ceiling_bytes


def test_a_fence_that_is_never_signalled(card: Card) -> None:
    assert "VK_TIMEOUT" in str(next(n.message for n in card("wait=2").notes if n.code == "driver"))


def test_an_integrated_gpu_is_not_taken(card: Card) -> None:
    found = card("cards=i")
    assert found.outcome == "asked"
    assert found.total_bytes == (8192 + 16384) * MIB  # llama.cpp adds up every heap
    assert "unified" in found.has


def test_a_driver_whose_hardware_is_absent(vulkan: Callable[..., Report]) -> None:
    for fake in ("enumerate=-3", "instance=-9", "cards=c"):
        report = vulkan(fake)
        assert (report.devices, report.failures) == ((), ())
    ((_, note),) = vulkan("instance=-1").failures
    assert "VK_ERROR_OUT_OF_HOST_MEMORY" in str(note.message)


def test_order_and_choice(vulkan: Callable[..., Report], monkeypatch: pytest.MonkeyPatch) -> None:
    def names(fake: str) -> list[str]:
        return [each.name[-1] for each in vulkan(fake, quick=True).devices]

    assert names("cards=cdid") == ["B", "C", "D"]
    assert names("cards=v") == ["A"]  # no GPU: the first that is no processor
    assert names("cards=dd;old=1") == ["A"]
    assert names("cards=dd;same=1;drivers=2,3") == ["B"]  # RADV before AMDVLK
    assert names("cards=dd;same=1;drivers=3,2") == ["A"]
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "2,0")
    assert names("cards=cdd") == ["C", "A"]


def _seen(**fields: int) -> Seen:
    values = {"handle": 1, "kind": 2, "vendor": 0x10DE, "driver": 4, "luid": None} | fields
    return Seen(uuid=bytes([values.pop("id", 1)] * 16), supported=True, **values)  # type: ignore[arg-type]


def test_twins_are_told_by_uuid_or_luid() -> None:
    assert chosen([_seen(id=1), _seen(id=1)], None) == [0]
    assert chosen([_seen(id=1, luid=7), _seen(id=2, luid=7)], None) == [0]
    assert chosen([_seen(id=1, driver=14), _seen(id=1, driver=14)], None) == [0, 1]  # MoltenVK
    assert chosen([_seen(id=1, driver=23), _seen(id=1)], None) == [1]  # Dozen is the last choice
    assert chosen([_seen(), _seen(id=2)], "") == []
    assert chosen([_seen(), _seen(id=2)], "1 x 0") == [1]
    with pytest.raises(DriverError):
        chosen([_seen()], "1")


def test_heaps_that_are_not_the_cards_do_not_count() -> None:
    memory = Memory(((100, 1), (900, 0)), (), ((80, 10), (900, 0)))
    assert memory.free_and_total(integrated=False) == (70, 100)
    assert memory.free_and_total(integrated=True) == (970, 1000)
