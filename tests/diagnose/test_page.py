"""docs/doctor.md says what the rules say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_rules_is_current() -> None:
    script = str(ROOT / "scripts/doctor.py")
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0
