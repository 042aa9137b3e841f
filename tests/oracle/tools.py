"""llama.cpp b10605's own tools, when they are here. `scripts/build-oracle` makes them."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from kvwise.paths import cache_dir

BUILD = "b10605"
# Looked up before any test: tests have a cache folder of their own.
_FOLDERS = (os.environ.get("KVWISE_ORACLE_BIN", ""), str(cache_dir() / "oracle" / BUILD / "bin"))
_NEEDED = ("llama-fit-params", "llama-server")


def _present() -> Path | None:
    for folder in map(Path, filter(None, _FOLDERS)):
        if all((folder / name).exists() for name in _NEEDED):
            return folder
    return None


HERE = _present()
MARKS = [] if HERE else [pytest.mark.slow]
"""Tests that would have to build the tools first are slow."""


@cache
def folder() -> Path:
    """The folder of the tools; builds them when asked to (about 10 minutes), else skips."""
    if HERE:
        return HERE
    if not os.environ.get("KVWISE_BUILD_ORACLE"):
        pytest.skip(
            "llama.cpp's tools are not here: scripts/build-oracle, or KVWISE_BUILD_ORACLE=1"
        )
    script = Path(__file__).parents[2] / "scripts" / "build-oracle"
    command = [sys.executable, str(script)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"llama.cpp's tools cannot be built here: {done.stderr[-300:]}")
    return Path(done.stdout.strip())
