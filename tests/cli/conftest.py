"""Running kvwise as a user does: as a process, in a pipe or on a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "tests/zoo/models"
QWEN = str(ZOO / "qwen3-8b.json.gz")


@dataclass(frozen=True)
class Done:
    """What a run printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Kvwise = Callable[..., Done]


@pytest.fixture
def kvwise() -> Kvwise:
    """Run `kvwise WORDS...` in a pipe; `env` adds variables, `stdin` is text."""

    def run(*words: str, env: dict[str, str] | None = None, stdin: str = "") -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "kvwise", *words],
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**_clean(), **(env or {})},
            check=False,
        )
        assert "Traceback" not in done.stderr + done.stdout
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def quick(capsys: pytest.CaptureFixture[str]) -> Kvwise:
    """The same inside this process: for many runs."""

    def run(*words: str) -> Done:
        from kvwise.cli._main import run as kvwise_main

        code = kvwise_main(words)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def terminal() -> Kvwise:
    """Run on a pseudo-terminal, `columns` wide; `out` holds both streams."""

    def run(*words: str, env: dict[str, str] | None = None, columns: int = 100) -> Done:
        import pty

        main, child = pty.openpty()
        settings = {"TERM": "xterm-256color", "COLUMNS": str(columns), **(env or {})}
        with subprocess.Popen(
            [sys.executable, "-m", "kvwise", *words],
            stdin=child,
            stdout=child,
            stderr=child,
            env={**_clean(), **settings},
        ) as process:
            os.close(child)
            text = _read_all(main)
        return Done(process.returncode, text, "")

    return run


def _read_all(descriptor: int) -> str:
    pieces = []
    try:
        while piece := os.read(descriptor, 65536):
            pieces.append(piece)
    except OSError:  # Linux ends a terminal with EIO
        pass
    finally:
        os.close(descriptor)
    return b"".join(pieces).decode("utf-8")


def _clean() -> dict[str, str]:
    """The environment without what steers the output."""
    dropped = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LC_ALL", "LC_MESSAGES", "LANG", "KVWISE_LANG"}
    return {name: value for name, value in os.environ.items() if name not in dropped}
