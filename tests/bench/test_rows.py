"""What llama-bench writes, when it is not llama-bench that writes."""

from __future__ import annotations

import json

import pytest

from kvwise.engine.bench import _rows

GOOD = {"n_prompt": 16, "n_gen": 0, "samples_ts": [80.0, 81.0], "samples_ns": [2e8, 1.9e8]}


def line(**other: object) -> str:
    return json.dumps(GOOD | other)


def test_a_row_of_llama_bench_is_read() -> None:
    (row,) = _rows([line()], [(1.0, 2.0)])
    assert (row.n_prompt, row.rates, row.window) == (16, (80.0, 81.0), (1.0, 2.0))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000, "[]", "7", '"x"', "{}", "{[}", "\x00\ufffd",
        line(samples_ts=[float("inf"), 1.0]), line(samples_ts=[float("nan"), 1.0]),
        line(samples_ts=[-1.0, 1.0]), line(samples_ts=[0.0, 1.0]), line(samples_ts=None),
        line(samples_ns=[1e9]), line(samples_ns=[float("inf"), 1e9]), line(n_prompt=float("inf")),
        line(n_prompt=None),
    ],
)  # fmt: skip
def test_anything_else_is_no_row(text: str) -> None:
    assert [row.n_prompt for row in _rows([text, line()], [])] == [16]
