"""A GPU's name that can mean several cards: refused in a pipe, asked on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from .conftest import QWEN, Done, Kvwise, _clean, _read_all


@pytest.mark.parametrize("command", ["size", "plan", "table", "simulate", "run"])
def test_every_command_asks_the_same_way(quick: Kvwise, command: str) -> None:
    done = quick(command, QWEN, "--gpu", "A100", *(["--dry-run"] if command == "run" else []))
    assert done.code == 2
    assert "'A100' can mean 4 GPUs" in done.err
    assert 'say which: "A100 PCIe 40GB", "A100 SXM 40GB"' in done.err
    assert len(done.err.splitlines()) == 2


def test_json_has_the_candidates(quick: Kvwise) -> None:
    done = quick("size", QWEN, "--gpu", "3080", "--json")
    assert done.code == 2
    error = json.loads(done.out)["error"]
    assert error["type"] == "Ambiguous"
    assert error["candidates"] == ["RTX 3080 10GB", "RTX 3080 12GB"]


def test_what_is_offered_is_taken(quick: Kvwise) -> None:
    error = json.loads(quick("size", QWEN, "--gpu", "RTX 5060 Ti", "--json").out)["error"]
    for name in error["candidates"]:
        assert quick("size", QWEN, "--gpu", name, "-c", "4096", "--json").code in (0, 3)


def answered(answers: str, *words: str) -> Done:
    """Both ends of the talk on a pseudo-terminal."""
    main, child = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "kvwise", *words],
        stdin=child, stdout=child, stderr=child, env={**_clean(), "TERM": "dumb", "COLUMNS": "150"},
    ) as process:  # fmt: skip
        os.close(child)
        os.write(main, answers.encode())
        text = _read_all(main)
    return Done(process.returncode, text, "")


def test_a_terminal_is_asked_and_goes_on() -> None:
    done = answered("9\n2\n", "size", QWEN, "-c", "4096", "--gpu", "3080")
    assert "'3080' can mean 2 GPUs" in done.out
    assert done.out.count("which one? (1 to 2)") == 2  # 9 is none of them
    assert "NVIDIA GeForce RTX 3080 12GB" in done.out
    assert done.code == 0


def test_each_of_several_is_asked() -> None:
    done = answered(
        "1\nrtx 5060 ti 16gb\n2\n", "size", QWEN, "-c", "4096", "--gpu", "3080",
        "--gpu=name=RTX 5060 Ti,display=no", "--gpu", "3080",
    )  # fmt: skip
    assert done.out.count("which one?") == 3
    shown = re.findall(r"^CUDA(\d) NVIDIA GeForce (RTX \d+.*GB)\s*$", done.out, re.MULTILINE)
    assert dict(shown) == {
        "0": "RTX 3080 10GB", "1": "RTX 5060 Ti 16GB", "2": "RTX 3080 12GB",
    }  # fmt: skip


def test_who_chooses_none_gets_the_error() -> None:
    done = answered("\n", "size", QWEN, "--gpu", "3080")
    assert done.code == 2
    assert "say which:" in done.out


def test_json_is_never_asked() -> None:
    done = answered("", "size", QWEN, "--gpu", "3080", "--json")
    assert done.code == 2
    assert "which one?" not in done.out
