"""Every way to end is told apart, with real processes; nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvwise.engine.outcome import Ending, EngineEnded, Outcome, ending_of
from kvwise.engine.process import Child, Limits, clean_environment

LAUNCHER = Path(__file__).parents[2] / "src/kvwise/engine/launcher.py"
SOON = 20.0


def child(code: str, **options: Any) -> Child:
    return Child([sys.executable, "-c", textwrap.dedent(code)], **options)


def end(code: str, **options: Any) -> Outcome:
    with child(code, **options) as process:
        outcome = process.wait(SOON)
    assert outcome is not None
    return outcome


ENDINGS = [
    ("pass", Ending.EXITED, 0),
    ("raise SystemExit(1)", Ending.REFUSED, 1),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", Ending.KILLED, -9),
    ("import ctypes; ctypes.string_at(0)", Ending.SEGMENTATION_FAULT, -11),
    ("import os; os.abort()", Ending.ABORTED, -6),
    ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", Ending.ILLEGAL_INSTRUCTION, -4),
    ("import os, signal; os.kill(os.getpid(), signal.SIGFPE)", Ending.SIGNALLED, -8),
]


@pytest.mark.parametrize(("code", "ending", "status"), ENDINGS, ids=lambda v: str(v)[:25])
def test_endings(code: str, ending: Ending, status: int) -> None:
    outcome = end(code)
    assert (outcome.ending, outcome.code) == (ending, status)
    assert str(outcome.sentence)
    assert outcome.clean == (ending is Ending.EXITED)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_child_is_heard_where_its_log_cannot_be_kept(tmp_path: Path) -> None:
    code = "import sys\nfor n in range(40000): print('line', n, file=sys.stderr)\nprint('done')"
    for log in (Path("/dev/full"), tmp_path / "nowhere" / "a.log"):
        with child(code, log=log) as process:
            outcome = process.wait(60.0)
            assert outcome is not None
            assert process.answers.get(timeout=SOON) == "done"
        assert outcome.tail[-1] == "line 39999"


def test_an_exit_after_it_was_ready_is_no_refusal() -> None:
    with child("import sys, time; sys.stdin.read(); raise SystemExit(1)") as process:
        process.mark_ready()
        process.close_input()
        outcome = process.wait(SOON)
    assert outcome is not None
    assert (outcome.ending, outcome.code, outcome.clean) == (Ending.EXITED, 1, False)


def test_no_such_program() -> None:
    with Child(["/no/such/llama-server"]) as process:
        outcome = process.wait(SOON)
    assert outcome is not None
    assert outcome.ending is Ending.CANNOT_START
    assert "No such file" in outcome.said


def test_the_shell_s_way_to_report_a_signal_is_understood() -> None:
    assert ending_of(137, ready=False) is Ending.KILLED
    assert ending_of(139, ready=True) is Ending.SEGMENTATION_FAULT
    assert ending_of(134, ready=False) is Ending.ABORTED


def test_a_kill_carries_the_end_of_the_log_and_says_memory() -> None:
    outcome = end(
        """
        import os, signal, sys
        print("llama_kv_cache:  CPU KV buffer size =  1321.88 MiB", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert outcome.tail == ("llama_kv_cache:  CPU KV buffer size =  1321.88 MiB",)
    assert "memory ran out" in str(outcome.sentence)
    assert "1321.88" in str(outcome.sentence)


def test_the_first_known_failure_explains_a_refusal() -> None:
    outcome = end(
        """
        import sys
        print("llama_init_from_model: quantized V cache requires flash_attn to be enabled\\n"
              "srv llama_server: exiting due to model loading error", file=sys.stderr)
        raise SystemExit(1)
        """
    )
    assert outcome.failures[0] == "v_quant_needs_flash_attn"
    assert "requires flash_attn" in str(EngineEnded(outcome))


def test_silence_is_a_hang() -> None:
    code = "import sys, time; print('loading', file=sys.stderr, flush=True); time.sleep(60)"
    outcome = end(code, limits=Limits(silence_s=0.5))
    assert outcome.ending is Ending.HUNG
    assert outcome.said == "loading"
    assert outcome.silence_s > 0.5


def test_a_child_that_writes_or_fills_memory_is_not_silent() -> None:
    talking = """
        import sys, time
        for _ in range(12):
            print("x", file=sys.stderr, flush=True)
            time.sleep(0.1)
        """
    growing = """
        import time
        kept = []
        for _ in range(12):
            kept.append(b"x" * (4 << 20))
            time.sleep(0.1)
        """
    for code in (talking, growing):
        assert end(code, limits=Limits(silence_s=0.6)).ending is Ending.EXITED


def test_a_quiet_server_is_not_a_hang() -> None:
    with child("import time; time.sleep(60)", limits=Limits(silence_s=0.3)) as process:
        process.mark_ready()
        assert process.wait(1.0) is None
        assert process.stop().ending is Ending.STOPPED


def test_it_is_ended_before_the_machine_runs_out() -> None:
    limits = Limits(memory_floor_bytes=100, available_bytes=lambda: 99)
    outcome = end("import time; time.sleep(60)", limits=limits)
    assert outcome.ending is Ending.LOW_MEMORY
    assert outcome.available_bytes == 99


def test_address_space_limit_and_oom_score_and_no_core_file() -> None:
    outcome = end(
        """
        import resource, sys
        print(open("/proc/self/oom_score_adj").read().strip(),
              resource.getrlimit(resource.RLIMIT_CORE)[0], file=sys.stderr)
        try:
            b"x" * (900 << 20)
        except MemoryError:
            print("refused", file=sys.stderr)
        """,
        limits=Limits(address_space_bytes=600 << 20),
    )
    assert outcome.tail == ("1000 0", "refused")


def test_the_user_s_engine_settings_do_not_reach_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_N_PARALLEL", "9")
    outcome = end(
        "import os, sys; print(sorted(k for k in os.environ if 'L' in k), file=sys.stderr)"
    )
    assert "LLAMA_ARG_N_PARALLEL" not in outcome.tail[0]
    assert clean_environment()["GGML_NO_BACKTRACE"] == "1"


def test_peak_memory_is_seen() -> None:
    outcome = end("import time; x = b'x' * (64 << 20); time.sleep(0.5)")
    assert outcome.peak_rss_bytes > 64 << 20


def test_stdout_is_for_answers_and_stderr_for_the_log(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "engine.log"
    code = """
        import sys
        print("answer")
        print("srv  init: listening on http://127.0.0.1:4711", file=sys.stderr)
        """
    with child(code, log=log) as process:
        assert process.wait(SOON)
        assert process.answers.get(timeout=1) == "answer"
        assert process.answers.get(timeout=1) is None
        assert process.loaded.listening == "http://127.0.0.1:4711"
    assert "listening" in log.read_text()


def test_wait_until_wakes_at_the_line_that_matters() -> None:
    code = """
        import sys, time
        time.sleep(0.3)
        print("srv  init: model loaded", file=sys.stderr, flush=True)
        time.sleep(60)
        """
    with child(code) as process:
        assert process.wait_until(lambda: process.loaded.ready, SOON)
        assert process.alive
        assert not process.wait_until(lambda: False, 0.1)


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    code = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", flush=True)
        while True: time.sleep(1)
        """
    with child(code) as process:
        assert process.answers.get(timeout=SOON) == "ready"
        outcome = process.stop(grace_s=0.5)
    assert (outcome.ending, outcome.code) == (Ending.STOPPED, -9)


def test_a_child_that_reads_its_stdin_ends_cleanly_when_it_closes() -> None:
    with child("import sys; sys.stdin.read()", ends_with_stdin=True) as process:
        outcome = process.stop()
    assert (outcome.ending, outcome.code, outcome.clean) == (Ending.STOPPED, 0, True)


def test_a_crash_before_stop_is_not_called_a_stop() -> None:
    with child("import os; os.abort()") as process:
        process.wait(SOON)
        assert process.stop().ending is Ending.ABORTED


GRANDCHILD = """
    import subprocess, sys, time
    inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    print(inner.pid, flush=True)
    {rest}
    """


@pytest.mark.parametrize("rest", ["time.sleep(300)", "import os; os.abort()"])
def test_what_the_child_started_ends_with_it(rest: str) -> None:
    with child(GRANDCHILD.format(rest=rest)) as process:
        pid = int(process.answers.get(timeout=SOON) or 0)
        if "sleep" in rest:
            process.kill()
        assert process.wait(SOON)
    assert gone(pid)


def gone(pid: int) -> bool:
    """Ended (a zombie that nobody reaps counts as ended)."""
    for _ in range(200):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


PARENT = """
    import sys, threading, time
    from kvwise.engine.process import Child

    def work():
        global child
        child = Child([sys.executable, "-c", "import time; time.sleep(300)"])
        print(child.pid, flush=True)

    thread = threading.Thread(target=work)   # the thread that asks ends; the child must not
    thread.start()
    thread.join()
    time.sleep(0.5)
    print("alive" if child.alive else "dead", flush=True)
    try:
        time.sleep(300)
    finally:
        {at_end}
    """


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_orphan_however_kvwise_ends(number: signal.Signals) -> None:
    at_end = "child.stop()" if number is signal.SIGINT else "pass"
    script = textwrap.dedent(PARENT.format(at_end=at_end))
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout
    with parent.stdout:
        pid = int(parent.stdout.readline())
        assert parent.stdout.readline() == "alive\n"
        assert psutil.pid_exists(pid)
        parent.send_signal(number)
        parent.wait(SOON)
    assert gone(pid)


WATCHED_PARENT = """
    import os, subprocess, sys, time
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"
    command = [sys.executable, "-c", code]
    launcher = [sys.executable, "-I", "-S", {launcher!r}, "watch", str(os.getpid()), "0", "0"]
    subprocess.Popen(launcher + command, start_new_session=True)
    time.sleep(300)
    """


def test_no_orphan_where_there_is_no_parent_death_signal() -> None:
    script = textwrap.dedent(WATCHED_PARENT.format(launcher=str(LAUNCHER)))
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    with parent.stdout:
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait(SOON)
        assert gone(pid)


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(7)", 7), ("import os; os.abort()", -6), ("pass", 0),
     ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9)],
)  # fmt: skip
def test_the_watching_launcher_passes_the_exit_status_on(code: str, status: int) -> None:
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "watch", str(os.getpid()), "0", "0"]
    done = subprocess.run([*command, sys.executable, "-c", code], check=False, timeout=SOON)
    assert done.returncode == status


def test_a_launcher_whose_parent_is_gone_already_starts_nothing() -> None:
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "become", "1", "0", "0", "echo", "no"]
    done = subprocess.run(command, check=False, capture_output=True, timeout=SOON)
    assert (done.returncode, done.stdout) == (126, b"")
