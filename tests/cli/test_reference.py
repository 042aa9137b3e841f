"""The reference pages are the commands' own help of today, in both languages."""

from __future__ import annotations

import subprocess
import sys

from .conftest import ROOT


def test_the_pages_are_current() -> None:
    script = str(ROOT / "scripts/reference.py")
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0
