"""`kvwise run` inside the test's own process: for runs that end by themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from guard.running import Done, Inside
from kvwise.cli._main import run as kvwise_main


@pytest.fixture
def inside(capfd: pytest.CaptureFixture[str]) -> Inside:
    """`inside(program, *words)` runs `kvwise run --json --engine PROGRAM WORDS...`."""

    def run(program: Path, *words: str) -> Done:
        code = kvwise_main(["run", "--json", "--engine", str(program), *words])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Done(code, [json.loads(line) for line in out.splitlines()], err)

    return run
