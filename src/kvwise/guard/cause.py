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
from kvwise.engine import events as ev
from kvwise.engine.loaded import Loaded
from kvwise.engine.outcome import Ending, Outcome
from kvwise.text import Phrase, phrase, template

_SAID = template("{kind}; the engine said: {said}")

CURABLE = frozenset({
    "weights-oom", "kv-alloc-oom", "recurrent-state-oom", "compute-oom", "out-of-memory",
    "single-allocation-limit", "killed", "low-memory", "hang", "slow-start", "crash",
    "device-lost-timeout", "vram-spill-slow", "cache-types",
})  # fmt: skip
MEMORY = CURABLE - {"hang", "slow-start", "crash", "device-lost-timeout", "cache-types"}
"""Causes that are a lack of memory."""

_SPEAK_FOR_THEMSELVES = {
    "hang", "slow-start", "killed", "low-memory", "ended", "vram-spill-slow", "unhealthy",
}  # fmt: skip

_PARTS = {
    "weights-oom": "weights",
    "kv-alloc-oom": "context",
    "recurrent-state-oom": "context",
}
_NAMES = {
    "weights-oom": template("the weights do not fit"),
    "kv-alloc-oom": template("the KV cache does not fit"),
    "recurrent-state-oom": template("the recurrent state does not fit"),
    "compute-oom": template("the compute buffer does not fit"),
    "out-of-memory": template("a buffer does not fit"),
    "single-allocation-limit": template("a buffer is larger than the device allows for one"),
    "device-lost-timeout": template("the GPU was lost or reset (a watchdog, or its driver)"),
    "cache-types": template("the engine refused these cache types"),
    "file-missing": template("the model file cannot be opened"),
    "file-corrupt": template("the model file is damaged or cut off"),
    "split-missing": template("a part of the split model is missing"),
    "missing-tensor": template("the model file lacks tensors that this build wants"),
    "arch-unknown": template("this build of llama.cpp does not know the model"),
    "port-taken": template("the port is taken by another process"),
    "bad-flag": template("the engine does not accept a flag"),
    "rpc-dead": template("an RPC server does not answer, and the engine would go on without it"),
    "rpc-lost": template("an RPC server went away or is of another build"),
    "wrong-kernel-build": template("the engine was not built for this GPU or processor"),
    "hang": template("no output, no reading and no work for {silence} s"),
    "slow-start": template("not ready within {limit} s"),
    "killed": template("killed from outside: almost always the system was out of memory"),
    "low-memory": template("stopped because the machine had only {available} left"),
    "vram-spill-slow": template("{spilled} of what belongs on the GPU lie in system memory"),
    "crash": template("the engine crashed ({signal})"),
    "cannot-start": template("the program cannot be run"),
    "unhealthy": template("no answer and no work for {silence} s"),
    "ended": template("the engine ended by itself (code {code})"),
    "unknown": template("the engine refused to start (code {code}) for an unknown reason"),
}

_OF_CODE = (  # surest first: the first code that the log has decides
    ("port_taken", "port-taken"),
    ("argument", "bad-flag"), ("device_name", "bad-flag"),
    ("file_open", "file-missing"),
    ("not_gguf", "file-corrupt"), ("header_cut", "file-corrupt"), ("data_cut", "file-corrupt"),
    ("split_missing", "split-missing"), ("split_illegal", "split-missing"),
    ("architecture_unknown", "arch-unknown"), ("tokenizer_unknown", "arch-unknown"),
    ("tensor_type_unknown", "arch-unknown"),
    ("tensor_missing", "missing-tensor"), ("tensor_count", "missing-tensor"),
    ("rpc_version", "rpc-lost"), ("rpc_lost", "rpc-lost"),
    ("device_lost", "device-lost-timeout"),
    ("no_kernel", "wrong-kernel-build"), ("driver_old", "wrong-kernel-build"),
    ("no_backend", "wrong-kernel-build"), ("cpu_instructions", "wrong-kernel-build"),
    ("slots_above_limit", "bad-flag"), ("spec_type", "bad-flag"), ("split_mode", "bad-flag"),
    ("mtp_missing", "bad-flag"), ("draft_load", "file-missing"), ("file_version", "arch-unknown"),
    ("file_endian", "file-corrupt"), ("tensor_shape", "missing-tensor"),
    ("cache_type_unsupported", "cache-types"), ("block_vs_head_size", "cache-types"),
    ("mla_k_v_types_differ", "cache-types"), ("v_quant_needs_flash_attn", "cache-types"),
    ("buffer_limit", "single-allocation-limit"),
    ("weights_alloc", "weights-oom"), ("kv_alloc", "kv-alloc-oom"),
    ("rs_alloc", "recurrent-state-oom"), ("compute_alloc", "compute-oom"),
    ("output_alloc", "compute-oom"),
    ("buffer_alloc", "out-of-memory"), ("device_alloc", "out-of-memory"),
    ("host_alloc", "out-of-memory"), ("mmap", "out-of-memory"), ("gpu_oom", "out-of-memory"),
    ("vk_oom", "out-of-memory"), ("metal_oom", "out-of-memory"), ("ram_short", "out-of-memory"),
    ("rpc_connect", "rpc-dead"),
)  # fmt: skip
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
    elif named == kind or not finding.evidence:
        named = kind
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
    for code, kind in _OF_CODE:
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
    codes = {code for code, named in _OF_CODE if named == kind} | set(_SIZED)
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
        _NAMES[kind],
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
