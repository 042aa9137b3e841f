"""What Ctrl-C does while the program `kvwise` loads and ends: stop it, and print nothing.

Between the two an interrupt is an error like any other, which `cli/_main.py` words. A program that
only imports kvwise is left alone.
"""

# the module behind `signal`: built in, while loading that one takes long enough to be interrupted
import _signal as signal  # type: ignore[import-not-found]
import sys

_PROGRAM = {"kvwise", "kvwise.exe", "kvwise-script.py"}


def is_program() -> bool:
    """Whether this process is `kvwise` or `python -m kvwise`, and not another that imports it."""
    name = next(iter(getattr(sys, "argv", [])), "")
    if name == "-m":  # while Python still looks for the module
        words = sys.orig_argv
        return "-m" in words and words[words.index("-m") + 1 :][:1] == ["kvwise"]
    folder, _, file = name.replace("\\", "/").rpartition("/")
    return file in _PROGRAM or (file == "__main__.py" and folder.endswith("/kvwise"))


def at_once() -> None:
    """Ctrl-C ends the process; where it is ignored (nohup, &) it stays ignored."""
    if is_program() and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def as_error() -> None:
    """Ctrl-C raises KeyboardInterrupt again."""
    if is_program() and signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
