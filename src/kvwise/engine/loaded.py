"""Events of a log -> what was loaded: models, contexts, caches, buffers, failures.

A log may hold several loads: `--fit` measures first, a draft model follows its target, a wrapper
tries again. Each context keeps its own lines; `Loaded.main` is the one that serves requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kvwise.engine import events as ev
from kvwise.engine.printed import Total

Amounts = dict[str, Total]


@dataclass(slots=True)
class ModelLoad:
    """One model file: its facts, and its weights by buffer (`CPU_Mapped`, `CUDA0`...)."""

    path: str = ""
    draft: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    weights: Amounts = field(default_factory=dict)
    offloaded: tuple[int, int] | None = None


@dataclass(slots=True)
class CacheLoad:
    """One cache: which (as the engine calls it, "" for an only one), its total, its buffers."""

    what: str
    total: ev.KVCache | ev.RecurrentState | ev.CompressorState | None
    by_buffer: Amounts = field(default_factory=dict)


@dataclass(slots=True)
class ContextLoad:
    """One llama_context."""

    draft: bool = False
    mtp: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    caches: list[CacheLoad] = field(default_factory=list)
    compute: Amounts = field(default_factory=dict)
    output: Amounts = field(default_factory=dict)
    flash_attn: bool | None = None
    rotation: dict[str, bool] = field(default_factory=dict)
    splits: ev.Splits | None = None
    nodes: int | None = None  # of the graph that was reserved last
    pending: dict[str, Amounts] = field(default_factory=dict)  # cache buffers without a total yet

    @property
    def used(self) -> bool:
        """Has it said anything beyond its settings?"""
        return bool(self.caches or self.compute or self.output or self.pending)


@dataclass(slots=True)
class Loaded:
    """Everything a log says about memory."""

    models: list[ModelLoad] = field(default_factory=list)
    contexts: list[ContextLoad] = field(default_factory=list)
    build: ev.Build | None = None
    devices: list[ev.DeviceUsed] = field(default_factory=list)
    device_list: list[ev.DeviceListed] = field(default_factory=list)
    features: frozenset[str] = frozenset()  # of the processor, as the engine was compiled
    slots: ev.Slots | None = None
    slot_capped: ev.SlotCapped | None = None
    speculation: str | None = None
    drafting: dict[str, ev.DraftStatistics] = field(default_factory=dict)  # the latest of each kind
    listening: str | None = None
    ready: bool = False
    breakdown: list[ev.Breakdown] = field(default_factory=list)
    fit_devices: list[ev.FitDevice] = field(default_factory=list)
    fit_projection: ev.FitProjection | None = None
    fit_target: ev.FitTarget | None = None
    draft_measured: bool = False  # `--fit` measured a draft beside the model
    projector: list[ev.Projector] = field(default_factory=list)
    prompt_cache: list[ev.PromptCache] = field(default_factory=list)
    extra_contexts: list[ev.ExtraContext] = field(default_factory=list)
    at_exit: list[ev.BufferAtExit] = field(default_factory=list)
    timings: list[ev.Timing] = field(default_factory=list)
    failures: list[ev.Record] = field(default_factory=list)  # each kind once, as first seen

    @property
    def main(self) -> ContextLoad | None:
        """The last context that is not a draft's and has buffers."""
        mine = [context for context in self.contexts if not context.draft]
        used = [context for context in mine if context.used] or mine
        return used[-1] if used else None

    @property
    def model(self) -> ModelLoad | None:
        """The last model that is not a draft."""
        mine = [model for model in self.models if not model.draft]
        return mine[-1] if mine else None

    def failure(self, code: str) -> ev.Failure | None:
        """The first failure of that code."""
        for record in self.failures:
            if isinstance(record.event, ev.Failure) and record.event.code == code:
                return record.event
        return None


class Collector:
    """Adds records up. `loaded` may be read at any time."""

    def __init__(self) -> None:
        self.loaded = Loaded()
        self._draft = self._mtp = self._measured = False
        self._what = ""
        self._shape: ev.CacheShape | None = None
        self._again: Amounts | None = None  # a reservation that does not say whose it is
        self._grown = False  # the draft's was made again

    def add(self, record: ev.Record) -> None:
        """Take one record in."""
        event = record.event
        if isinstance(event, ev.Failure):
            seen = [old.event for old in self.loaded.failures]
            if event not in seen:  # `--fit` makes every load error appear twice
                self.loaded.failures.append(record)
            if event.code in ("draft_vocab", "speculation_off"):  # not fatal: it serves without
                self.loaded.speculation = ""
        else:
            if isinstance(event, ev.DraftStatistics):
                self.loaded.drafting[event.name] = event
            steps = (self._add_model, self._add_context, self._add_reserve, self._add_server)
            if not any(step(event) for step in steps):
                self._add_lists(event)
                self._end_of_measured(event)

    def _end_of_measured(self, event: ev.Event) -> None:
        """A draft that `--fit` measures ends with its table, or where `--fit` says the sum."""
        over = isinstance(event, ev.FitProjection | ev.FitDevice | ev.FitTarget)
        if self._measured and (over or (isinstance(event, ev.Breakdown) and event.total is None)):
            self._draft = self._mtp = self._measured = False

    def add_all(self, records: Iterable[ev.Record]) -> Loaded:
        """Take all records in; returns `loaded`."""
        for record in records:
            self.add(record)
        return self.loaded

    @property
    def _model(self) -> ModelLoad:
        models = self.loaded.models
        if not models or models[-1].draft != self._draft:
            models.append(ModelLoad(draft=self._draft))
        return models[-1]

    @property
    def _context(self) -> ContextLoad:
        contexts = self.loaded.contexts
        if not contexts or contexts[-1].draft != self._draft:
            self._start_context()
        return contexts[-1]

    def _start_context(self) -> None:
        self.loaded.contexts.append(ContextLoad(draft=self._draft, mtp=self._mtp))
        self._what, self._shape = "", None

    def _add_model(self, event: ev.Event) -> bool:
        match event:
            case ev.ModelOpened():
                self._draft = self._draft and not self._mtp
                self.loaded.models.append(ModelLoad(event.path, self._draft))
            case ev.ModelFact():
                self._model.facts[event.name] = event.value
            case ev.ModelKey():
                self._model.facts[event.key] = event.value
            case ev.Offloaded():
                self._model.offloaded = (event.layers, event.of)
            case ev.Buffer(part="weights"):
                _count(self._model.weights, event)
            case ev.DraftStarts():
                self._draft, self._mtp, self._measured = True, event.mtp, event.measured
                self._grown = False
                self.loaded.draft_measured |= event.measured
            case _:
                return False
        return True

    def _add_context(self, event: ev.Event) -> bool:
        match event:
            case ev.ContextStarts():
                self._start_context()
            case ev.ContextFact():
                # builds before 2025-03 say nothing at the start: settings always come first
                if self._context.used:
                    self._start_context()
                self._context.facts[event.name] = event.value
            case ev.CacheStarts():
                self._what = event.what
            case ev.CacheShape():
                self._shape = event
            case ev.KVCache() | ev.RecurrentState() | ev.CompressorState():
                self._add_cache(event)
            case ev.Buffer() if event.part not in ("compute", "output"):
                _count(self._context.pending.setdefault(event.part, {}), event)
            case _:
                return False
        return True

    def _add_reserve(self, event: ev.Event) -> bool:
        match event:
            case ev.Buffer(part="compute"):
                into = self._context.compute if self._again is None else self._again
                into[event.buffer] = Total((event.size,))
            case ev.Buffer(part="output"):
                self._context.output[event.buffer] = Total((event.size,))
            case ev.ReserveStarts():
                self._again = {} if self._context.compute else None
            case ev.FlashAttention():
                self._context.flash_attn = event.on
            case ev.Rotation():
                self._context.rotation[event.side] = event.on
            case ev.Nodes():
                self._graph(event.prompt)
            case ev.Splits():
                self._graph(event.nodes)
                self._context.splits = event
            case _:
                return False
        return True

    def _graph(self, nodes: int | None) -> None:
        """The graph of a reservation. One that was made again does not say whose it is."""
        if nodes is None:
            return
        whose = self._context if self._again is None else self._reserved_again(nodes)
        whose.nodes = nodes
        if self._again is not None:
            whose.compute, self._again = self._again, None

    def _reserved_again(self, nodes: int) -> ContextLoad:
        """Before a first batch llama.cpp may reserve a draft once more, then its target. Sampling
        makes the draft's graph larger, the target's stays about as large as it was."""
        main, draft = self.loaded.main, self._context
        if not self._draft or main is None or main.nodes is None:
            return self._context
        first, self._grown = not self._grown, True
        if nodes == main.nodes:
            return main
        if first and nodes > (draft.nodes or 0):
            return draft
        return min((draft, main), key=lambda each: abs((each.nodes or 0) - nodes))

    def _add_cache(self, total: ev.KVCache | ev.RecurrentState | ev.CompressorState) -> None:
        part = {"KVCache": "kv", "RecurrentState": "rs"}.get(type(total).__name__, "state")
        if not isinstance(total, ev.CompressorState) and total.cells is None and self._shape:
            total = replace(total, cells=self._shape.cells, layers=self._shape.layers)
        what = total.name if isinstance(total, ev.CompressorState) else self._what
        if isinstance(total, ev.RecurrentState):
            what = "recurrent"
        by_buffer = self._context.pending.pop(part, {})
        self._context.caches.append(CacheLoad(what, total, by_buffer))

    def _add_server(self, event: ev.Event) -> bool:
        into = self.loaded
        match event:
            case ev.Build():
                into.build = event
            case ev.DeviceUsed():
                into.devices.append(event)
            case ev.DeviceListed():
                into.device_list.append(event)
            case ev.SystemInfo():
                into.features = event.features
            case ev.Slots():
                into.slots = event
            case ev.SlotCapped():
                into.slot_capped = event
            case ev.Speculation():
                into.speculation = event.name
            case ev.Listening():
                into.listening = event.url
            case ev.ModelReady():
                into.ready = True
            case _:
                return False
        return True

    def _add_lists(self, event: ev.Event) -> None:
        into = self.loaded
        match event:
            case ev.Breakdown():
                into.breakdown.append(event)
            case ev.FitDevice():
                into.fit_devices.append(event)
            case ev.FitProjection():
                into.fit_projection = event
            case ev.FitTarget():
                into.fit_target = event
            case ev.Projector():
                into.projector.append(event)
            case ev.PromptCache():
                into.prompt_cache.append(event)
            case ev.ExtraContext():
                into.extra_contexts.append(event)
            case ev.BufferAtExit():
                into.at_exit.append(event)
            case ev.Timing():
                into.timings.append(event)


def _count(amounts: Amounts, event: ev.Buffer) -> None:
    """A buffer type may be printed several times (split files, several K and V buffers)."""
    amounts[event.buffer] = amounts.get(event.buffer, Total()).plus(event.size)
