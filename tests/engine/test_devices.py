"""Devices as engines list them."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from kvwise import here
from kvwise.device import Device
from kvwise.engine.devices import list_devices, read_listing, read_rows
from kvwise.engine.find import Engine
from kvwise.errors import EngineError
from kvwise.units import MIB

LISTING = """ggml_cuda_init: found 2 CUDA devices:
Available devices:
  CUDA0: NVIDIA GeForce RTX 4060 (8188 MiB, 7078 MiB free)
  Vulkan1: AMD Radeon RX 7600 (RADV NAVI33) (8176 MiB, 8000 MiB free)
  RPC0: 127.0.0.1:50052 (24105 MiB, 24105 MiB free)
"""


def test_a_servers_listing() -> None:
    devices = read_listing(LISTING)
    assert [(each.name, each.kind, each.index) for each in devices] == [
        ("NVIDIA GeForce RTX 4060", "cuda", 0),
        ("AMD Radeon RX 7600 (RADV NAVI33)", "vulkan", 1),
        ("127.0.0.1:50052", "generic", 0),
    ]
    assert (devices[0].total_bytes, devices[0].free_bytes) == (8188 * MIB, 7078 * MIB)
    assert read_listing("Available devices:\n  (none)\n") == []


def test_the_embedded_engines_rows() -> None:
    devices = read_rows([("CUDA1", "NVIDIA H200", 5, 4), ("Metal", "Apple M4", 3, 2)])
    assert [(each.kind, each.index, each.free_bytes) for each in devices] == [
        ("cuda", 1, 4),
        ("metal", 0, 2),
    ]


def test_a_program_that_lists_nothing(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\nexit 5\n")
    program.chmod(0o755)
    with pytest.raises(EngineError, match="exit code"):
        list_devices(Engine("binary", str(program)))
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{LISTING}END\n")
    assert len(list_devices(Engine("binary", str(program)))) == 3


def test_nothing_is_asked_where_there_can_be_no_gpu(tmp_path: Path) -> None:
    assert here.may_have_gpu([str(tmp_path)])
    if here.sys.platform.startswith("linux"):
        assert not here.may_have_gpu([str(tmp_path / "no")])


def test_a_device_found_here_gets_a_reserve_and_what_the_catalogue_knows() -> None:
    known, unknown = read_listing(LISTING)[0::2]
    card = here.with_reserve(known)
    assert card.free_bytes == known.free_bytes
    assert card.bandwidth_bytes_per_s == 272 * 10**9
    assert 0 < (card.reserve_bytes or 0) < 1024 * MIB
    assert here.with_reserve(unknown).reserve_bytes == 1024 * MIB


def _connector(drm: Path, name: str, vendor: str, status: str) -> None:
    """An imitation of what Linux shows of a connector."""
    (drm / name).mkdir(parents=True)
    (drm / name / "status").write_text(f"{status}\n")
    card = drm / name.partition("-")[0] / "device"
    card.mkdir(parents=True, exist_ok=True)
    (card / "vendor").write_text(f"{vendor}\n")


def test_a_screen_on_the_card_asks_for_more_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """free-memory-facts 9: Linux CUDA 192 MiB without a display, 512 with one."""
    monkeypatch.setattr("kvwise.catalogue.offline.running_os", lambda: "linux")
    card = read_listing(LISTING)[0]
    unknown = replace(card, name="NVIDIA something new")
    _connector(tmp_path, "card1-HDMI-A-1", "0x1002", "connected")
    _connector(tmp_path, "card0-DP-1", "0x10de", "disconnected")
    for device in (card, unknown):
        found = here.with_reserve(device, screens=str(tmp_path))
        assert found.reserve_bytes == 192 * MIB
        assert "192 MiB kept free" in str(found.reserve_reason)
    _connector(tmp_path, "card0-DP-2", "0x10de", "connected")
    for device in (card, unknown):
        assert here.with_reserve(device, screens=str(tmp_path)).reserve_bytes == 512 * MIB


@pytest.mark.parametrize(
    ("system", "kind", "reserve"),
    [
        ("windows", "cuda", 896),
        ("linux", "hip", 256),
        ("linux", "vulkan", 256),
        ("windows", "vulkan", 512),
        ("windows", "hip", 1024),
        ("linux", "generic", 1024),
    ],
)
def test_a_card_that_nobody_knows_gets_what_its_like_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, kind: str, reserve: int
) -> None:
    monkeypatch.setattr("kvwise.catalogue.offline.running_os", lambda: system)
    device = Device("GPU of tomorrow", kind=kind, total_bytes=24 << 30, free_bytes=23 << 30)
    assert here.with_reserve(device, screens=str(tmp_path)).reserve_bytes == reserve * MIB


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_the_embedded_engine_answers() -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    assert isinstance(list_devices(Engine("embedded")), list)
