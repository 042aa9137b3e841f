"""What a load took beside its buffers is remembered, and planned with under the same driver.

No GPU here reports what it has free (a software GPU always says all of it), so logs of the shape
that llama-server b10605 prints stand for a card's: its start, and the table at its end.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kvwise import here, unaccounted
from kvwise.arch import describe
from kvwise.device import Device
from kvwise.engine import devices as listing
from kvwise.engine.find import Engine
from kvwise.engine.loaded import Collector, Loaded
from kvwise.engine.log import read
from kvwise.gguf.open import open_header
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.probe import driver
from kvwise.text import say
from kvwise.units import GIB, MIB
from kvwise.verify.attempt import cards_of
from kvwise.verify.taken import taken_beside
from zoo_files import ZOO

MODEL = describe(open_header(str(ZOO / "models" / "qwen3-0.6b.json.gz")))
CARD = Device("NVIDIA GeForce RTX 4060", "cuda", 7807 * MIB, 7698 * MIB)
ENGINE = Engine("binary", "/x/llama-server", "b10605", "version: 0.2.0 (build 10605, commit a4f)")
LINE = (
    "0.08.1 I common_memory_breakdown_print: |   - CUDA0 (RTX 4060)   |  7807 = {free} + "
    "({own} = {own} +       0 +       0) +        {rest} |"
)


def ledger() -> Ledger:
    return account(MODEL, Launch(n_ctx=4096), [CARD])


def log(grown: int, started: int = 7698) -> Loaded:
    """What a server on CARD prints, when a load takes `grown` MiB beside its buffers."""
    own = ledger().lines[0].total_bytes // MIB
    free = started - own - grown
    text = (
        "0.00.1 I llama_prepare_model_devices: using device CUDA0 (NVIDIA GeForce RTX 4060) "
        f"(0000:01:00.0) - {started} MiB free\n"
        + LINE.format(free=free, own=own, rest=7807 - free - own)
        + "\n0.08.2 I common_memory_breakdown_print: |   - Host   |   31 =    28 +       0 +  2 |\n"
    )
    return Collector().add_all(read([text.encode()]))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path))
    monkeypatch.setattr(unaccounted, "driver_of", lambda kind: "550.54.14 #1a2b3c4d")
    monkeypatch.setattr(here, "may_have_gpu", lambda: True)
    monkeypatch.setattr(listing, "list_devices", lambda engine: [CARD])
    return tmp_path / "data" / "overhead.json"


class TestReading:
    def test_what_a_load_added_is_found_to_the_mib(self) -> None:
        ((device, taken),) = taken_beside(ledger(), cards_of(log(64)))
        assert device == CARD
        assert abs(taken - 64 * MIB) <= MIB
        assert taken_beside(ledger(), cards_of(log(0)))[0][1] <= MIB

    def test_free_memory_that_does_not_move_tells_nothing(self) -> None:
        own = ledger().lines[0].total_bytes // MIB
        assert taken_beside(ledger(), cards_of(log(-own))) == ()

    def test_a_log_without_its_end_tells_nothing(self) -> None:
        loaded = log(64)
        loaded.breakdown.clear()
        assert taken_beside(ledger(), cards_of(loaded)) == ()


class TestRemembering:
    def test_it_is_planned_with_and_says_where_it_comes_from(self, home: Path) -> None:
        assert here.devices(ENGINE)[0].overhead_bytes is None
        unaccounted.remember(taken_beside(ledger(), cards_of(log(64))), ENGINE)
        (device,) = here.devices(ENGINE)
        assert device.overhead_bytes is not None
        line = account(MODEL, Launch(n_ctx=4096), [device]).lines[0]
        assert abs(line.overhead_bytes - 64 * MIB) <= MIB
        assert line.basis["overhead"] == "measured"
        assert say(line.reasons["overhead"], "en") == (
            "measured on this machine by `kvwise verify` less than an hour ago with b10605, driver "
            "550.54.14: the most that 1 load(s) took beside their buffers"
        )
        assert line.total_bytes == ledger().lines[0].total_bytes + line.overhead_bytes

    def test_another_driver_build_or_card_has_none(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unaccounted.remember([(CARD, 64 * MIB)], ENGINE)
        assert here.devices(replace(ENGINE, build="b11549"))[0].overhead_bytes is None
        second = replace(CARD, index=1)
        assert unaccounted.with_measured([second], ENGINE)[0].overhead_bytes is None
        monkeypatch.setattr(unaccounted, "driver_of", lambda kind: "560.10 #1a2b3c4d")
        assert here.devices(ENGINE)[0].overhead_bytes is None
        monkeypatch.setattr(unaccounted, "driver_of", lambda kind: "")
        assert unaccounted.remember([(CARD, MIB)], ENGINE) == ()

    def test_the_most_of_the_last_loads_counts(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = 1_700_000_000.0
        monkeypatch.setattr(unaccounted.time, "time", lambda: clock)
        for size in (900, *range(1, unaccounted.KEPT + 1)):
            clock += 3 * 86400
            unaccounted.remember([(CARD, size * MIB)], ENGINE)
        clock += 5 * 86400
        (device,) = unaccounted.with_measured([CARD], ENGINE)
        assert device.overhead_bytes == unaccounted.KEPT * MIB  # 900 is too long ago
        assert device.overhead_reason is not None
        assert "5 days ago" in say(device.overhead_reason, "en")
        assert f"that {unaccounted.KEPT} load(s)" in say(device.overhead_reason, "en")

    @pytest.mark.parametrize(
        "text",
        [
            "", "[]", "{", '{"schema": "kvwise/overhead/1"}', '{"schema": "x", "loads": []}',
            '{"schema": "kvwise/overhead/1", "loads": [1, null, {"kind": 1}, {"at": true}]}',
        ],
    )  # fmt: skip
    def test_a_file_that_is_not_sound_is_none(self, home: Path, text: str) -> None:
        home.parent.mkdir(parents=True)
        home.write_text(text)
        assert unaccounted.with_measured([CARD], ENGINE) == [CARD]
        unaccounted.remember([(CARD, MIB)], ENGINE)
        assert unaccounted.with_measured([CARD], ENGINE)[0].overhead_bytes == MIB

    def test_nonsense_among_the_rows_is_left_out(self, home: Path) -> None:
        unaccounted.remember([(CARD, 3 * MIB)], ENGINE)
        document = json.loads(home.read_text())
        for change in ({"taken_bytes": -1}, {"at": 1e18}, {"name": None}, {"taken_bytes": 1 << 60}):
            document["loads"].append(document["loads"][0] | change)
        home.write_text(json.dumps(document))
        assert unaccounted.with_measured([CARD], ENGINE)[0].overhead_bytes == 3 * MIB

    def test_no_half_written_file_is_left(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unaccounted.remember([(CARD, MIB)], ENGINE)
        before = home.read_bytes()

        def fail(self: Path, target: Path) -> None:
            raise OSError(28, "no space left")

        monkeypatch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="no space"):
            unaccounted.remember([(CARD, 2 * MIB)], ENGINE)
        assert home.read_bytes() == before
        assert list(home.parent.iterdir()) == [home]


class TestDriver:
    def test_it_changes_with_the_library(self, tmp_path: Path) -> None:
        library = tmp_path / "libcuda.so.1"
        version = tmp_path / "version"
        assert driver.driver_of("cuda", [str(tmp_path)], version) == ""
        library.write_bytes(b"one")
        plain = driver.driver_of("cuda", [str(tmp_path)], version)
        library.write_bytes(b"two or more")
        assert driver.driver_of("cuda", [str(tmp_path)], version) != plain != ""

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC",
             "550.54.14"),
            ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build",
             "575.57.08"),
        ],
    )  # fmt: skip
    def test_nvidias_own_version(self, tmp_path: Path, text: str, shown: str) -> None:
        version = tmp_path / "version"
        version.write_text(text)
        assert driver.driver_of("cuda", [], version).startswith(f"{shown} #")


def test_sizes_are_whole(home: Path) -> None:
    unaccounted.remember([(replace(CARD, total_bytes=8 * GIB), 5 * MIB)], ENGINE)
    (row,) = json.loads(home.read_text())["loads"]
    assert isinstance(row["taken_bytes"], int)
    assert row["driver"] == "550.54.14 #1a2b3c4d"
