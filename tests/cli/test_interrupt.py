"""Ctrl-C never shows a traceback: not while kvwise loads, not while it works, not while it ends.

What Python itself says before the first line of kvwise runs is out of our hands.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from .conftest import QWEN

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals")

START = """
import os, signal, sys
sys.argv = ["kvwise", "size", {model!r}, "--gpu", "RTX 4060"]
at = {at!r}

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == at:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
import atexit
if at == "exit":
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
from kvwise.cli import main
main()
"""


@pytest.mark.parametrize(
    "at",
    ["kvwise.cli", "kvwise.diagnose", "kvwise.cli._main", "click", "kvwise.cli.size",
     "kvwise.memory.account", "kvwise.plan.speed", "exit"],
)  # fmt: skip
def test_an_interrupt_at_any_moment_of_the_start(at: str) -> None:
    """Sent the moment a module is looked for, so that it hits the import."""
    done = subprocess.run(
        [sys.executable, "-c", START.format(model=QWEN, at=at)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode in (-signal.SIGINT, 130), at
    assert "Traceback" not in done.stderr
    assert "KeyboardInterrupt" not in done.stderr
    assert done.stderr in ("", "error: stopped\n")
    if at in ("kvwise.cli.size", "kvwise.memory.account"):  # a command runs: it is told
        assert done.stderr == "error: stopped\n"


def test_signals_at_early_times_from_outside() -> None:
    """A traceback of Python's own start may be seen on a slow machine, none from behind the lines
    that set the signal."""
    for delay in (0.02, 0.05, 0.08, 0.12, 0.2, 0.35):
        process = subprocess.Popen(
            [sys.executable, "-m", "kvwise", "size", QWEN, "--gpu", "RTX 4060"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert set(re.findall(r"/kvwise/([^\"]+)", err)) <= {"__init__.py", "_interrupt.py"}, delay
        assert "Traceback" not in out


def test_what_ignores_ctrl_c_goes_on() -> None:
    """nohup and & of a script: the signal is ignored from the start, and stays so."""
    script = f"trap '' INT; exec {sys.executable} -m kvwise size {QWEN} --gpu 'RTX 4060'"
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert "RTX 4060" in out
    assert process.returncode in (0, 3)


def test_a_program_that_imports_kvwise_keeps_its_own_ctrl_c() -> None:
    code = "import signal, kvwise, kvwise.cli; print(signal.getsignal(signal.SIGINT).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "default_int_handler\n"
