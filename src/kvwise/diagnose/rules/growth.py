"""What grows after a successful load, and what was not free at its start."""

from __future__ import annotations

import re

from kvwise.diagnose.case import Case, Seen
from kvwise.diagnose.finding import (
    FAIR,
    HOST_RAM,
    LIKELY,
    POSSIBLE,
    SURE,
    VRAM,
    Hit,
    Rule,
)
from kvwise.diagnose.rules.asking import at_run, decoding, failed, remedy, words
from kvwise.diagnose.rules.remedies import (
    FEWER_CHECKPOINTS,
    RAISE_LIMIT,
    SHORTER_STILL,
)
from kvwise.diagnose.stage import READY, START
from kvwise.text import template

_LATE = ("gpu_oom", "vk_oom", "device_alloc", "compute_alloc", "buffer_alloc")
_OF = re.compile(r"context checkpoint \d{1,6} of (\d{1,6})\b", re.ASCII)
_NOTABLE_MIB = 256
"""A prompt cache below this size is no trouble, whatever its limit."""
_MANY_MIB = 2048
"""A prompt cache of this size is worth telling to someone whose memory fills."""


def _late(case: Case) -> list[Seen]:
    """Lines of a failed allocation that came after the load, or whose place nobody knows."""
    lines = []
    sized = case.has("device_alloc", "weights_alloc")  # a load asks for buffers of a known size
    for each in case.all(*_LATE):
        unknown = each.stage == START and each.code in ("gpu_oom", "vk_oom") and not sized
        bare = each.code == "gpu_oom" and not failed(case)
        if at_run(each) or unknown or bare or decoding(case, [each]):
            lines.append(each)
    return lines


def _beside(case: Case, what: str) -> bool:
    told = words(case) + " ".join(each.text for each in case.all("gpu_oom", "vk_oom"))
    if what == "mtp":
        return "mtp" in case.beside or case.has("mtp", "mtp_context") or "draft-mtp" in told
    return "clip" in case.beside or bool(case.loaded.projector) or "--mmproj" in told


def _refused_to(case: Case, code: str) -> list[Seen]:
    """Allocations that failed before the line that says for whom it was; () if nobody says so."""
    said = case.first(code)
    lines = [each for each in case.all(*_LATE, "kv_alloc") if said and each.line <= said.line]
    return [*lines, said] if lines and said else []


def _mtp(case: Case) -> Hit | None:
    """Memory ran out for the draft that the model carries in itself, after the main part fitted."""
    if not _beside(case, "mtp"):
        return None
    lines = [each for each in case.all(*_LATE, "kv_alloc") if each.beside == "mtp" or at_run(each)]
    named = _refused_to(case, "mtp_context")
    lines = named or lines or _late(case)
    if not lines:
        measured = case.all("fit_unmeasured")
        return Hit(FAIR, tuple(measured[:2])) if measured and case.has("fit") else None
    begun = named or case.reserved or at_run(lines[0]) or lines[0].beside == "mtp"
    return Hit(0.97 if begun else LIKELY, tuple(lines[:4]))


def _mmproj(case: Case) -> Hit | None:
    if not _beside(case, "clip"):
        return None
    lines = [each for each in case.all(*_LATE) if each.beside == "clip" or at_run(each)]
    lines = lines or _late(case)
    if not lines:
        return None
    fitted = case.has("fit_done", "fit_starts", "fit_probes") or lines[0].beside == "clip"
    return Hit(0.97 if fitted else LIKELY, tuple(lines[:4]))


def _run_time(case: Case) -> Hit | None:
    lines = _late(case)
    if not lines:
        return None
    sure = 0.7
    if decoding(case, lines):
        sure = 0.9
    elif at_run(lines[0]):
        sure = LIKELY
    return Hit(sure, tuple(lines[:4]))


def _prompt_cache(case: Case) -> Hit | None:
    """The server's prompt cache is near or above its limit, or large."""
    state = case.cache_state
    killed = [each for each in case.all("killed", "oom_killed") if each.stage == READY]
    if state is None:
        return None
    limit = state.limit.mib if state.limit else None
    over = limit is not None and state.size.mib > max(limit, _NOTABLE_MIB)
    fields = {"size": f"{state.size.mib:,.0f}", "limit": f"{limit:,.0f}" if limit else "?"}
    lines = (*killed[:2], *case.all("prompt_cache_line")[-2:], *case.all("cache_evicts")[:1])
    if over or killed:
        return Hit(SURE, lines, fields)
    if state.size.mib >= _MANY_MIB and (case.excerpt or state.size.mib > 0.75 * (limit or 1e9)):
        return Hit(POSSIBLE if case.has("assert", "crashed") else LIKELY, lines, fields)
    return None


def _checkpoints(case: Case) -> Hit | None:
    """Checkpoints of the state, each of them in host memory, add up."""
    lines = [each for each in case.all("checkpoint") if _OF.search(each.text)]
    if not lines or case.checkpoints is None:
        return None
    numbers = [int(match[1]) for each in lines if (match := _OF.search(each.text))]
    most = max(numbers) * case.checkpoints.size.mib
    killed = case.has("killed", "oom_killed")
    if most < 4 * _MANY_MIB and not killed:
        return None
    fields = {"most": f"{most:,.0f}", "count": max(numbers)}
    return Hit(LIKELY if killed else POSSIBLE, tuple(lines[-2:]), fields)


def _host_killed(case: Case) -> Hit | None:
    """The system ended the process after the load, or the kernel's lines are all there is."""
    lines = [each for each in case.all("killed", "oom_killed") if each.stage in (READY, START)]
    if not lines:
        lines = [each for each in case.all("host_alloc") if at_run(each)]
        lines = case.all("prompt_cache_alloc") or lines
    if not lines:
        return None
    return Hit(LIKELY if lines[0].code == "oom_killed" else 0.7, tuple(lines[:3]))


_MARGIN = remedy("leave more free when the engine fits itself", "-fitt 2048")
_LESS_CONTEXT = remedy(
    "leave room: a shorter context or a smaller physical batch", "-c N", "-ub 256"
)

RULES: tuple[Rule, ...] = (
    Rule(
        "mtp",
        "fit-gap-mtp",
        _mtp,
        template(
            "the model fitted, its built-in draft (MTP) did not: fitting does not count the "
            "draft's layer, cache and compute buffer, which land on the last device"
        ),
        (
            _MARGIN,
            remedy("take a smaller physical batch: the draft's buffer follows it", "-ub 256"),
            SHORTER_STILL,
            remedy("switch the draft off", "--spec-type none"),
        ),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "projector",
        "fit-gap-mmproj",
        _mmproj,
        template(
            "the model fitted, the vision projector did not: it is loaded after fitting and "
            "takes what was left"
        ),
        (_MARGIN, remedy("keep the projector on the host", "--no-mmproj-offload"), _LESS_CONTEXT),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "after-load",
        "runtime-vram-growth",
        _run_time,
        template(
            "memory of the GPU ran out after the load: work buffers grow with the context in "
            "use, most with a quantized cache and large batches"
        ),
        (
            _LESS_CONTEXT,
            _MARGIN,
            remedy("an f16 cache needs no work buffer for its conversion", "-ctk f16", "-ctv f16"),
            remedy("a newer build reserves these buffers at the start"),
        ),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "prompt-cache",
        "host-ram-growth",
        _prompt_cache,
        template(
            "the server's prompt cache holds {size} MiB of host memory (limit {limit}); one "
            "entry is always kept, however large, and no GPU figure shows it"
        ),
        (
            remedy("lower the limit of the prompt cache, or switch it off", "--cache-ram 512"),
            remedy("the same for a wrapper", "LLAMA_ARG_CACHE_RAM=512"),
        ),
        memory=True,
        pool=HOST_RAM,
    ),
    Rule(
        "checkpoints",
        "host-ram-growth",
        _checkpoints,
        template(
            "context checkpoints may take {most} MiB of host memory per slot ({count} of them)"
        ),
        (
            FEWER_CHECKPOINTS,
            remedy("lower the limit of the prompt cache", "--cache-ram 512"),
        ),
        memory=True,
        pool=HOST_RAM,
    ),
    Rule(
        "host-killed",
        "host-ram-growth",
        _host_killed,
        template("the system ended the process because host memory ran out"),
        (
            remedy("lower the limit of the prompt cache, or switch it off", "--cache-ram 0"),
            FEWER_CHECKPOINTS,
            RAISE_LIMIT,
        ),
        memory=True,
        pool=HOST_RAM,
    ),
)
