"""`kvwise run` end to end with a server that fails on purpose: every failure, signal and ending.

The server is a small program that speaks llama-server's protocol (fakes.py): it stands in for
what no test machine can do on demand. The real engine is in test_run_engine.py.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from guard.fakes import SERVE, SERVE_AND_END, fake, last, starts
from guard.running import QWEN, SOON, Inside, Running, free_port, gone, post

GPU = ("--gpu", "name=card,total=6GiB,free=6GiB,kind=cuda")
TAKEN = ("-m", QWEN, "-np", "1", "-ngl", "99", "-fit", "off", *GPU)
"""A command that is taken as it stands, of a model that kvwise can account for."""
KV_OOM = [
    "0.01.000.000 E alloc_tensor_range: failed to allocate CUDA0 buffer of size 1073741824",
    (
        "0.01.000.001 E llama_init_from_model: failed to initialize the context: failed to "
        "allocate buffer for kv cache"
    ),
]


def run(program: Path, *words: str, any_port: bool = False, **options: Any) -> Running:
    """With a port of its own, because tests that run at the same time would take it from it."""
    port = () if any_port or "--port" in words else ("--port", str(free_port()))
    return Running("--engine", str(program), *port, *words, **options)


def served(program: Path, *words: str, **options: Any) -> tuple[Running, dict[str, Any]]:
    """A run that came up, and its readiness event; the caller ends it."""
    running = run(program, *words, **options)
    return running, running.until("ready")


# -- the line ---------------------------------------------------------------------------------


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


# -- output -----------------------------------------------------------------------------------


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


# -- ports ------------------------------------------------------------------------------------


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


# -- signals and endings ----------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_go_on_to_the_engine(tmp_path: Path, number: signal.Signals) -> None:
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


# -- restarts ---------------------------------------------------------------------------------


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


# -- stepping down ----------------------------------------------------------------------------


def test_it_steps_down_until_it_fits(tmp_path: Path, inside: Inside) -> None:
    program = fake(tmp_path, {"lines": KV_OOM, "exit": 1, "above": {"-c": 9000}, "soon": True})
    done = inside(program, QWEN, *GPU)
    assert done.code == 0
    steps = done.named("step")
    assert steps
    assert all(step["frees_bytes"] > 0 for step in steps)
    assert all("less on card" in step["message"] for step in steps)
    assert done.named("ready")[0]["launch"]["n_ctx"] <= 9000
    assert done.causes() == ["kv-alloc-oom"] * len(steps)


@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        ({"signal": 9}, "killed"),
        ({"signal": 11}, "crash"),
        ({"signal": 6, "lines": ["ggml.c:1: GGML_ASSERT(x) failed"]}, "crash"),
        ({"exit": 1, "lines": ["E graph_reserve: failed to allocate compute pp buffers"]},
         "compute-oom"),
        ({"exit": 1, "lines": ["E load_tensors: unable to allocate CUDA0 buffer"]}, "weights-oom"),
        ({"exit": 1, "lines": ["ggml_vulkan: vk::Queue::submit: ErrorDeviceLost"]},
         "device-lost-timeout"),
        ({"exit": 1, "lines": ["something: std::bad_alloc"]}, "out-of-memory"),
        ({"exit": 1, "lines": ["E Requested buffer size exceeds device memory allocation limit"]},
         "single-allocation-limit"),
        ({"hang": True}, "hang"),
        ({"spin": True}, "hang"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_each_failure_that_less_can_cure_is_tried_again(
    tmp_path: Path, inside: Inside, behaviour: dict[str, Any], cause: str
) -> None:
    program = fake(tmp_path, behaviour, SERVE_AND_END)
    done = inside(program, *TAKEN, "-c", "16384", "--may-change", "all", "--hang-after", "1")
    assert done.code == 0
    assert done.causes() == [cause]
    assert done.named("step")[0]["changes"]
    assert len(starts(tmp_path)) == 2


def test_a_load_that_never_ends_is_ended(tmp_path: Path, inside: Inside) -> None:
    program = fake(tmp_path, {"busy": 60}, SERVE_AND_END)
    done = inside(program, *TAKEN, "-c", "4096", "--load-timeout", "2")
    assert done.code == 0
    assert done.causes() == ["slow-start"]
    assert gone(starts(tmp_path)[0]["pid"])


def test_cache_types_that_the_engine_lacks_are_taken_back(tmp_path: Path, inside: Inside) -> None:
    lines = ["E llama_init_from_model: quantized V cache requires flash_attn to be enabled"]
    program = fake(tmp_path, {"lines": lines, "exit": 1}, SERVE_AND_END)
    done = inside(program, QWEN, *GPU)
    assert done.causes() == ["cache-types"]
    assert done.named("ready")[0]["launch"]["type_v"] == "f16"
    program = fake(tmp_path / "b", {"lines": lines, "exit": 1})
    done = inside(program, *TAKEN, "-ctk", "q8_0", "-ctv", "q8_0")
    assert done.code == 1  # what was asked for is not taken back unasked


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ("gguf_init_from_file: failed to open GGUF file 'm.gguf' (No such file)", "file-missing"),
        ("gguf_init_from_reader: invalid magic characters: 'hell', expected 'GGUF'",
         "file-corrupt"),
        ("error loading model: unknown model architecture: 'new'", "arch-unknown"),
        ("error: invalid argument: --nope", "bad-flag"),
        ("llama_model_load: error loading model: missing tensor 'blk.0.x'", "missing-tensor"),
        ("CUDA error: no kernel image is available for execution on the device",
         "wrong-kernel-build"),
    ],
)  # fmt: skip
def test_what_no_setting_can_cure_is_told_at_once(
    tmp_path: Path, inside: Inside, lines: str, cause: str
) -> None:
    done = inside(fake(tmp_path, {"lines": [lines], "exit": 1}), *TAKEN)
    assert done.code == 1
    (failed,) = done.named("failed")
    assert (failed["cause"], failed["curable"]) == (cause, False)
    assert failed["evidence"]
    assert len(starts(tmp_path)) == 1


def test_a_dead_rpc_server_is_told_at_once(tmp_path: Path, inside: Inside) -> None:
    lines = ["0.00.000.001 E Failed to connect to 127.0.0.1:1"]
    program = fake(tmp_path, {"lines": lines, "above": {"-c": 0}, "busy": 20})
    done = inside(program, "-m", "m.gguf", "-c", "4096", "--rpc", "127.0.0.1:1")
    assert done.code != 0
    assert done.causes() == ["rpc-dead"]
    assert len(starts(tmp_path)) == 1
    assert gone(starts(tmp_path)[0]["pid"])


def test_an_unknown_refusal_is_heard_twice_and_not_more(tmp_path: Path, inside: Inside) -> None:
    done = inside(fake(tmp_path, {"exit": 3}), "-m", "m.gguf")
    assert done.code == 3
    assert len(starts(tmp_path)) == 2
    assert done.causes()[-1] == "unknown"


def test_tries_are_bounded(tmp_path: Path, inside: Inside) -> None:
    done = inside(fake(tmp_path, {"lines": KV_OOM, "exit": 1}), *TAKEN, "--tries", "3")
    assert done.code == 1
    assert len(starts(tmp_path)) == 3
    assert "--tries" in done.named("gave-up")[0]["message"]


FIXED = ("-c", "16384", "-ctk", "q8_0", "-ctv", "q8_0", "-ub", "128")


def test_what_was_fixed_stays_and_is_named(tmp_path: Path, inside: Inside) -> None:
    done = inside(fake(tmp_path, {"lines": KV_OOM, "exit": 1}), *TAKEN, *FIXED)
    assert done.code == 1
    assert len(starts(tmp_path)) == 1
    said = done.named("gave-up")[0]["message"]
    assert "--may-change context" in said
    assert "-c 16384 -> " in said


def test_what_was_fixed_moves_when_it_may(tmp_path: Path, inside: Inside) -> None:
    program = fake(tmp_path, {"lines": KV_OOM, "exit": 1, "above": {"-c": 9000}, "soon": True})
    done = inside(program, *TAKEN, *FIXED, "--may-change", "context")
    assert done.code == 0
    assert done.named("ready")[0]["launch"]["n_ctx"] <= 9000
    assert all(step["knobs"] == ["context"] for step in done.named("step"))
    argv = starts(tmp_path)[-1]["argv"]
    assert last(argv, "-ub") == "128"
    assert argv.count("-c") == 2  # the user's word stays; the last one counts


def test_a_model_that_kvwise_cannot_read_is_stepped_down_too(
    tmp_path: Path, inside: Inside
) -> None:
    program = fake(tmp_path, {"lines": KV_OOM, "exit": 1}, SERVE_AND_END)
    done = inside(program, "-m", "no-such.gguf", "-c", "16384")
    assert done.code == 0
    assert done.named("step")[0]["changes"] == {"-ctk": ["f16", "q8_0"], "-ctv": ["f16", "q8_0"]}


# -- while it serves --------------------------------------------------------------------------


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
