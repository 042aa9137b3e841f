"""Every cache of every golden configuration, to the byte."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cache_setup as setup

from kvwise.memory.cache import caches


@pytest.mark.parametrize("name", setup.golden_names())
def test_caches_are_those_of_the_engine(name: str) -> None:
    model = setup.zoo_model(name)
    measured = setup.golden(name)
    for entry in measured["results"]:
        result = entry["result"]
        if not result["ok"]:
            continue
        config: dict[str, Any] = {**measured["defaults"], **entry["config"]}
        context = setup.resolved(model, config, result)
        placement = setup.placed(model, config, result)
        assert (model.n_layer, model.n_layer_all) == (result["n_layer"], result["n_layer_all"])
        devices = [setup.gpu(config["device"])] * placement.n_gpu
        made = caches(model, context, placement, devices)
        wanted = [
            {key: value for key, value in row.items() if key != "by_buffer"}
            | {"layers": setup.layer_list(row["layers"])}
            for row in result["caches"]
        ]
        assert [setup.as_golden(cache) for cache in made] == wanted, entry["config"]
        total: Counter[str] = Counter()
        for cache in made:
            for device, size in cache.by_device.items():
                total[setup.buffer_name(device)] += size
        buffers = {row["buffer"]: row["context"] for row in result["buffers"] if row["context"]}
        assert total == buffers, entry["config"]
        for cache, row in zip(made, result["caches"], strict=True):
            where = {setup.buffer_name(device) for device in cache.by_device}
            assert where == set(row.get("by_buffer", where)), entry["config"]
            assert cache.reason is not None


def test_all_golden_files_are_seen() -> None:
    counted = sum(len(setup.golden(name)["results"]) for name in setup.golden_names())
    assert counted == 10_177
