"""What a person sees of a run: the engine's troubles, and last of all where it serves."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from guard.fakes import SERVE, fake
from guard.running import GPU, KV_OOM, QWEN, SOON, TAKEN, free_port, served
from kvwise.engine.loaded import Loaded
from kvwise.guard.keep import Keeper
from kvwise.guard.ready import settings
from kvwise.guard.tee import Shown, Tee
from kvwise.launch import Launch
from kvwise.options import read

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
NEW = b"""0.00.000.001 I srv  load_model: loading model
0.00.000.002 D ggml: talk
 continued talk
0.00.000.003 W srv  init: no API key
 continued warning
\x1b[35m0.00.000.004 I \x1b[0mslot release: done
ggml.c:1: GGML_ASSERT(x) failed
0.00.000.005 E srv  load_model: it is over
"""
OLD = b"llama_model_loader: loaded meta data\nllm_load_tensors: .....\nerror loading model: no\n"


def passed_on(shown: Shown, *pieces: bytes) -> bytes:
    """What comes out of its stderr, and that all of it was heard."""
    out, into = os.pipe()
    heard: list[bytes] = []
    tee = Tee(Keeper(None), shown=shown, hear=heard.append, to=(-1, into))
    for piece in pieces:
        tee(2, piece)
    tee.finish()
    os.close(into)
    with os.fdopen(out, "rb") as stream:
        found = stream.read()
    assert b"\n".join(heard) + b"\n" == b"".join(pieces)
    return found


def test_all_of_it_in_pieces_of_any_size() -> None:
    pieces = [NEW[at : at + 7] for at in range(0, len(NEW), 7)]
    assert passed_on(Shown.ALL, *pieces) == NEW


def test_the_libraries_information_stays_in_the_log() -> None:
    found = passed_on(Shown.OWN, NEW)
    assert b"ggml: talk" not in found
    assert b"I srv" in found
    assert b"slot release: done" in found


@pytest.mark.parametrize("size", [1, 13, 4096])
def test_troubles_and_what_belongs_to_them(size: int) -> None:
    found = passed_on(Shown.TROUBLE, *[NEW[at : at + size] for at in range(0, len(NEW), size)])
    assert found.splitlines() == [
        b"0.00.000.003 W srv  init: no API key",
        b" continued warning",
        b"ggml.c:1: GGML_ASSERT(x) failed",
        b"0.00.000.005 E srv  load_model: it is over",
    ]


def test_an_old_build_without_levels_is_not_silenced_where_it_fails() -> None:
    assert passed_on(Shown.TROUBLE, OLD) == b"error loading model: no\n"


class Terminal:
    """`kvwise run WORDS` on a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self._mine, theirs = pty.openpty()
        env = {**os.environ, "COLUMNS": "200", "TERM": "xterm"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kvwise", "run", *words],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=env,
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def until(self, words: str) -> None:
        end = time.monotonic() + SOON
        while words not in self.text and time.monotonic() < end and self._more():
            pass
        assert words in self.text, self.text

    def end(self) -> list[str]:
        """Ctrl+C; all lines that were printed, without colours."""
        self.process.send_signal(signal.SIGINT)
        return self.lines()

    def lines(self) -> list[str]:
        """The same of a run that ends by itself."""
        while self._more():
            pass
        self.process.wait(SOON)
        os.close(self._mine)
        return [line.rstrip("\r") for line in self.text.split("\n")]

    def _more(self) -> bool:
        try:
            data = os.read(self._mine, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.text += COLOURS.sub("", data.decode("utf-8", "replace"))
        return bool(data)


def test_on_a_terminal_the_last_thing_said_is_where_it_serves(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "run.log"
    words = (QWEN, *GPU, "--port", str(port), "--log", str(log))
    terminal = Terminal("--engine", str(fake(tmp_path / "e")), *words)
    terminal.until("to stop:")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=SOON) as answer:
        assert json.load(answer)["status"] == "ok"
    said = terminal.text.rstrip().splitlines()
    assert said[-5:-1] == [
        f"ready http://127.0.0.1:{port}",
        f"kvwise: for OpenAI clients: http://127.0.0.1:{port}/v1",
        said[-3],
        f"kvwise: log: {log}",
    ]
    tokens = re.search(r"settings: 1 slot of ([\d,]+) tokens, K (\w+), V (\w+), -ub 512", said[-3])
    assert tokens
    assert said[-3].endswith("37 of 37 layers on GPUs")
    assert said[-1] == f"kvwise: to stop: Ctrl+C, or SIGTERM to process {terminal.process.pid}"
    shown = "\n".join(terminal.end())
    assert "library talk" not in shown
    assert "server is listening" not in shown
    kept = log.read_text()
    assert "library talk" in kept
    assert "server is listening" in kept


def test_show_log_shows_all_of_it(tmp_path: Path) -> None:
    words = ("-m", "m.gguf", "--port", str(free_port()), "--show-log")
    terminal = Terminal("--engine", str(fake(tmp_path)), *words)
    terminal.until("to stop:")
    assert "library talk" in terminal.text
    assert "server is listening" in terminal.text
    terminal.end()


def test_a_failure_on_a_terminal_says_its_cause_and_where_the_log_is(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    program = fake(tmp_path / "e", {"lines": KV_OOM, "exit": 1}, SERVE)
    terminal = Terminal("--engine", str(program), *TAKEN, "-c", "16384", "-ctk", "q8_0",
                        "-ctv", "q8_0", "-ub", "128", "--log", str(log))  # fmt: skip
    lines = [line for line in terminal.lines() if line]
    assert terminal.process.returncode == 1
    assert any("the KV cache does not fit" in line for line in lines)
    assert any("failed to allocate CUDA0 buffer" in line for line in lines)
    assert any("allow it with --may-change context" in line for line in lines)
    assert lines[-2:] == ["kvwise: ended with code 1", f"kvwise: log: {log}"]


def test_a_pipe_gets_the_engines_own_lines_and_the_line_for_programs(tmp_path: Path) -> None:
    running, ready = served(fake(tmp_path), "-m", "m.gguf", json_events=False)
    with running:
        running.send(signal.SIGINT)
        assert running.wait() == 0
    assert [line for line in running.lines if "ready" in line] == [f"ready {ready['url']}"]
    assert any("server is listening on" in line for line in running.errors)
    assert f"kvwise: for OpenAI clients: {ready['url']}/v1" in running.errors


def test_the_event_for_programs_has_the_same(tmp_path: Path) -> None:
    running, ready = served(fake(tmp_path), "-m", "m.gguf", "--api-prefix", "/a")
    with running:
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    assert ready["openai_url"] == f"{ready['url']}/v1"
    assert ready["url"].endswith("/a")
    assert isinstance(ready["settings"], str)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("-np 1 -c 4096", "1 slot,"),
        ("-np 4 -c 4096 -ctk q8_0", "4 slots, K q8_0, V f16"),
    ],
)
def test_what_nobody_knows_is_left_out(words: str, says: str) -> None:
    """No ledger, and an engine that printed nothing yet."""
    found = str(settings(read(words.split()).launch, Loaded(), None))
    assert found.startswith(says)
    assert "layers" not in found
    assert "-ub 512" in found


def test_settings_that_llama_cpp_fits_itself_are_no_figures_of_ours() -> None:
    assert "tokens" not in str(settings(Launch(fit=True), Loaded(), None))
