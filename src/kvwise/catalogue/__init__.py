"""Devices by name: the catalogue of GPUs and what each leaves free at start.

`device(text)` is behind `Device.of`. Nothing here looks at this machine, except for the name of
its operating system when none is given.
"""

from __future__ import annotations

from kvwise.catalogue.gpus import Gpu, gpus
from kvwise.catalogue.names import exactly, find, named, of_driver, of_size
from kvwise.catalogue.offline import device_of, running_os, total_mib
from kvwise.catalogue.start import STARTS, Start, context_bytes
from kvwise.catalogue.typical import Typical, typical

__all__ = [
    "STARTS",
    "Gpu",
    "Start",
    "Typical",
    "context_bytes",
    "device_of",
    "exactly",
    "find",
    "gpus",
    "named",
    "of_driver",
    "of_size",
    "running_os",
    "total_mib",
    "typical",
]
