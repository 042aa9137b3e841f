"""Windows: a job object that ends a child, and what it started, when kvwise ends.

The job closes with the last handle to it, which the system does however this process ends.
Written from the documentation of CreateJobObject; not run on a Windows machine so far.
"""

from __future__ import annotations

import sys
from typing import Any

_EXTENDED_LIMIT_INFORMATION = 9
_KILL_ON_JOB_CLOSE = 0x2000
_LIMIT_FLAGS_AT = 16  # offset of LimitFlags in JOBOBJECT_BASIC_LIMIT_INFORMATION
_SIZE_64, _SIZE_32 = 144, 112  # of JOBOBJECT_EXTENDED_LIMIT_INFORMATION

_jobs: list[Any] = []  # handles that must stay open as long as we live


def tie(handle: int) -> bool:
    """Put the process with this handle into a job that dies with us; False if that failed."""
    if sys.platform == "win32":
        import ctypes  # noqa: PLC0415  (not needed anywhere else)

        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = ctypes.c_void_p
        job = ctypes.c_void_p(kernel.CreateJobObjectW(None, None))
        size = _SIZE_64 if ctypes.sizeof(ctypes.c_void_p) == 8 else _SIZE_32
        limits = ctypes.create_string_buffer(size)
        ctypes.c_uint32.from_buffer(limits, _LIMIT_FLAGS_AT).value = _KILL_ON_JOB_CLOSE
        done = kernel.SetInformationJobObject(job, _EXTENDED_LIMIT_INFORMATION, limits, size)
        done = done and kernel.AssignProcessToJobObject(job, ctypes.c_void_p(handle))
        _jobs.append(job)
        return bool(done)
    return False
