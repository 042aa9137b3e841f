"""What can be turned, and what it makes of a launch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvwise import Device, Launch, open_model
from kvwise.device import Host
from kvwise.errors import UsageError
from kvwise.memory.parts.companions import Companions
from kvwise.options import change
from kvwise.tune.knobs import (
    Space,
    given,
    impossible,
    key_of,
    launch_of,
    space_of,
)
from kvwise.units import GIB

ZOO = Path(__file__).parents[1] / "zoo/models"
MODEL = open_model(str(ZOO / "qwen3-8b.json.gz"))
BASE = Launch.parse(["-c", "4096", "-np", "1", "-ngl", "20"])


def space(base: Launch = BASE, **more: object) -> Space:
    values = {"cores": 8, "logical": 16, "floor": "lossless", "prompt_tokens": 512} | more
    return space_of(MODEL, base, (), **values)  # type: ignore[arg-type]


def values(found: Space, name: str) -> tuple[object, ...]:
    return next(knob.values for knob in found.knobs if knob.name == name)


def test_knobs_of_a_processor() -> None:
    found = space()
    assert [knob.name for knob in found.knobs] == ["t", "ub", "fa", "tb", "poll"]
    assert values(found, "t") == (1, 2, 4, 6, 7, 8, 16)
    assert values(found, "ub") == (64, 128, 256, 512)  # nothing beyond the prompt
    assert dict(found.start) == {"t": 8, "ub": 512, "fa": "auto", "tb": 8, "poll": 50}
    assert found.size == 7 * 4 * 2 * 7 * 3 == len(list(found.points()))


def test_layers_around_the_plan_where_there_is_a_gpu() -> None:
    gpu = Device.of("RTX 4060")
    found = space_of(MODEL, BASE, (gpu,), cores=8, logical=8, floor="high", prompt_tokens=4096)
    assert values(found, "ngl") == (16, 18, 19, 20, 21, 22, 24)
    assert values(found, "cache") == ("f16/f16", "q8_0/q8_0")
    assert values(found, "ub")[-1] == 2048


def test_what_the_user_gave_is_kept() -> None:
    base = Launch.parse(["-t", "3", "-ub", "256", "-c", "4096"])
    fixed = given({"n_ubatch", "n_ctx"}, base.extra)
    assert set(fixed) == {"t", "ub"}
    found = space(base, fixed=fixed)
    assert [knob.name for knob in found.knobs] == ["fa", "tb", "poll"]
    assert dict(found.start)["tb"] == 3  # as many as are given
    with pytest.raises(UsageError):
        space(fixed=("t", "ub", "fa", "tb", "poll", "cache"))
    with pytest.raises(UsageError, match="nothing"):
        space(only=("nothing",))


def test_a_point_as_a_launch() -> None:
    base = Launch.parse(["-c", "4096", "-t", "3", "--poll", "9"])
    point = (("t", 4), ("ub", 4096), ("fa", "off"), ("tb", 4), ("poll", 0))
    launch = launch_of(base, point)
    assert launch.extra == ("-t", "4", "--poll", "0")  # -tb follows -t
    assert (launch.n_ubatch, launch.n_batch, launch.flash_attn) == (4096, 4096, "off")
    apart = launch_of(base, (("tb", 8), ("cache", "q8_0/q4_0"), ("ngl", 7)))
    assert apart.extra == ("-t", "3", "--poll", "9", "-tb", "8")
    assert (apart.type_k, apart.type_v, apart.n_gpu_layers) == ("q8_0", "q4_0", 7)
    assert key_of(point) == "t=4 ub=4096 fa=off tb=4 poll=0"


def test_refusals_and_memory_are_known_before() -> None:
    host = Host(total_bytes=8 * GIB, available_bytes=8 * GIB)
    quantized = launch_of(BASE, (("cache", "q8_0/q8_0"), ("fa", "off")))
    assert impossible(MODEL, quantized, (), host)  # V quantized needs flash attention
    assert not impossible(MODEL, BASE, (), host)
    large = Launch.parse(["-c", "400000", "-np", "1"])
    assert impossible(MODEL, large, (), host)


def test_a_draft_counts_in_what_memory_holds() -> None:
    host = Host(total_bytes=8 * GIB, available_bytes=5 * GIB)
    named = change(BASE, model_draft="draft.gguf", spec_types=("draft-simple",))
    assert not impossible(MODEL, named, (), host)  # 3,884 MiB beside the mapped file
    both = Companions(draft=MODEL)  # twice as much, and its file is mapped too
    assert impossible(MODEL, named, (), host, both)
    assert not impossible(MODEL, named, (), replace(host, available_bytes=8 * GIB), both)
