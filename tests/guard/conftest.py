"""`kvwise run` inside the test's own process: for runs that end by themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from guard.running import Done, Inside, free_port
from kvwise.cli._main import run as kvwise_main


@pytest.fixture
def inside(capfd: pytest.CaptureFixture[str]) -> Inside:
    """`inside(program, *words)` runs `kvwise run --json --engine PROGRAM WORDS...`."""

    def run(program: Path, *words: str) -> Done:
        line = ["--json", "--engine", str(program), "--port", str(free_port()), *words]
        code = kvwise_main(["run", *line])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Done(code, [json.loads(line) for line in out.splitlines()], err)

    return run
