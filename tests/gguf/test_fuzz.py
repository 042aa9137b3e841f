"""The fuzz target itself runs: a few thousand executions of each kind, without atheris."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "fuzz" / "fuzz_reader.py"


@pytest.mark.parametrize("target", ["header", "zoo"])
def test_damaged_input_never_escapes(target: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--plain", "--runs", "2000", "--target", target],
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "2,000 executions clean" in done.stdout
