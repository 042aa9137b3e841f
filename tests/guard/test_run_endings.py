"""`kvwise run` end to end: signals, endings, restarts, and what it tells while it serves."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from guard.fakes import SERVE, SERVE_AND_END, fake, last, starts
from guard.running import (
    GPU,
    QWEN,
    Inside,
    gone,
    post,
    run,
    served,
)


# -- signals and endings ----------------------------------------------------------------------
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_go_on_to_the_engine(tmp_path: Path, number: signal.Signals) -> None:
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("the tests were started by nohup, which has every child ignore it")
    running, ready = served(fake(tmp_path, {"stop_code": 5}), "-m", "m.gguf", "--restart")
    with running:
        running.send(number)
        expected = 128 + number if number == signal.SIGHUP else 5  # it has no handler for that one
        assert running.wait() == expected
    assert gone(ready["pid"])
    assert len(starts(tmp_path)) == 1


def test_an_interrupt_while_it_loads(tmp_path: Path) -> None:
    with run(fake(tmp_path, {"hang": True}), "-m", "m.gguf") as running:
        running.until("start")
        while not starts(tmp_path):
            pass
        running.send(signal.SIGINT)
        assert running.wait() == 130
    assert gone(starts(tmp_path)[0]["pid"])


def test_the_second_interrupt_ends_a_stubborn_engine_at_once(tmp_path: Path) -> None:
    running, ready = served(fake(tmp_path, {"stubborn": True}), "-m", "m.gguf")
    with running:
        running.send(signal.SIGINT)
        assert not gone(ready["pid"], 1.0)
        running.send(signal.SIGINT)
        assert running.wait() == 128 + 9
    assert gone(ready["pid"])


def test_nohup_stays_nohup(tmp_path: Path) -> None:
    running, ready = served(fake(tmp_path), "-m", "m.gguf", before="trap '' HUP")
    with running:
        running.send(signal.SIGHUP)
        assert not gone(ready["pid"], 1.0)
        running.send(signal.SIGTERM)
        assert running.wait() == 0


def test_an_interrupt_reaches_a_job_in_the_background_of_a_script(tmp_path: Path) -> None:
    """A shell lets such jobs ignore SIGINT; llama-server hears it all the same."""
    running, _ = served(fake(tmp_path), "-m", "m.gguf", before="trap '' INT")
    with running:
        running.send(signal.SIGINT)
        assert running.wait() == 0


def test_no_orphan_when_kvwise_is_killed(tmp_path: Path) -> None:
    for behaviour in (SERVE, {"hang": True}):
        folder = tmp_path / str(len(behaviour))
        with run(fake(folder, behaviour), "-m", "m.gguf") as running:
            running.until("start")
            while not starts(folder):
                pass
            running.process.kill()
        assert gone(starts(folder)[0]["pid"])


@pytest.mark.parametrize(
    ("then", "code", "cause"),
    [
        ({"exit": 7}, 7, "ended"),
        ({"signal": 9}, 137, "killed"),
        ({"signal": 11}, 139, "crash"),
        ({"lines": ["0.09.000.000 E ggml_vulkan: device lost on Vulkan0"], "signal": 6}, 134,
         "device-lost-timeout"),
        ({"lines": ["CUDA error: out of memory"], "signal": 6}, 134, "out-of-memory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_death_while_it_serves_is_told_and_its_code_passed_on(
    tmp_path: Path, inside: Inside, then: dict[str, Any], code: int, cause: str
) -> None:
    done = inside(fake(tmp_path, {"soon": True, "then": then}), "-m", "m.gguf")
    assert done.code == code
    assert done.causes("died") == [cause]
    assert done.named("ended")[0]["code"] == code
    assert len(starts(tmp_path)) == 1


def test_an_end_with_0_is_no_death(tmp_path: Path, inside: Inside) -> None:
    done = inside(fake(tmp_path, SERVE_AND_END), "-m", "m.gguf", "--restart")
    assert done.code == 0
    assert not done.named("died")


def test_a_question_to_the_engine_is_answered(tmp_path: Path, inside: Inside) -> None:
    done = inside(fake(tmp_path), "-m", "m.gguf", "--", "--version")
    assert done.code == 0
    assert "build 10605" in done.err


# -- restarts ----------------------------------------------------------------------
def test_restart_on_the_same_port_a_bounded_number_of_times(tmp_path: Path) -> None:
    running, ready = served(fake(tmp_path, {"then": {"signal": 11}}), "-m", "m.gguf",
                            "--restart", "2")  # fmt: skip
    with running:
        for _ in range(2):
            post(ready["url"], "/end")
            again = running.until("ready")
            assert again["url"] == ready["url"]
        post(ready["url"], "/end")
        assert running.wait() == 139
    pauses = [event["in_seconds"] for event in running.named("restart")]
    assert pauses == sorted(pauses)
    assert len(pauses) == 2
    assert "--restart" in running.named("gave-up")[0]["message"]


def test_memory_that_runs_out_while_serving_restarts_smaller(tmp_path: Path) -> None:
    program = fake(tmp_path, {"then": {"signal": 9}}, SERVE)
    running, ready = served(program, QWEN, *GPU, "--restart", "1")
    with running:
        post(ready["url"], "/end")
        running.until("ready")
        running.send(signal.SIGTERM)
        running.wait()
    assert running.named("step")[0]["cause"] == "killed"
    before, after = (int(last(start["argv"], "-c") or 0) for start in starts(tmp_path))
    assert after < before or last(starts(tmp_path)[1]["argv"], "-ctk") != "f16"


def test_an_interrupt_between_two_restarts(tmp_path: Path) -> None:
    program = fake(tmp_path, {"then": {"signal": 11}})
    running, ready = served(program, "-m", "m.gguf", "--restart")
    with running:
        post(ready["url"], "/end")
        running.until("restart")
        running.send(signal.SIGINT)
        assert running.wait() == 130
    assert len(starts(tmp_path)) == 1


def test_a_server_that_stops_answering_is_ended_and_restarted(tmp_path: Path) -> None:
    program = fake(tmp_path, {"deaf": True}, SERVE)
    running, ready = served(program, "-m", "m.gguf", "--restart", "1", "--hang-after", "8")
    with running:
        post(ready["url"], "/end")
        running.until("unhealthy", 60)
        running.until("ready")
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    assert running.named("died")[0]["cause"] == "unhealthy"


# -- while it serves ----------------------------------------------------------------------
def test_requests_that_go_wrong_are_told_and_not_endlessly(tmp_path: Path) -> None:
    says = [
        "E srv send_error: request (1500 tokens) exceeds the available context size (1024 tokens)",
        "1.0 I slot release: id 0 | stop processing: n_tokens = 1023, truncated = 1",
    ]
    running, ready = served(fake(tmp_path, {"says": says}), "-m", "m.gguf")
    with running:
        for _ in range(20):
            post(ready["url"], "/say")
        running.until("request")
        running.send(signal.SIGTERM)
        running.wait()
    told = running.named("request")
    kinds = [event["kind"] for event in told]
    assert kinds.count("refused") == kinds.count("truncated") == 3
    assert "1500" in next(event["message"] for event in told if event["kind"] == "refused")


def test_the_environment_of_the_test_is_clean() -> None:
    assert not any(name.startswith("LLAMA_ARG_") for name in os.environ)


@pytest.mark.parametrize("place", ["folder", "/dev/full"])
def test_a_log_that_cannot_be_written_is_said_and_the_server_serves(
    tmp_path: Path, place: str
) -> None:
    if place == "folder":
        place = str(tmp_path)
    elif not Path(place).exists():
        pytest.skip("this system has no /dev/full")
    running, ready = served(fake(tmp_path / "e"), "-m", "m.gguf", "--log", place)
    with running:
        assert ready["log"] is None
        running.send(signal.SIGTERM)
        assert running.wait() == 0
    (note,) = running.named("note")
    assert note["path"] == place
    assert note["reason"]
