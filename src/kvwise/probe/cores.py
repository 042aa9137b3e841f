"""The processor's cores that a process started here may use."""

from __future__ import annotations

import os
from pathlib import Path


def cores(root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Hyper-threads of one core counted once, as llama.cpp chooses its threads; 0 = unknown."""
    try:
        usable = os.sched_getaffinity(0)
    except AttributeError:  # not on Linux
        return os.cpu_count() or 0
    siblings = set()
    for cpu in usable:
        path = root / f"cpu{cpu}/topology/thread_siblings_list"
        try:
            siblings.add(path.read_text(encoding="ascii").strip())
        except OSError:
            siblings.add(str(cpu))
    return len(siblings)
