"""Cores are counted as llama.cpp chooses its threads: hyper-threads of one core once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvwise.probe.cores import cores
from kvwise.probe.host import host


def _tree(root: Path, siblings: dict[int, str]) -> Path:
    for cpu, text in siblings.items():
        folder = root / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{text}\n", encoding="ascii")
    return root


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux only")
@pytest.mark.parametrize(
    ("siblings", "expected"),
    [
        ({0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, 2),
        ({0: "0", 1: "1", 2: "2", 3: "3"}, 4),
        ({}, 4),  # not said: each counts
    ],
)
def test_threads_of_one_core_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, siblings: dict[int, str], expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert cores(_tree(tmp_path, siblings)) == expected


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux only")
def test_a_process_bound_to_one_core_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert cores() == 1


def test_this_machine_has_some() -> None:
    assert 1 <= host().cores <= (os.cpu_count() or 1)
