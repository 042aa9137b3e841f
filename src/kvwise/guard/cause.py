"""Why an engine ended: one cause out of its log and its exit status, and whether less would help.

The seam between the guard and whoever reads logs: the guard asks `cause_of` and nothing else.
Names of causes are those of the failure reports where one fits; `CURABLE` holds the ones that a
smaller setting can cure. What the failures of the log do not name at once is diagnosed, and so is
what to do about a cause that no smaller setting can cure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvwise.diagnose import Finding, diagnose
from kvwise.diagnose.causes import CAUSES, CURABLE, MEMORY, OF_CODE, sentence
from kvwise.engine import events as ev
from kvwise.engine.loaded import Loaded
from kvwise.engine.outcome import Ending, Outcome
from kvwise.text import Phrase, phrase, template

_SAID = template("{kind}; the engine said: {said}")

_SPEAK_FOR_THEMSELVES = {
    "hang", "slow-start", "killed", "low-memory", "ended", "vram-spill-slow", "unhealthy",
}  # fmt: skip

_PARTS = {
    "weights-oom": "weights",
    "kv-alloc-oom": "context",
    "recurrent-state-oom": "context",
}
_SURE = 0.5
_SIZED = ("buffer_alloc", "device_alloc", "host_alloc")
_MEMORY_WORDS = re.compile(
    r"out of (?:device |host )?memory|ErrorOutOf|not enough memory|insufficient memory|"
    r"cannot allocate memory|failed to (?:re)?alloc|bad_alloc|failed to reserve",
    re.IGNORECASE,
)
_LOST_WORDS = re.compile(
    r"launch timed out|unspecified launch failure|device.{0,12}lost|TDR", re.IGNORECASE
)
_CRASHES = {Ending.SEGMENTATION_FAULT, Ending.ABORTED, Ending.SIGNALLED}
_OF_ENDING = {
    Ending.PORT_TAKEN: "port-taken",
    Ending.CANNOT_START: "cannot-start",
    Ending.HUNG: "hang",
    Ending.LOW_MEMORY: "low-memory",
    Ending.ILLEGAL_INSTRUCTION: "wrong-kernel-build",
}


@dataclass(frozen=True, slots=True)
class Log:
    """One finished run of an engine: what its log added up to, its last lines, how it ended."""

    loaded: Loaded
    outcome: Outcome
    lines: Sequence[str] = ()
    verdict: str = ""  # a cause that the guard itself found (rpc-dead, vram-spill-slow...)
    facts: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Cause:
    """Why it ended. `part` (weights, context, compute), `buffer` and `asked_bytes` say which
    allocation failed, as far as the log tells; `evidence` are lines of the log."""

    kind: str
    sentence: Phrase
    evidence: tuple[str, ...] = ()
    part: str | None = None
    buffer: str | None = None
    asked_bytes: int | None = None
    hint: Phrase | None = None  # what to do, when less is no cure

    @property
    def curable(self) -> bool:
        """May a smaller setting help?"""
        return self.kind in CURABLE

    @property
    def memory(self) -> bool:
        """Is it a lack of memory?"""
        return self.kind in MEMORY


def cause_of(log: Log) -> Cause:
    """The surest cause of an end; its kind is "unknown" or "ended" when the log tells nothing."""
    kind = log.verdict or _kind(log)
    asks = kind == "crash" or (kind not in CURABLE and kind != "ended" and not log.verdict)
    finding = _finding(log) if asks else None
    if finding and kind in ("unknown", "crash"):
        return _diagnosed(finding, kind)
    hint = finding.remedies[0].text if finding and finding.remedies else None
    asked = _asked(log.loaded.failures) if kind in CURABLE else (None, None)
    evidence = _evidence(log, kind)
    return Cause(
        kind,
        _sentence(log, kind, evidence),
        evidence,
        _PARTS.get(kind),
        asked[0],
        asked[1],
        hint,
    )


def _finding(log: Log) -> Finding | None:
    """What the diagnosis of its last lines blames most, when it is sure enough."""
    found = diagnose(log.lines, exit_code=log.outcome.code, numbers=False).blamed
    return found[0] if found and found[0].confidence >= _SURE else None


def _diagnosed(finding: Finding, kind: str) -> Cause:
    named = finding.kind
    if named not in CURABLE and finding.memory_is_the_cause:
        named = "out-of-memory"
    elif named in (kind, CAUSES[kind].kind) or not finding.evidence:
        named = kind  # the same in the doctor's words, or nothing that stands in the log
    lines = tuple(each.text.strip() for each in finding.evidence[:4])
    hint = finding.remedies[0].text if finding.remedies else None
    return Cause(named, finding.cause, lines, _PARTS.get(named), hint=hint)


def _kind(log: Log) -> str:
    outcome = log.outcome
    return (
        _OF_ENDING.get(outcome.ending)
        or _of_codes(log)
        or _of_words(log)
        or ("ended" if outcome.ready or outcome.code == 0 else "unknown")
    )


def _of_codes(log: Log) -> str:
    """By the known failures of the log, the surest first."""
    codes = {failure.code for failure in _failures(log)}
    for code, kind in OF_CODE:
        if code in codes and (code != "rpc_connect" or not log.outcome.ready):
            sized = code in _SIZED and not log.outcome.ready
            return _phase(log.loaded) if sized else kind
    return ""


def _phase(loaded: Loaded) -> str:
    """Which buffer it was, by how far the load had come: the line that says so is the last one,
    and an engine may end before its log thread has written it."""
    if not loaded.models:  # its log says too little
        return "out-of-memory"
    main = loaded.main
    if main is None:
        return "weights-oom"
    return "compute-oom" if main.caches or main.compute else "kv-alloc-oom"


def _of_words(log: Log) -> str:
    """By words that many messages share, and by the exit status."""
    words = "\n".join(log.lines)
    if _LOST_WORDS.search(words):
        return "device-lost-timeout"
    if log.outcome.ending is Ending.KILLED:
        return "killed"
    if log.outcome.code != 0 and _MEMORY_WORDS.search(words):
        return "out-of-memory"
    return "crash" if log.outcome.ending in _CRASHES else ""


def _failures(log: Log) -> Iterable[ev.Failure]:
    return (each.event for each in log.loaded.failures if isinstance(each.event, ev.Failure))


def _asked(failures: Sequence[ev.Record]) -> tuple[str | None, int | None]:
    """The buffer that was refused, and its bytes; the first one that has a name, else any."""
    found: tuple[str | None, int | None] = (None, None)
    for record in failures:
        event = record.event
        if not isinstance(event, ev.Failure) or event.code not in _SIZED:
            continue
        fields = event.fields
        size = int(fields["bytes"]) if "bytes" in fields else None
        for name, unit in (("mib", 1 << 20), ("mb", 1 << 20)):  # ggml prints MiB as MB
            if size is None and name in fields:
                size = round(float(fields[name]) * unit)
        if fields.get("buffer"):
            return fields["buffer"], size
        found = (None, found[1] or size)
    return found


def _evidence(log: Log, kind: str) -> tuple[str, ...]:
    """The lines that show it: those of the failures that name it, else the last ones."""
    codes = {code for code, named in OF_CODE if named == kind} | set(_SIZED)
    lines = [
        record.text.strip()
        for record in log.loaded.failures
        if isinstance(record.event, ev.Failure) and record.event.code in codes
    ]
    if kind in ("port-taken", "low-memory", "hang", "slow-start", "vram-spill-slow", "unhealthy"):
        lines = lines[:1]
    if lines:
        return tuple(dict.fromkeys(lines))[:4]
    pattern = {"device-lost-timeout": _LOST_WORDS, "out-of-memory": _MEMORY_WORDS}.get(kind)
    if pattern:
        lines = [line.strip() for line in log.lines if pattern.search(line)]
    said = lines or [line.strip() for line in log.lines if line.strip()][-2:]
    return tuple(said[-4:])


def _sentence(log: Log, kind: str, evidence: tuple[str, ...]) -> Phrase:
    outcome = log.outcome
    named = phrase(
        sentence(kind),
        **{
            "code": outcome.code,
            "signal": outcome.signal or outcome.code,
            "silence": round(outcome.silence_s),
            "available": f"{(outcome.available_bytes or 0) >> 20} MiB",
            **dict(log.facts),
        },
    )
    if kind in _SPEAK_FOR_THEMSELVES:
        return named
    said = evidence[0] if evidence else ""
    return phrase(_SAID, kind=named, said=said) if said else named
