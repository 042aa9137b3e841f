"""Room in estimates for what a near graph leaves out."""

from __future__ import annotations

from typing import Any

import pytest
from built import job_for
from test_unproven import model_like

from kvwise.memory.compute.builder import Batch
from kvwise.memory.compute.room import ALIVE, SMALL, for_streams, for_unused

CONFIG = {"n_ctx": 4096, "n_ubatch": 256, "n_batch": 512, "n_gpu": 2, "tensor_split": [1, 1]}
SIZE = Batch(256, 1, 256)
EXTRA = {
    "blk.{i}.novel.weight": [256, 128],
    "blk.{i}.post_novel_norm.weight": [64],
    "blk.{i}.novel_norm.weight": [32],
    "novel_table.weight": [16, 5000],
    "novel_norm.weight": [48],
}


def room(names: list[str], **changed: Any) -> list[int]:
    """Elements per token on each backend."""
    work = job_for(model_like("llama", "llama", weights=EXTRA), {**CONFIG, **changed})
    assert set(names) <= set(work.weights.where)
    return [size // (4 * SIZE.n_tokens) for size in for_unused(work, names, SIZE)]


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("novel.weight", 128 * ALIVE),
        ("novel_norm.weight", 32 * ALIVE),
        ("post_novel_norm.weight", 64),
    ],
)
def test_results_stand_where_their_weights_lie(name: str, width: int) -> None:
    assert room([f"blk.0.{name}"]) == [width, 0, 0]
    assert room([f"blk.5.{name}"]) == [0, width, 0]
    assert room([f"blk.0.{name}", f"blk.1.{name}", f"blk.5.{name}"]) == [width, width, 0]


def test_the_first_gpu_may_take_work_over_from_the_host() -> None:
    assert room(["blk.0.novel.weight"], ngl=2) == [128 * ALIVE, 0, 128 * ALIVE]


def test_a_norm_of_no_layer_is_no_table() -> None:
    work = job_for(model_like("llama", "llama", weights=EXTRA), CONFIG)
    where = work.weights.where["novel_norm.weight"]
    wanted = [48 * ALIVE * (n == where or (where < 0 and n in {0, 2})) for n in range(3)]
    assert room(["novel_norm.weight"]) == wanted


def test_tables_are_handed_to_all() -> None:
    assert room(["novel_table.weight"]) == [16 * ALIVE] * 3


def test_streams_are_added_as_far_as_the_figure_stays_close() -> None:
    work = job_for(model_like("llama", "llama"), CONFIG)
    whole = 2 * work.model.n_embd * 4
    assert for_streams(work, Batch(1, 1, 1), 1 << 20) == whole
    assert for_streams(work, Batch(1 << 14, 1, 1), 1 << 20) == SMALL
    assert for_streams(work, Batch(1 << 14, 1, 1), 1 << 30) == (1 << 30) * 15 // 1000
