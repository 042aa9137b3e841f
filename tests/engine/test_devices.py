"""Devices as engines list them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kvwise import here
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


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_the_embedded_engine_answers() -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    assert isinstance(list_devices(Engine("embedded")), list)
