"""One unit of work: a fresh server with one way of speculating, all prompts, in one order.

Fresh and in one order, because greedy text is the same again only after the same requests. Asking
for speculation does not make it so: a draft whose vocabulary differs is loaded, paid for and never
used, and a kind that is not given is off. What counts as proof is what the engine says: its log
line, its slots, and the tokens it drafted.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvwise.diagnose.failed_run import findings_json, why_failed
from kvwise.engine import events as ev
from kvwise.engine.find import Engine
from kvwise.engine.loaded import Loaded
from kvwise.engine.outcome import EngineEnded
from kvwise.engine.process import Limits
from kvwise.engine.server import RequestRefused, Server
from kvwise.engine.settings import Run
from kvwise.engine.watch import Share, Watch
from kvwise.errors import EngineError, UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.speculate.kinds import PLAIN
from kvwise.speculate.prompts import Prompt
from kvwise.text import Phrase, phrase
from kvwise.verify.compare import engine_features

WARM_UP = "Count from one to ten in words:"
_WARM_TOKENS = 16
_SPEAKS_OF_IT = frozenset(
    {"draft_vocab", "draft_load", "draft_kind", "mtp_missing", "mtp_context", "spec_type",
     "speculation_off", "speculation_unsupported"}
)  # fmt: skip
TOO_LONG = "exceed_context_size_error"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came out of one prompt. `ids` are the tokens generated; times in milliseconds."""

    prompt: str
    tokens: int
    prompt_tokens: int
    prompt_ms: float
    decode_ms: float
    drafted: int
    accepted: int
    ids: tuple[int, ...]
    text: str
    cut: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """What the engine says about speculation: the kind its log names ("" = none), whether its
    slots speculate, and why not, where it gave a reason."""

    implementation: str
    slots: bool
    reason: str = ""

    @property
    def on(self) -> bool:
        return bool(self.implementation) and self.slots


@dataclass(frozen=True, slots=True)
class Measured:
    """One unit: `round` counts from 0, `at` is seconds since 1970, `drafts` how often something was
    drafted and `by_position` which share was accepted at each place of a draft.

    A unit that failed has an `error` and perhaps `findings` (kvwise/diagnosis/1). `memory` are the
    engine's own figures: (whose, part, buffer, bytes as printed).
    """

    key: str
    round: int
    at: float
    answers: tuple[Answer, ...] = ()
    proof: Proof = field(default_factory=lambda: Proof("", slots=False))
    drafts: int = 0
    by_position: tuple[float, ...] = ()
    draft_ms: float = 0.0
    load_s: float = 0.0
    load: Share | None = None
    flags: tuple[str, ...] = ()
    memory: tuple[tuple[str, str, str, int], ...] = ()
    features: tuple[str, ...] | None = None
    peak_rss_bytes: int = 0
    error: Phrase | None = None
    findings: tuple[dict[str, Any], ...] = ()

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.answers)

    @property
    def decode_per_s(self) -> float:
        """Tokens per second of generating, over all prompts; the first token of each answer comes
        out of the prompt's own pass and is not counted (as the engine does)."""
        counted = sum(max(0, each.tokens - 1) for each in self.answers)
        spent = sum(each.decode_ms for each in self.answers)
        return counted / spent * 1000 if spent else 0.0

    @property
    def whole_per_s(self) -> float:
        """Tokens per second of the answers as a whole, the reading of the prompt included: a draft
        model reads it too."""
        spent = sum(each.prompt_ms + each.decode_ms for each in self.answers)
        return self.tokens / spent * 1000 if spent else 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What stays the same in all units."""

    model: Model
    engine: Engine
    run: Run
    prompts: tuple[Prompt, ...]
    n_predict: int
    chat: bool
    limits: Limits

    def measure(self, key: str, number: int, launch: Launch, log: Path | None) -> Measured:
        """Start, generate from all prompts, stop. A failure is part of the result; only a prompt
        that does not fit raises (UsageError): it would fail in every unit."""
        began = time.time()
        unit, started = Measured(key, number, began), time.monotonic()
        server: Server | None = None
        try:
            server = Server.start(
                self.model.loadable, launch, engine=self.engine, run=self.run, log=log,
                limits=self.limits,
            )  # fmt: skip
            unit = replace(unit, load_s=time.monotonic() - started)
            unit = self._generate(server, unit)
            outcome = server.stop()
            unit = replace(
                unit,
                peak_rss_bytes=outcome.peak_rss_bytes,
                error=None if outcome.clean else outcome.sentence,
            )
        except RequestRefused as refused:
            raise self._refusal(refused, launch) from refused
        except EngineEnded as error:
            found = why_failed(log, error.outcome, model=self.model, launch=launch)
            unit = replace(
                unit,
                error=found[0].cause if found else error.phrase,
                findings=tuple(findings_json(found)),
            )
        except EngineError as error:
            unit = replace(unit, error=error.phrase)
        finally:
            if server is not None:
                server.close()
        return unit

    def _generate(self, server: Server, unit: Measured) -> Measured:
        warm = server.complete(WARM_UP, _WARM_TOKENS)
        before = _statistics(server.loaded) if warm.drafted else None
        with Watch() as watch:
            watch.follow(server.child.pid)
            began = time.monotonic()
            answers = tuple(self._answer(server, prompt) for prompt in self.prompts)
            load = watch.between(began, time.monotonic())
        cores = os.cpu_count() or 1
        free = cores - (self.run.threads or cores)
        slots = any(bool(slot.get("speculative")) for slot in server.slots())
        server.child.wait_until(lambda: False, 0.05)  # the last lines of its log
        loaded = server.loaded
        proof = Proof(loaded.speculation or "", slots, _reason(loaded))
        unit = replace(
            unit, answers=answers, load=load, flags=load.flags(free), proof=proof,
            memory=_memory(loaded), features=engine_features(loaded),
        )  # fmt: skip
        return _with_statistics(unit, _statistics(loaded), before)

    def _answer(self, server: Server, prompt: Prompt) -> Answer:
        text = self._text(server, prompt)
        got = server.complete(text, self.n_predict, return_tokens=True)
        timings = got.raw.get("timings") or {}
        drafted, accepted = got.drafted or (0, 0)
        return Answer(
            prompt=prompt.name, tokens=got.tokens, prompt_tokens=got.prompt_tokens,
            prompt_ms=float(timings.get("prompt_ms", 0.0)),
            decode_ms=float(timings.get("predicted_ms", 0.0)),
            drafted=drafted, accepted=accepted,
            ids=tuple(int(each) for each in got.raw.get("tokens") or ()),
            text=got.text, cut=got.truncated,
        )  # fmt: skip

    def _text(self, server: Server, prompt: Prompt) -> str:
        """As the model's chat template wraps it, or as it is."""
        if self.chat:
            return str(server.post("/apply-template", {"messages": prompt.chat})["prompt"])
        return "\n".join(each["content"] for each in prompt.chat)

    def _refusal(self, refused: RequestRefused, launch: Launch) -> EngineError | UsageError:
        if refused.type != TOO_LONG:
            return refused
        return UsageError(
            "a prompt does not fit the context: {said}", said=refused.message,
            n_ctx=launch.n_ctx, hint="take a larger context than -c {n_ctx}",
        )  # fmt: skip


def asked_but_off(unit: Measured) -> Phrase | None:
    """Why a unit that should have speculated did not; None for one that did, or is plain."""
    if unit.error is not None or unit.key == PLAIN or unit.proof.on:
        return None
    if unit.proof.reason:
        return phrase("speculation was asked for and is not on: {reason}", reason=unit.proof.reason)
    return phrase("speculation was asked for and is not on; the engine does not say why")


def _reason(loaded: Loaded) -> str:
    for record in loaded.failures:
        if isinstance(record.event, ev.Failure) and record.event.code in _SPEAKS_OF_IT:
            return record.text.strip()
    return ""


def _statistics(loaded: Loaded) -> ev.DraftStatistics | None:
    return next(iter(loaded.drafting.values()), None)


def _with_statistics(
    unit: Measured, now: ev.DraftStatistics | None, before: ev.DraftStatistics | None
) -> Measured:
    """What was drafted since the warm-up; the engine's figures count from its start."""
    if now is None:
        return unit
    earlier = before or replace(now, drafts=0, draft_ms=0.0, by_position=())
    drafts = now.drafts - earlier.drafts
    old = dict(enumerate(earlier.by_position))
    shares = tuple(
        max(0.0, min(1.0, (share * now.drafts - old.get(at, 0.0) * earlier.drafts) / drafts))
        for at, share in enumerate(now.by_position)
        if drafts > 0
    )
    return replace(
        unit, drafts=drafts, by_position=shares, draft_ms=now.draft_ms - earlier.draft_ms
    )


def _memory(loaded: Loaded) -> tuple[tuple[str, str, str, int], ...]:
    """Every buffer of the target and of the draft, as the engine printed them."""
    rows: list[tuple[str, str, str, int]] = []
    for draft, whose in ((False, "model"), (True, "draft")):
        models = [each for each in loaded.models if each.draft == draft]
        contexts = [each for each in loaded.contexts if each.draft == draft and each.used]
        if models:
            rows += [(whose, "weights", n, t.bytes) for n, t in models[-1].weights.items()]
        if not contexts:
            continue
        context = contexts[-1]
        for cache in context.caches:
            rows += [(whose, "context", n, t.bytes) for n, t in cache.by_buffer.items()]
        rows += [(whose, "compute", n, t.bytes) for n, t in context.compute.items()]
        rows += [(whose, "output", n, t.bytes) for n, t in context.output.items()]
    return tuple(rows)
