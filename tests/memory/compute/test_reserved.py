"""What is really reserved (pins kept, the larger of two graphs) against tests/graphs."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from traces import FOLDER

from kvwise.arch import describe
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.memory.cache import caches
from kvwise.memory.compute import ComputeResult, compute
from kvwise.memory.context import resolve
from kvwise.memory.placement import HOST, place, select
from kvwise.memory.zoo_config import read_config
from report import DEFAULTS, ZOO

SAMPLE = (
    "tiny-deepseek32", "tiny-deepseek4", "tiny-minimax-m3", "deepseek-v2-lite-nomla", "minicpm3-4b",
)  # fmt: skip

Cell = tuple[dict[str, Any], dict[str, int]]


@cache
def cells() -> dict[str, list[Cell]]:
    """Model -> configurations with the bytes of each buffer."""
    found: dict[str, list[Cell]] = defaultdict(list)
    for name, rows in _read("real-compute").items():
        found[name] += [(config, real) for config, real, _ in rows]
    for name, config, real, _ in _read("measured-real"):
        found[name].append((config, real))
    return found


def _read(name: str) -> Any:
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


def predict(model: Model, config: dict[str, Any]) -> ComputeResult:
    zoo = read_config({**DEFAULTS, **config})
    devices = select(zoo.launch, zoo.devices)
    placement = place(model, zoo.launch, devices)
    context = resolve(model, zoo.launch, placement, devices)
    kept = caches(model, context, placement, devices)
    return compute(model, context, placement, kept, zoo.launch, devices, mode="reserved")


def by_device(real: dict[str, int]) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for name, size in real.items():
        number = name.removeprefix("VGPU")
        found[int(number) if number.isdigit() else HOST] += size
    return found


def wrong(name: str) -> Iterator[str]:
    model = describe(open_header(str(ZOO / "models" / f"{name}.json.gz")))
    for config, real in cells()[name]:
        made = predict(model, config)
        if made.basis != "computed":
            continue
        for number, size in by_device(real).items():
            if made.by_buffer.get(number, 0) != size:
                yield f"{number}: {made.by_buffer.get(number)}, really {size}: {config}"


@pytest.mark.parametrize("name", SAMPLE)
def test_what_is_really_reserved(name: str) -> None:
    assert cells()[name]
    assert not list(wrong(name))


def test_one_token_can_need_more_host_memory_than_a_prompt() -> None:
    """Half of the layers on the host without flash attention: each copies its whole V."""
    name = "deepseek-v2-lite-nomla"
    model = describe(open_header(str(ZOO / "models" / f"{name}.json.gz")))
    made = predict(model, {"device": "cuda", "n_gpu": 2, "ngl": 13})
    copy = 2 * 8192 * model.n_embd_v_gqa(0)
    assert made.by_buffer[HOST] == 34194080 > copy


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(cells()))
def test_every_reserved_cell(name: str) -> None:
    assert not list(wrong(name))
