"""How much memory of the host an engine can have had, by what was refused.

A block that the host refused, with what the load had by then, is more than there was: that holds
for every load of a log, and a plan keeps below the least of them. A limit of this very process
(`ulimit -v`, `-d`) is one that an engine started from the same shell has too. Sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvwise.device import Host
from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import HOST_RAM
from kvwise.diagnose.rules.asking import asked_bytes, failed, on_host, pool_of, taken_of
from kvwise.units import MIB

_BESIDE = 256 * MIB
"""Address space of an engine beside its buffers: libraries, stacks, the graph's own bookkeeping.
Measured as the least `ulimit -v` with which llama-server b10605 came up (Linux, processor only, two
loads of SmolLM2 135M): 190 to 240 and 228 to 267 MiB above its buffers."""


def host_of(cases: Iterable[Case], host: Host | None) -> Host | None:
    """The host with no more memory than it can have given to any of these loads.

    `host` is what somebody named; without it nothing is known but what was refused.
    """
    refused = [size for case in cases if (size := _refused(case)) is not None]
    if not refused:
        return host
    room = max(0, min(refused) - 1)
    if host is None:
        room = min(room, *_own_limits())
        return Host(room, room)
    return replace(host, available_bytes=min(host.available_bytes, room))


def _refused(case: Case) -> int | None:
    """What the load would have had on the host with the largest block that it was refused."""
    sizes = [size for each in failed(case) if (size := asked_bytes(each))]
    if not sizes or pool_of(case) != HOST_RAM:
        return None
    return max(sizes) + sum(taken_of(case, name) for name in _host_buffers(case))


def _host_buffers(case: Case) -> set[str]:
    loaded = case.loaded
    names = {name for model in loaded.models for name in model.weights}
    for context in loaded.contexts:
        names |= {name for cache in context.caches for name in cache.by_buffer}
        names |= {name for amounts in context.pending.values() for name in amounts}
    return {name for name in names if on_host(name)}


def _own_limits() -> list[int]:
    """What limits of this process leave for buffers; more than any machine has without one."""
    from kvwise.probe.host import process_limits  # noqa: PLC0415  (few logs ask for it)

    return [1 << 62, *(max(0, limit.room_bytes - _BESIDE) for limit in process_limits())]
