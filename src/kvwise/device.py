"""A device: what the engine can put bytes on."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

from kvwise.errors import UsageError
from kvwise.text import Phrase, phrase
from kvwise.units import MIB, parse_size

KINDS = ("cuda", "vulkan", "hip", "metal", "rpc", "generic")
_KEYS = ("name", "total", "free", "kind", "reserve", "block", "bandwidth", "cc", "sm", "unified",
         "os", "backend", "display")  # fmt: skip
_FROM_CATALOGUE = ("os", "backend", "display")


_LESS = re.compile(r"\s*-\s*\d")
"""A size below nothing; a GPU's name begins otherwise."""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, here or only imagined. Sizes in bytes; `free_bytes` is before the model is loaded.

    `kind` picks the allocation rules (`generic` accepts everything: RPC-like, see zoo/README.md).
    `reserve_bytes` is kept free by the planner. `max_block_bytes` is the largest single block that
    can be had, if that was measured (`kvwise probe`) or given; `pieces` are the blocks of a card
    whose memory was found in pieces, largest first (empty = in one piece, or not known). `note`
    says what was assumed about a name that several cards bear.
    """

    name: str
    kind: str = "generic"
    total_bytes: int = 0
    free_bytes: int = 0
    index: int = 0
    bandwidth_bytes_per_s: int | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
    reserve_bytes: int | None = None
    unified: bool = False
    source: str = ""
    max_block_bytes: int | None = None
    system: str = ""  # linux, windows, macos; empty = unknown
    overhead_bytes: int | None = None  # what the driver was measured to take beside the buffers
    reserve_reason: Phrase | None = field(default=None, compare=False)
    pieces: tuple[int, ...] = ()
    note: Phrase | None = field(default=None, compare=False)
    overhead_reason: Phrase | None = field(default=None, compare=False)

    @classmethod
    def of(cls, text: str, *, os: str | None = None, index: int = 0) -> Device:
        """A device from words: a name of the catalogue, a size, or `key=value` pairs.

        `RTX 4060`; `6GiB` (kind generic, all of it free);
        `name=A,total=6144MiB,free=5900MiB,kind=cuda`, whose keys are name, total, free, kind,
        reserve, block, bandwidth (GB/s), cc, sm, unified, and for a name of the catalogue os,
        backend, display. A name and a total that fits it, without free and kind, is the card of
        that name and size. `os` (linux, windows, macos) decides what a catalogue GPU has free; the
        running one if None. Raises UsageError.
        """
        from kvwise.catalogue import device_of, find, named  # noqa: PLC0415  (a door upward)

        if "=" in text:
            return replace(_from_pairs(text, os), index=index)
        if _LESS.match(text):
            raise UsageError("{text!r} is no memory at all", text=text)
        size = None if named(text) else _size(text)
        if size is not None:
            return _generic(text.strip(), size, index)
        known = find(text)
        return device_of(known, os=os, index=index)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine's own memory: total, available, and the limit that binds (cgroup, rlimit).

    `bandwidth_bytes_per_s` None and `cores` 0 mean that nobody said.
    """

    total_bytes: int = 0
    available_bytes: int = 0
    limit_bytes: int | None = None
    cpu_features: tuple[str, ...] = ()  # as Linux names them (`avx2`); empty = unknown
    bandwidth_bytes_per_s: int | None = None
    cores: int = 0
    counts_mapped: bool = False  # the limit is one on addresses: mapped files count

    @classmethod
    def of(cls, text: str) -> Host:
        """`32GiB` (all of it available), or `total=32GiB,available=20GiB,limit=16GiB`, with
        `bandwidth=60GB/s,cores=8` for the speed of what stays there.

        Raises UsageError.
        """
        if "=" not in text:
            size = _positive(parse_size(text), text)
            return cls(size, size)
        pairs = _pairs(text, ("total", "available", "limit", "bandwidth", "cores"))
        if "total" not in pairs:
            raise UsageError("{text!r} says no total", text=text)
        total = _positive(parse_size(pairs["total"]), text)
        available = parse_size(pairs["available"]) if "available" in pairs else total
        if available > total:
            raise UsageError("{text!r} has more available than there is", text=text)
        return cls(
            total,
            available,
            parse_size(pairs["limit"]) if "limit" in pairs else None,
            bandwidth_bytes_per_s=_bandwidth(pairs["bandwidth"]) if "bandwidth" in pairs else None,
            cores=_whole(pairs["cores"]) if "cores" in pairs else 0,
        )

    @property
    def usable_bytes(self) -> int:
        """What a process may take: available, or the limit if that is less."""
        if self.limit_bytes is None:
            return self.available_bytes
        return min(self.available_bytes, self.limit_bytes)


def _size(text: str) -> int | None:
    """Bytes, or None if the text is no size. A bare number below 1 MiB is a model number."""
    try:
        size = parse_size(text)
    except UsageError:
        return None
    if text.strip().isdigit() and size < MIB:
        return None
    return _positive(size, text)


def _positive(size: int, text: str) -> int:
    if size <= 0:
        raise UsageError("{text!r} is no memory at all", text=text)
    return size


def _generic(name: str, size: int, index: int = 0) -> Device:
    """Nothing but a size: what no card is, so it says what is missing."""
    note = phrase(
        "{name} is only a size: all of it counts as free, nothing is kept for a driver, and no "
        'speed is known; name the card ("RTX 4060") or say more ("name=A,total={name},kind=cuda,'
        'reserve=192MiB,bandwidth=272")',
        name=name,
    )
    return Device(name, "generic", size, size, index, source="given", note=note)


def _pairs(text: str, keys: tuple[str, ...]) -> dict[str, str]:
    """`a=1,b=2`; a part without `=` belongs to the value before it (names have commas)."""
    pairs: dict[str, str] = {}
    last = ""
    for part in text.split(","):
        key, equals, value = part.partition("=")
        key = key.strip().lower()
        if equals and key in keys:
            if key in pairs:
                raise UsageError("{key} is given twice in {text!r}", key=key, text=text)
            pairs[key], last = value.strip(), key
        elif equals or not last:
            raise UsageError(
                "{key!r} is not one of {keys}", key=key, keys=", ".join(keys), text=text
            )
        else:
            pairs[last] += "," + part
    return pairs


def _from_pairs(text: str, os: str | None) -> Device:
    pairs = _pairs(text, _KEYS)
    device = _named(pairs, text, os)
    changes: dict[str, Any] = {}
    for key, name in (
        ("total", "total_bytes"),
        ("free", "free_bytes"),
        ("reserve", "reserve_bytes"),
        ("block", "max_block_bytes"),
    ):
        if key in pairs:
            changes[name] = parse_size(pairs[key])
    if "kind" in pairs:
        changes["kind"] = _kind(pairs["kind"])
    if "bandwidth" in pairs:
        changes["bandwidth_bytes_per_s"] = _bandwidth(pairs["bandwidth"])
    if "cc" in pairs:
        changes["compute_capability"] = _capability(pairs["cc"])
    if "sm" in pairs:
        changes["sm_count"] = _whole(pairs["sm"])
    if "unified" in pairs:
        changes["unified"] = _yes(pairs["unified"])
    if "total" in pairs and "free" not in pairs:
        changes["free_bytes"] = changes["total_bytes"]
    device = replace(device, **changes)
    _positive(device.total_bytes, text)
    if device.free_bytes > device.total_bytes:
        raise UsageError("{text!r} has more free than there is", text=text)
    return device


def _named(pairs: dict[str, str], text: str, os: str | None) -> Device:
    """The device that the pairs start from: a name of the catalogue, or nothing but a name.

    A total that only says which card of that name is meant is taken out of the pairs.
    """
    from kvwise.catalogue import device_of, find, of_size  # noqa: PLC0415  (a door upward)

    gpu = None
    if {"name", "total"} <= pairs.keys() and not {"free", "kind"} & pairs.keys():
        gpu = of_size(pairs["name"], parse_size(pairs["total"]))
    if gpu is not None:
        del pairs["total"]
    elif "total" in pairs:
        extra = [key for key in _FROM_CATALOGUE if key in pairs]
        if extra:
            raise UsageError(
                "{key} is for names of the catalogue; {text!r} gives a total",
                key=extra[0], text=text,
            )  # fmt: skip
        return Device(pairs.get("name") or "GPU", source="given")
    elif "name" not in pairs:
        raise UsageError("{text!r} says neither a total nor a name", text=text)
    display = _yes(pairs["display"]) if "display" in pairs else None
    backend = pairs.get("backend") or pairs.get("kind")
    gpu = gpu or find(pairs["name"])
    if backend not in gpu.backends and "backend" not in pairs:
        backend = None
    return device_of(gpu, os=pairs.get("os", os), backend=backend, display=display)


def _kind(text: str) -> str:
    if text not in KINDS:
        raise UsageError("{text!r} is not one of {kinds}", text=text, kinds=", ".join(KINDS))
    return text


def _yes(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise UsageError("{text!r} is neither yes nor no", text=text)


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise UsageError("{text!r} is not a whole number", text=text)
    return int(text)


def _capability(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,2}\.[0-9]", text):
        raise UsageError("{text!r} is not a compute capability", text=text, hint="like 8.9")
    return text


def _bandwidth(text: str) -> int:
    """Bytes per second out of GB/s (10^9, as vendors print)."""
    number = text.lower().removesuffix("gb/s").strip()
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not 0 < value < 10**9:
        raise UsageError("{text!r} is not a bandwidth in GB/s", text=text)
    return round(value * 10**9)
