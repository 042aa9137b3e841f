"""What a terminal sees, and what a pipe must not see."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from kvwise.cli._shapes import width_of
from models import smollm2

from .conftest import QWEN, Kvwise

NOWHERE = "a card that is in no catalogue, whose name is as long as a line of a terminal"
ESCAPE = "\x1b["
SIZE = ("size", QWEN, "-c", "4096", "--gpu", "RTX 4060")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals are POSIX")


def test_a_terminal_gets_colour_and_a_pipe_does_not(kvwise: Kvwise, terminal: Kvwise) -> None:
    assert ESCAPE in terminal(*SIZE).out
    assert ESCAPE not in kvwise(*SIZE).out
    assert "\r" not in kvwise(*SIZE).out


@pytest.mark.parametrize("name", ["NO_COLOR", "TERM"])
def test_no_colour_on_request(terminal: Kvwise, name: str) -> None:
    done = terminal(*SIZE, env={name: "1" if name == "NO_COLOR" else "dumb"})
    assert "\x1b[3" not in done.out  # no colour; NO_COLOR leaves bold
    assert "fits" in done.out


def test_colour_can_be_forced_and_forbidden(kvwise: Kvwise, terminal: Kvwise) -> None:
    assert ESCAPE in kvwise(*SIZE, "--color", "always").out
    assert ESCAPE in kvwise(*SIZE, env={"FORCE_COLOR": "1"}).out
    assert "\x1b[3" not in terminal(*SIZE, "--color", "never").out
    assert "\x1b[3" not in terminal(*SIZE, "--color=never").out


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_bars_keep_to_the_width(terminal: Kvwise, columns: int) -> None:
    out = terminal(*SIZE, "--color", "never", columns=columns).out
    plain = re.sub(r"\x1b\[[\d;]*m", "", out)
    bars = [line.rstrip() for line in plain.splitlines() if "██" in line and "MiB" not in line]
    assert bars
    assert max(map(len, bars)) <= columns


def test_json_on_a_terminal_is_indented_and_plain(kvwise: Kvwise, terminal: Kvwise) -> None:
    out = terminal(*SIZE, "--json").out
    assert out.startswith("{\r\n")
    assert ESCAPE not in out
    assert len(kvwise(*SIZE, "--json").out.splitlines()) == 1


def test_plain_and_coloured_say_the_same_numbers(kvwise: Kvwise, terminal: Kvwise) -> None:
    plain = kvwise(*SIZE).out
    rich = terminal(*SIZE, columns=160).out
    assert "576.0" in plain
    assert "576.0" in rich


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    command = f"{sys.executable} -m kvwise inspect {QWEN} -v | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_a_terminal_of_an_old_code_page(kvwise: Kvwise) -> None:
    done = kvwise(*SIZE, "--lang", "zh", env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0
    assert "#" in done.out


def test_a_width_of_nothing_is_no_width(kvwise: Kvwise) -> None:
    out = kvwise(*SIZE, "--color", "always", env={"COLUMNS": "0"}).out
    assert "576.0" in out


def test_a_locale_that_cannot_be_written_is_not_taken(kvwise: Kvwise) -> None:
    chinese = {"LC_ALL": "zh_CN.UTF-8"}
    ascii_only = chinese | {"PYTHONIOENCODING": "ascii"}
    assert "放得下" in kvwise(*SIZE, env=chinese | {"PYTHONIOENCODING": "utf-8"}).out
    assert "fits" in kvwise(*SIZE, env=ascii_only).out
    assert "??" in kvwise(*SIZE, env=ascii_only | {"KVWISE_LANG": "zh"}).out


@pytest.mark.parametrize("words", [f"size {QWEN} --configs -", "tokens {model} -"])
def test_a_closed_stdin_is_said(words: str) -> None:
    words = words.format(model=smollm2()) if "{model}" in words else words
    command = f"{sys.executable} -m kvwise {words} <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "stdin is closed" in done.stderr


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_sentences_break_at_the_width_of_a_terminal(
    terminal: Kvwise, columns: int, lang: str
) -> None:
    """Head lines, notes and errors too; a command stays one line, to be copied."""
    words = ("plan", QWEN, "--gpu", "6GiB", "--ram", "32GiB", "--no-simulate", "--lang", lang)
    out = (
        terminal(*words, columns=columns).out
        + terminal("size", QWEN, "--gpu", NOWHERE, "--lang", lang, columns=columns).out
    )
    lines = re.sub(r"\x1b\[[\d;]*m", "", out).replace("\r", "").splitlines()
    long = [line for line in lines if width_of(line) > columns]
    assert [line.split()[0] for line in long] == ["llama-server"] * (columns < 80 or len(long))
    assert any(line.startswith("llama-server") and line.endswith("-fit off") for line in lines)
    assert not any(line.endswith("6Gi") for line in lines)  # between words


def test_a_pipe_gets_whole_lines(kvwise: Kvwise) -> None:
    done = kvwise("plan", QWEN, "--gpu", "6GiB", "--ram", "32GiB", env={"COLUMNS": "80"})
    head = done.out.splitlines()[:3]
    assert head[1].endswith("layers on GPUs")
    assert head[2].startswith("6GiB is only a size: ")
    assert head[2].endswith('bandwidth=272")')
    error = kvwise("size", QWEN, "--gpu", "RTX 30", env={"COLUMNS": "80"}).err
    assert len(error.splitlines()) == 2
