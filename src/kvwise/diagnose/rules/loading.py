"""Fitting, hanging, crashing while a model is loaded."""

from __future__ import annotations

import re

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import FAIR, LIKELY, POSSIBLE, VRAM, WEAK, Hit, Rule
from kvwise.diagnose.rules.asking import failed, pool_of, remedy, seen
from kvwise.diagnose.rules.remedies import (
    FEWER_LAYERS,
    NEWER_BUILD,
    ONE_SLOT,
    SAY_MORE,
    SHORTER,
    SMALLER_UBATCH,
)
from kvwise.diagnose.stage import READY, WEIGHTS
from kvwise.diagnose.unwrap import unwrap
from kvwise.engine import log
from kvwise.text import template

_SAID_ENOUGH = 8
_DECLINED = ("already set by user", "not implemented")
_EXCLUDED = "cannot be used with"
_CRASHES = (
    "assert",
    "crashed",
    "cuda",
    "gpu_oom",
    "host_alloc",
    "no_kernel",
    "device_lost",
    "metal_failed",
)
_IN_A_MOMENT = ("ModelOpened", "ModelKey")
"""Lines that no engine stops after: somebody cut the log there."""
_LAST_FACT = re.compile(r"max token length|\b(?:EOG|LF|EOT|FIM \w{1,10}) token", re.ASCII)
"""Of what is printed of a model in one go, what comes last."""
_UNDER_WAY = {
    "fit_starts": template("fitting to the memory of the devices"),
    "fit_probes": template("asking the devices for their memory"),
    "warming_up": template("the first pass through the model"),
    "loading_tensors": template("reading weights"),
}


_ASKED_OFTEN = 5
"""So many requests were answered with "still loading"."""


def _fit_abort(case: Case) -> Hit | None:
    """Fitting gave up and nothing shows that the load went well anyway."""
    lines = [each for each in case.all("fit") if "error" not in each.fields]
    if not lines or case.complete or _offloaded_all(case):
        return None
    reason = lines[0].fields.get("reason", "?")
    if _EXCLUDED in reason:
        return Hit(LIKELY, tuple(lines[:2]), {"reason": reason}, memory=False, cause=_NOT_TOGETHER)
    sure = LIKELY if any(word in reason for word in _DECLINED) else FAIR
    return Hit(POSSIBLE if failed(case) else sure, tuple(lines[:2]), {"reason": reason})


_NOT_TOGETHER = template(
    "fitting and an option that was given by hand exclude each other in this build: {reason}"
)


def _offloaded_all(case: Case) -> bool:
    models = case.loaded.models
    return any(model.offloaded or model.weights for model in models) and not failed(case)


def _fit_crash(case: Case) -> Hit | None:
    lines = [each for each in case.all(*_CRASHES) if each.fitting]
    if lines:
        memory = lines[0].code in ("gpu_oom", "host_alloc")
        return Hit(0.97, tuple(lines[:4]), memory=memory, pool=pool_of(case) if memory else None)
    asked = case.all("memory_unread")  # a device was asked what is free, and had nothing left
    if asked and case.has("gpu_oom", "crashed") and not case.opened:
        return Hit(LIKELY, tuple(asked[:2]), memory=True, pool=VRAM)
    errors = [each for each in case.all("fit") if "error" in each.fields]
    others = case.failed_codes - {"fit", "model_load", "server_exit", "exited"}
    if errors and not others:
        return Hit(FAIR, tuple(errors[:2]), dict(errors[0].fields))
    return None


def _hang(case: Case) -> Hit | None:
    """The log ends in the middle of something, without an error."""
    if not case.is_last or case.loaded.failures or case.last_event in _IN_A_MOMENT:
        return None
    what = _UNDER_WAY.get(case.last_event)
    if what and case.last_line >= case.said.lines - 3 and not _went_on(case):
        lines = case.all(case.last_event)
        return Hit(0.7, tuple(lines[-1:]), {"doing": what})
    if case.counts["waiting"] >= _ASKED_OFTEN and not case.complete and case.stage != READY:
        return Hit(FAIR, tuple(case.all("waiting")[-1:]), {"doing": template("loading the model")})
    lines = case.all("buffer_line")
    if lines and case.opened and case.stage == WEIGHTS and not case.complete:
        return Hit(POSSIBLE, tuple(lines[-1:]), {"doing": template("reading weights")})
    facts = case.loaded.models[-1].facts if case.loaded.models else {}
    said_all = any(_LAST_FACT.search(text) for _, text in case.said.tail[-1:])
    if case.last_event == "ModelFact" and len(facts) >= _SAID_ENOUGH and said_all:
        return Hit(WEAK, fields={"doing": template("reading weights")})
    return None


_OF_THE_ENGINE = re.compile(
    r"(?:[a-z]\w{2,40}|srv  .{0,20}|slot .{0,20}): (?!\(for bugs)\S", re.ASCII
)


def _went_on(case: Case) -> bool:
    """Does the engine say anything after the last line that is known?"""
    later = [text for line, text in case.said.tail if line > case.last_line]
    said = [log.split_line(0, text).text for raw in later for text in unwrap(raw)]
    return any(map(_OF_THE_ENGINE.match, said))


def _no_context(case: Case) -> Hit | None:
    """The context could not be made, and that is all that is said."""
    lines = case.all("context_made", "hint_oom_context")
    lines = [each for each in lines if not _STATUS.search(each.text)]
    if not lines or case.failed_codes - _SAY_NOTHING:
        return None
    return Hit(POSSIBLE, tuple(lines[:3]))


_STATUS = re.compile(
    r"\b0x(?!8007000[8e]|c0000017|c000009a)[89a-f][0-9a-f]{7}\b", re.ASCII | re.IGNORECASE
)
"""A driver's own status that is none of Windows' four for memory."""
_SAY_NOTHING = frozenset(
    {"context_made", "model_load", "server_exit", "crashed", "exited", "killed"}
)


RULES: tuple[Rule, ...] = (
    Rule(
        "fit-crash",
        "fit-crash",
        _fit_crash,
        template(
            "the pass that measures memory before the load failed by itself; the model has not "
            "been loaded yet"
        ),
        (
            remedy(
                "switch fitting off and set layers and context yourself",
                "-fit off",
                "-ngl N",
                "-c N",
            ),
            NEWER_BUILD,
        ),
    ),
    Rule(
        "fit-abort",
        "fit-abort",
        _fit_abort,
        template(
            "fitting stopped ({reason}): the settings as given need more memory than is free, "
            "and the engine goes on with them"
        ),
        (
            remedy("leave -ngl, -ts and -ot away and let the engine fit itself", "-fit on"),
            remedy("or set context and batch by hand", "-c N", "-ub 256"),
        ),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "no-context",
        "kv-alloc-oom",
        _no_context,
        template(
            "the context could not be made, and no line says why: most often the cache, or the "
            "compute buffer with it, does not fit"
        ),
        (SHORTER, ONE_SLOT, SMALLER_UBATCH, FEWER_LAYERS, SAY_MORE),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "timeout",
        "hang",
        seen("load_timeout", confidence=LIKELY),
        template("the program waited for the model and gave up; no error came from the engine"),
        (
            remedy("give a large or slowly stored model more time", "OLLAMA_LOAD_TIMEOUT=15m"),
            remedy("see whether the file is read at all: disk and processor idle mean a hang"),
            remedy("try another driver or backend"),
        ),
    ),
    Rule(
        "stops",
        "hang",
        _hang,
        template(
            "the log ends during this: {doing}; no error, no end. If the process still runs and "
            "neither disk nor processor work, it hangs"
        ),
        (
            remedy("switch fitting off", "-fit off"),
            remedy("leave the first pass out", "--no-warmup"),
            SAY_MORE,
            remedy("try another driver or build"),
        ),
    ),
)
