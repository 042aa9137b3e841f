"""Small questions that several rules put to a case."""

from __future__ import annotations

import re
from collections.abc import Callable

from kvwise.diagnose.case import Case, Seen
from kvwise.diagnose.finding import HOST_RAM, UNIFIED, VRAM, Hit, Remedy, When
from kvwise.diagnose.stage import READY, STAGES, WARMUP
from kvwise.text import phrase
from kvwise.units import MIB

ALLOCATIONS = ("buffer_alloc", "device_alloc", "host_alloc")
_HOST = re.compile(r"(?:CPU\S*|\S+_Host|cpu\S*|host)\Z")
_REMOTE = re.compile(r"RPC\d*\[([^\]]{1,80})\]")
_INDEX = re.compile(r"[A-Za-z]+(\d+)\b")
_NO_FAILURE = re.compile(
    r"\blevel=(?:INFO(?!.* error=)|DEBUG|WARN)|\[(?:INFO|DEBUG|WARN(?:ING)?|info|debug|warn\w*)\]|"
    r"\b(?:DBG|DEBUG|WARN) (?!.{0,80}\bstd(?:err|out)\b)|\b(?:INFO|WARNING)(?::| - )|"
    r"^(?:Info|Debug|Warning): |[\"']level[\"']: ?[\"'](?:info|debug|warn)"
)
"""How other programs than llama.cpp mark a line that is no error."""


def remedy(text: str, *flags: str, **fields: object) -> Remedy:
    """A row's way to write a remedy."""
    return Remedy(phrase(text, **fields), flags)


def seen(*codes: str, confidence: float, where: Callable[[Seen], bool] | None = None) -> When:
    """A rule that needs only a line: any of these codes, and `where` holds.

    Of values that several lines give the first counts.
    """

    def when(case: Case) -> Hit | None:
        found = [each for each in case.all(*codes) if where is None or where(each)]
        if not found:
            return None
        fields = {name: value for each in reversed(found) for name, value in each.fields.items()}
        return Hit(confidence, tuple(found[:4]), fields)

    return when


def asked_bytes(each: Seen) -> int | None:
    """What an allocation asked for."""
    fields = each.fields
    if "bytes" in fields:
        return int(fields["bytes"])
    if "mib" in fields:
        return round(float(fields["mib"]) * MIB)
    if "mb" in fields:  # ggml_aligned_malloc prints MiB and calls them MB
        return round(float(fields["mb"]) * MIB)
    return None


def failed(case: Case) -> list[Seen]:
    """Allocations that failed, in order."""
    return case.all(*ALLOCATIONS)


def pool_of(case: Case) -> str:
    """Which memory was short, by the names of what failed."""
    for each in failed(case):
        name = each.fields.get("buffer", "")
        text = each.text
        if each.code == "host_alloc" or "backend_cpu" in text or (name and on_host(name)):
            continue
        if name.startswith(("Metal", "MTL")) or "metal" in text.lower():
            return UNIFIED
        return VRAM
    if failed(case):
        return HOST_RAM
    named = case.first("weights_alloc")
    if named and on_host(named.fields.get("buffer", "")):
        return HOST_RAM
    return VRAM


def on_host(buffer: str) -> bool:
    """Is a buffer type, by its name, memory of the host?"""
    return bool(_HOST.match(buffer))


def device_index(case: Case) -> int | None:
    """Number of the device on which an allocation failed (`CUDA1` -> 1)."""
    for each in failed(case):
        name = each.fields.get("buffer") or ""
        match = _INDEX.match(name)
        if match:
            return int(match[1])
        if "device" in each.fields:
            return int(each.fields["device"])
    return None


def device_named(case: Case) -> str | None:
    """Name of the buffer type that failed, as printed."""
    for each in failed(case):
        if each.fields.get("buffer"):
            return each.fields["buffer"]
    return None


def free_of(case: Case, name: str | None) -> int | None:
    """Bytes that the log says were free on a device before the load."""
    endpoint = _REMOTE.search(name or "")
    for device in case.loaded.devices:
        if device.name == name or (endpoint and endpoint[1] in device.description):
            return device.free.units * MIB
    for listed in case.loaded.device_list:
        if listed.name == name:
            return listed.free.units * MIB
    return None


def taken_of(case: Case, name: str) -> int:
    """Bytes that the log says the load took on a device so far."""
    loaded = case.loaded
    total = 0
    for model in loaded.models:
        if name in model.weights:
            total += model.weights[name].bytes
    for context in loaded.contexts:
        for cache in context.caches:
            if name in cache.by_buffer:
                total += cache.by_buffer[name].bytes
        for amounts in context.pending.values():
            if name in amounts:
                total += amounts[name].bytes
    return total


def at_run(each: Seen) -> bool:
    """Was the load over when the line was printed?"""
    return each.stage in (READY, WARMUP)


def speaks(case: Case, each: Seen, *, later: bool = False) -> bool:
    """May this line be blamed? One that the engine calls no error only if the load ended.

    `later` is for what is wrong with a request: that the load went well says nothing of it.
    """
    ended = case.has("crashed", "assert")
    went_on = case.complete and not ended and not later
    if ended and STAGES.index(each.stage) < STAGES.index(case.stage):
        return False  # the load was over that before it broke
    return each.level == "E" or not (went_on or no_failure(each.text))


def no_failure(text: str) -> bool:
    """Does another program mark a line as a warning, or as less?"""
    return bool(_NO_FAILURE.search(text))


def decoding(case: Case, lines: list[Seen]) -> bool:
    """Did these allocations fail while tokens were decoded, and not while a load reserved?"""
    if all(each.stage == READY for each in lines):
        return True
    return case.has("decode_memory") and not any(each.stage == WARMUP for each in lines)


def words(case: Case) -> str:
    """Command lines in the log, as one text."""
    return " ".join(each.text for each in case.all("command"))
