"""What one load of a model said, kept small: the material that the rules look at.

Failures and remarks are kept by code, the first of them and the last; everything about memory is in
`loaded`. Each carries the stage that the load had reached, because the same words mean different
things while weights are read and while a request is answered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from kvwise.diagnose import begun
from kvwise.diagnose.scan import Said
from kvwise.diagnose.stage import (
    CACHE,
    CONTEXT,
    READY,
    STAGES,
    START,
    WARMUP,
    WEIGHTS,
    Stage,
    stage_of,
)
from kvwise.engine import events as ev
from kvwise.engine.loaded import Collector, Loaded

_KEPT = 24  # of one code
_LOADS_KEPT = 200
_EVENTS_KEPT = 400  # of a kind that a server prints for every request


_LINES: dict[type, str] = {
    ev.KVCache: "cache_line", ev.RecurrentState: "state_line", ev.DeviceUsed: "device_line",
    ev.Splits: "splits_line",
    ev.ContextFact: "setting_line", ev.PromptCache: "prompt_cache_line", ev.FitDevice: "fit_line",
    ev.Slots: "setting_line", ev.DraftStarts: "draft_line", ev.Speculation: "speculation_line",
    ev.ExtraContext: "draft_line", ev.FlashAttention: "", ev.Buffer: "buffer_line",
}  # fmt: skip
_SHOWN_FACTS = frozenset({"n_ctx", "n_ctx_seq", "n_seq_max", "flash_attn"})


_MOVE_NOTHING = frozenset({"waiting", "vocab_read"})
"""Remarks that say nothing of what is under way: somebody asks, or it is over with the line."""
_BEGINS = frozenset({begun.STEP, begun.WHOLE, begun.START, "command"})
"""Remarks that tell with which settings a load begins."""
_SIGNALLED = {9: "killed", 11: "crashed", 6: "crashed", 7: "crashed", 4: "cpu_instructions"}
"""Signal -> code, on Linux and macOS."""


class Seen(NamedTuple):
    """A failure or remark: its code and fields, where it stood, and how far the load was."""

    code: str
    fields: dict[str, str]
    line: int
    text: str
    stage: Stage
    fitting: bool  # between the start and the end of --fit
    beside: str  # "mtp" or "draft" once such a context was begun, "clip" for a projector, else ""
    level: str | None = None


@dataclass(slots=True)
class Case:
    """One load."""

    loaded: Loaded = field(default_factory=Loaded)
    seen: dict[str, list[Seen]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    stage: Stage = START
    first_line: int = 0
    last_line: int = 0
    begins: int = 0  # the line of the log after the load before it
    last_event: str = ""  # code, or class name, of the last thing it said
    said: Said = field(default_factory=Said)
    cache_state: ev.PromptCache | None = None  # the largest state of the prompt cache
    checkpoints: ev.PromptCache | None = None
    before: Case | None = None  # the load before it in the same log
    is_last: bool = True
    beside: set[str] = field(default_factory=set)  # mtp, draft, clip: what else was begun
    opened: bool = False  # a model's file was opened: the log has the load's beginning
    reserved: bool = False  # compute buffers were made for the main context
    settings: dict[str, object] = field(default_factory=dict)  # kvwise began the load with them

    # -- what the rules ask -----------------------------------------------------------------------

    def all(self, *codes: str) -> list[Seen]:
        """Every kept line of these codes, in the order of the log."""
        found = [each for code in codes for each in self.seen.get(code, ())]
        return sorted(found, key=lambda each: each.line)

    def has(self, *codes: str) -> bool:
        return any(code in self.seen for code in codes)

    def first(self, *codes: str) -> Seen | None:
        found = self.all(*codes)
        return found[0] if found else None

    @property
    def failed_codes(self) -> set[str]:
        """Codes of all failures, remarks left out."""
        events = [record.event for record in self.loaded.failures]
        return {event.code for event in events if isinstance(event, ev.Failure)}

    @property
    def complete(self) -> bool:
        """Did the load come to its end: compute buffers made, or the server ready?"""
        return self.reserved or self.stage in (WARMUP, READY)

    @property
    def excerpt(self) -> bool:
        """Some lines that somebody picked out: nothing shows that the load came to its end."""
        return not self.complete

    @property
    def n_ctx(self) -> int | None:
        return self.fact("n_ctx")

    def fact(self, name: str) -> int | None:
        """A setting of the main context as a whole number."""
        main = self.loaded.main
        value = main.facts.get(name, "") if main else ""
        return int(value) if value.isdecimal() else None

    def caches(self) -> list[ev.KVCache]:
        """The attention caches of the main context that hold anything."""
        main = self.loaded.main
        found = [cache.total for cache in main.caches] if main else []
        return [each for each in found if isinstance(each, ev.KVCache) and each.size.units]


class Builder:
    """Records of a log -> its loads, each a `Case`."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self._settings: dict[str, object] = {}
        self._start()

    def _start(self) -> None:
        before = self.cases[-1] if self.cases else None
        if before:
            before.is_last = False
            before.before = None  # a chain of all loads would keep them all
        begins = before.last_line + 1 if before else 0
        self._case = Case(before=before, settings=self._settings, begins=begins)
        self.cases.append(self._case)
        if len(self.cases) > _LOADS_KEPT:
            del self.cases[_LOADS_KEPT // 2]
        self._collector = Collector()
        self._case.loaded = self._collector.loaded
        self._fitting, self._beside = False, ""
        self._failed = False

    def add(self, record: ev.Record) -> None:
        """Take one record in; a new load begins by itself."""
        if self._begins(record.event):
            self._start()
        case = self._case
        case.first_line = case.first_line or record.line
        case.last_line = record.line
        event = record.event
        self._began(event)
        self._follow(event)
        if isinstance(event, ev.Failure | ev.Remark):
            if event.code not in _MOVE_NOTHING:
                case.last_event = event.code
            self._keep(record, event.code, event.fields)
            self._failed |= isinstance(event, ev.Failure)
            if self._fitting and _of_the_load(event):
                self._fitted_before()
        else:
            case.last_event = type(event).__name__
            self._keep_line(record, event)
        if self._worth(event):
            self._collector.add(record)

    def _began(self, event: ev.Event) -> None:
        """With what kvwise begins the next load, or this one, if it has not failed yet."""
        if not isinstance(event, ev.Remark) or event.code not in _BEGINS:
            return
        self._settings = begun.after(self._settings, event)
        if not self._failed:
            self._case.settings = self._settings

    def ended(self, code: int | None) -> None:
        """Take the exit status in: what a signal says, the log does not."""
        said = None if code is None else _SIGNALLED.get(-code if code < 0 else code - 128)
        if said:
            line = self._case.last_line
            text = f"exit code {code}"
            seen = Seen(said, {}, line, text, self._case.stage, self._fitting, self._beside)
            self._case.counts[said] += 1
            self._case.seen.setdefault(said, []).append(seen)

    def _begins(self, event: ev.Event) -> bool:
        """Is this the first line of another load?"""
        case = self._case
        if isinstance(event, ev.Build):
            return case.stage != START or self._failed
        if isinstance(event, ev.Remark) and event.code in ("command", begun.START):
            return case.stage != START or self._failed
        if isinstance(event, ev.ModelOpened):
            if self._beside or self._fitting:
                return False
            return case.stage in (WARMUP, READY) or (self._failed and case.stage != START)
        return False

    def _worth(self, event: ev.Event) -> bool:
        """A server says some things for ever: keep the first of them."""
        if isinstance(event, ev.PromptCache):
            self._largest(event)
        if isinstance(event, ev.Timing | ev.PromptCache):
            name = type(event).__name__
            self._case.counts[name] += 1
            return self._case.counts[name] <= _EVENTS_KEPT
        if isinstance(event, ev.Failure):
            return self._case.counts[event.code] <= _KEPT
        return not isinstance(event, ev.Remark)

    def _largest(self, event: ev.PromptCache) -> None:
        case = self._case
        if event.what in ("state", "saved"):
            known = case.cache_state
            if (
                known is None
                or event.size.mib >= known.size.mib
                or (event.limit and not known.limit)
            ):
                case.cache_state = event
        elif event.what == "checkpoint":
            case.checkpoints = event

    def _keep(self, record: ev.Record, code: str, fields: dict[str, str]) -> None:
        case = self._case
        case.counts[code] += 1
        kept = case.seen.setdefault(code, [])
        seen = Seen(code, fields, record.line, record.text.strip(), case.stage, self._fitting,
                    self._beside, record.level)  # fmt: skip
        if len(kept) < _KEPT:
            kept.append(seen)
        else:
            kept[-1] = seen

    def _fitted_before(self) -> None:
        """The end of fitting went unsaid, as in a short log: what failed since was the load."""
        self._fitting = False
        for kept in self._case.seen.values():
            kept[:] = [each._replace(fitting=False) for each in kept]

    def _keep_line(self, record: ev.Record, event: ev.Event) -> None:
        """The line of an event that a rule may want to show."""
        code = _LINES.get(type(event))
        if isinstance(event, ev.FlashAttention):
            code = None if event.on else "flash_off"
        if isinstance(event, ev.ContextFact) and event.name not in _SHOWN_FACTS:
            code = None
        if isinstance(event, ev.PromptCache) and event.what == "checkpoint":
            code = "checkpoint"
        if code:
            self._keep(record, code, {})

    def _follow(self, event: ev.Event) -> None:
        """How far the load has come."""
        reached = stage_of(event)
        if reached:
            self._reach(reached, restart=reached in (WEIGHTS, CONTEXT, CACHE))
        self._case.opened |= isinstance(event, ev.ModelOpened)
        if isinstance(event, ev.Buffer) and event.part == "compute":
            self._case.reserved |= not (self._beside or self._fitting)
        elif isinstance(event, ev.DraftStarts):
            self._beside = "mtp" if event.mtp else "draft"
            self._case.beside.add(self._beside)
        elif isinstance(event, ev.Projector) and event.part == "weights":
            self._follow_remark("clip")
        elif isinstance(event, ev.ExtraContext):
            self._case.beside.add("mtp" if "MTP" in event.what else "draft")
        elif _ends_fitting(event):
            self._fitting = False
        elif isinstance(event, ev.Remark):
            self._follow_remark(event.code)

    def _follow_remark(self, code: str) -> None:
        if code in ("fit_starts", "fit_probes"):
            self._fitting = self._case.stage not in (WARMUP, READY)
        elif code in ("fit_done", "vocab_read", "warming_up"):
            self._fitting = False
        elif code == "clip":
            self._beside = self._beside or "clip"
            self._case.beside.add("clip")

    def _reach(self, stage: Stage, *, restart: bool = False) -> None:
        case = self._case
        if stage == READY:
            case.stage, self._fitting = READY, False
        elif case.stage in (WARMUP, READY):
            return
        elif restart or STAGES.index(stage) > STAGES.index(case.stage):
            case.stage = stage


def _of_the_load(event: ev.Failure | ev.Remark) -> bool:
    """Is this said of the load itself, never of the pass that measures before it?

    Only whoever loads for good names the file; where fitting fails, a line says that first.
    """
    return event.code in ("context_made", "model_load") and "path" in event.fields


def _ends_fitting(event: ev.Event) -> bool:
    """Does fitting end with this: given up, or found that nothing is to be changed?"""
    if isinstance(event, ev.FitTarget):
        return event.left is not None
    return isinstance(event, ev.Failure) and event.code == "fit"
