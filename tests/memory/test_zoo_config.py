"""Lines of `size --configs`: the zoo's fields, its defaults, and nonsense."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import cache_setup as setup

from kvwise.errors import UsageError
from kvwise.memory.zoo_config import DEFAULTS, read_config
from kvwise.units import GIB


def test_defaults_are_the_zoo_s() -> None:
    golden = setup.golden("qwen3-8b")["defaults"]
    assert {name: DEFAULTS[name] for name in golden} == golden
    assert set(DEFAULTS) - set(golden) == {"engine_build", "compute_mode"}


def test_an_empty_line() -> None:
    config = read_config({})
    assert [device.name for device in config.devices] == ["VGPU0"]
    assert config.compute_mode == "reserved"
    assert config.launch.build == "b10605"


def test_what_may_be_added() -> None:
    config = read_config({"engine_build": "b11549", "compute_mode": "no-alloc"})
    assert (config.launch.build, config.compute_mode) == ("b11549", "no-alloc")


def test_devices() -> None:
    assert read_config({"device": "cpu"}).devices == ()
    two = read_config({"device": "cuda", "n_gpu": 2, "gpu_mem_mib": [8192]}).devices
    assert [device.free_bytes for device in two] == [8 * GIB, 24 * GIB]
    assert {device.kind for device in two} == {"cuda"}


@pytest.mark.parametrize(
    "line",
    [
        {"n_ctxx": 1},
        {"n_ctx": "8192"},
        {"n_ctx": True},
        {"n_ctx": -2},
        {"n_ctx": 2**31},
        {"kv_unified": 1},
        {"device": "tpu"},
        {"flash_attn": None},
        {"tensor_split": "1,2"},
        {"tensor_split": [1, "2"]},
        {"tensor_split": [float("nan")]},
        {"gpu_mem_mib": None},
        {"n_gpu": 17},
        {"n_gpu": -1},
        {"type_k": 8},
        {"compute_mode": "none"},
    ],
)
def test_nonsense(line: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        read_config(line)


@given(
    st.dictionaries(
        st.sampled_from([*DEFAULTS, "other"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
        | st.lists(st.integers() | st.floats() | st.none(), max_size=3),
    )
)  # fmt: skip
def test_any_line_is_read_or_a_usage_error(line: dict[str, Any]) -> None:
    try:
        read_config(line)
    except UsageError as error:
        assert "{" not in str(error)
