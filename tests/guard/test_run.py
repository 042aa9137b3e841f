"""`kvwise run` end to end: its command line, its output, its ports.

The server is a small program that speaks llama-server's protocol (fakes.py): it stands in for
what no test machine can do on demand. The real engine is in test_run_engine.py.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from guard.fakes import SERVE, fake, last, starts
from guard.running import (
    GPU,
    QWEN,
    SOON,
    free_port,
    post,
    run,
    served,
)


# -- the line ----------------------------------------------------------------------
def test_a_whole_command_is_started_as_it_stands(tmp_path: Path) -> None:
    port = free_port()
    words = ["-m", "m.gguf", "-c", "8192", "-ngl", "99", "--port", str(port), "--shiny-new", "7"]
    running, ready = served(fake(tmp_path), *words)
    with running:
        assert ready["url"] == f"http://127.0.0.1:{port}"
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    (start,) = starts(tmp_path)
    argv = start["argv"]
    assert argv[:8] == words[:8]
    assert argv[-2:] == ["--shiny-new", "7"]
    assert argv[8:-2] == ["-lv", "4"]  # the engine's memory lines; nothing else is added
    assert start["pid"] == ready["pid"]


def test_a_model_alone_is_planned_for_and_flags_may_stand_anywhere(tmp_path: Path) -> None:
    line = (QWEN, *GPU, "-ub", "256", "--", "-t", "3", "--metrics", "--api-key", "secret")
    running, ready = served(fake(tmp_path), *line)
    with running:
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    (start,) = starts(tmp_path)
    argv = start["argv"]
    assert last(argv, "-ub") == "256"
    assert argv.count("-ub") == 1
    assert last(argv, "-t") == "3"
    assert "--metrics" in argv
    assert last(argv, "-fit") == "off"
    assert int(last(argv, "-c") or 0) >= 4096
    assert int(last(argv, "-ngl") or 0) == 37
    assert "secret" in argv
    log = Path(ready["log"]).read_text()
    assert "secret" not in log
    assert not any("secret" in line for line in running.lines)


def test_variables_of_the_engine_reach_it_and_count_as_given(tmp_path: Path) -> None:
    env = {"LLAMA_ARG_CTX_SIZE": "4096", "LLAMA_API_KEY": "k"}
    running, ready = served(fake(tmp_path), QWEN, *GPU, env=env)
    with running:
        running.send(signal.SIGTERM)
        running.wait()
    (start,) = starts(tmp_path)
    assert "-c" not in start["argv"]
    assert start["env"] == env
    assert ready["launch"]["n_ctx"] == 4096


def test_counts_are_written_as_the_engine_reads_them(tmp_path: Path) -> None:
    running, _ = served(fake(tmp_path), "-m", "m.gguf", "-c", "32k")
    with running:
        running.send(signal.SIGTERM)
        running.wait()
    assert last(starts(tmp_path)[0]["argv"], "-c") == "32768"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-m", "m.gguf", "--gaol", "chat"), "does not know --gaol"),
        (("m.gguf", "--gaol", "chat"), "unknown option --gaol"),
        (("m.gguf", "-m", "other.gguf"), "one word too many"),
        ((QWEN, *GPU, "--may-change", "colour"), "--may-change"),
        ((QWEN, *GPU, "--tool", "llama-cli"), "llama-server and nothing else"),
        ((), "no model"),
    ],
)
def test_slips_of_the_pen(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    with run(fake(tmp_path), *words, json_events=False) as running:
        assert running.wait() == 2
    assert any(says in line for line in running.errors), running.errors
    assert not starts(tmp_path)


def test_what_cannot_be_met_is_said_and_not_started(tmp_path: Path) -> None:
    line = (QWEN, *GPU, "--never-offload", "-c", "400000", "-ctk", "f16", "-ctv", "f16")
    with run(fake(tmp_path), *line, json_events=False) as running:
        assert running.wait() == 3
    assert not starts(tmp_path)


def test_a_dry_run_starts_nothing(tmp_path: Path, quick: Any = None) -> None:
    program = fake(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "kvwise", "run", QWEN, *GPU, "--dry-run", "--engine", str(program)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not starts(tmp_path)
    command = next(line for line in done.stdout.splitlines() if str(program) in line)
    assert "-ngl 37" in command
    assert "step by step" in done.stdout


# -- output ----------------------------------------------------------------------
def test_the_readiness_line_is_plain_and_output_passes_through(tmp_path: Path) -> None:
    running, ready = served(fake(tmp_path), "-m", "m.gguf", json_events=False,
                            env={"KVWISE_LANG": "zh"})  # fmt: skip
    with running:
        running.send(signal.SIGINT)
        assert running.wait() == 0
    assert f"ready {ready['url']}" in running.lines
    assert "engine's own stdout" in running.lines
    assert any("server is listening on" in line for line in running.errors)
    assert not any("library talk" in line for line in running.errors)


def test_who_asks_for_verbosity_gets_every_line(tmp_path: Path) -> None:
    running, _ = served(fake(tmp_path), "-m", "m.gguf", "-lv", "4", json_events=False)
    with running:
        running.send(signal.SIGINT)
        running.wait()
    assert any("library talk" in line for line in running.errors)
    assert starts(tmp_path)[0]["argv"].count("-lv") == 1


def test_a_closed_stdout_does_not_end_the_server(tmp_path: Path) -> None:
    program, port, log = fake(tmp_path, {"then": {"exit": 7}}), free_port(), tmp_path / "log"
    words = ["-m", "m.gguf", "--port", str(port), "--engine", str(program), "--log", str(log)]
    process = subprocess.Popen(
        [sys.executable, "-m", "kvwise", "run", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stderr.close()
        while not (log.exists() and "ready: ready" in log.read_text()):
            assert process.poll() is None
            time.sleep(0.05)
        post(f"http://127.0.0.1:{port}", "/end")
        assert process.wait(SOON) == 7
    finally:
        process.kill()
        process.wait()


def test_the_log_is_kept_where_it_is_said(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "mine.log"
    running, ready = served(fake(tmp_path / "e"), "-m", "m.gguf", "--log", str(log))
    with running:
        running.send(signal.SIGINT)
        running.wait()
    assert ready["log"] == str(log)
    text = log.read_text()
    assert "library talk" in text
    assert "ended with code 0" in text


# -- ports ----------------------------------------------------------------------
def test_a_taken_port_of_the_user_is_told_before_anything_loads(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        program = fake(tmp_path)
        with run(program, "-m", "m.gguf", "--port", str(port), json_events=False) as running:
            assert running.wait() == 1
        assert any(f"port {port} is taken by" in line for line in running.errors)
    assert not starts(tmp_path)


def test_a_second_instance_finds_a_port_of_its_own(tmp_path: Path) -> None:
    first, ready = served(fake(tmp_path / "a"), "-m", "m.gguf", any_port=True)
    with first:
        second, other = served(fake(tmp_path / "b"), "-m", "m.gguf", any_port=True)
        with second:
            assert other["url"] != ready["url"]
            second.send(signal.SIGINT)
            second.wait()
        first.send(signal.SIGINT)
        first.wait()


def test_a_port_that_is_taken_at_the_last_moment(tmp_path: Path) -> None:
    taken = [
        "0.00.000.003 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 1"
    ]
    program = fake(tmp_path, {"lines": taken, "exit": 1}, SERVE)
    running, _ = served(program, "-m", "m.gguf", any_port=True)
    with running:
        running.send(signal.SIGINT)
        running.wait()
    causes = [event["cause"] for event in running.named("failed")]
    assert set(causes) == {"port-taken"}
    assert not running.named("step")
    with run(fake(tmp_path / "b", {"lines": taken, "exit": 1}), "-m", "m.gguf", "--port",
             str(free_port())) as mine:  # fmt: skip
        assert mine.wait() == 1
    assert len(starts(tmp_path / "b")) == 1
