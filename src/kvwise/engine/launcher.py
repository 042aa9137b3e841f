"""A few lines that stand between kvwise and an engine; run as a script, not imported.

    python -I -S launcher.py become|watch PARENT_PID OOM_SCORE ADDRESS_SPACE PROGRAM [ARGUMENTS...]

It makes the process that it becomes die with kvwise, be the first to go when the machine runs out
of memory (the kernel follows oom_score_adj, not size), leave no core file and keep its limits.
Done here, after the fork, because `preexec_fn` is unsafe in a program with threads.
PR_SET_PDEATHSIG is sent when the *thread* that started us ends, so `process.py` starts every
child from one thread that lives as long as kvwise. Where there is no such signal (macOS), the
launcher stays (`watch`), looks after its parent, and passes the exit status on.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
CANNOT_START = 126
"""Exit code when PROGRAM cannot be run (127 when it is not there), as in a shell."""


def main(arguments: list[str]) -> None:
    """Set up and become PROGRAM; returns only through `os._exit`."""
    mode, numbers, command = arguments[0], arguments[1:4], arguments[4:]
    parent, oom_score, address_space = (int(text) for text in numbers)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stays = mode == "watch" or not sys.platform.startswith("linux")
    if not stays:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(CANNOT_START)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write(str(oom_score))
    if stays:
        _watch(parent, command, address_space)
    _become(command, address_space)


def _become(command: list[str], address_space: int) -> None:
    try:
        if address_space:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        os.execvp(command[0], command)  # noqa: S606 (this is what it is for)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(CANNOT_START + isinstance(error, FileNotFoundError))


def _watch(parent: int, command: list[str], address_space: int) -> None:
    """Run PROGRAM as a child and end the whole group when `parent` is gone."""
    child = os.fork()
    if not child:
        _become(command, address_space)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _frame: os.kill(child, got))
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _end_like(status)
        if os.getppid() != parent:
            os.killpg(0, signal.SIGKILL)
        time.sleep(0.1)


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError):  # SIGKILL has no handler to take back
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(sys.argv[1:])
