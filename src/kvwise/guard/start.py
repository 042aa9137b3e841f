"""One start of the engine: load it, and while it serves look after it; tells how it ended."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from kvwise.engine import events as ev
from kvwise.engine.outcome import Outcome
from kvwise.engine.process import Child
from kvwise.guard.cause import Log
from kvwise.guard.health import Health
from kvwise.guard.line import Given, Listen, without_secrets
from kvwise.guard.memory import Growing, Reading, Shrinking, Spill, counted, on_gpus, spilled
from kvwise.guard.ready import settings
from kvwise.guard.requests import Requests, Trouble
from kvwise.guard.rules import Desk, Rules
from kvwise.guard.tee import Shown, Tee
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.text import phrase
from kvwise.units import show

_POLL_S = 0.1
_TICK_S = 0.5
_HEALTH_S = 5.0
_MEMORY_S = 10.0
_LINES = 400  # kept for whoever looks for the cause

Verdict = tuple[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class End:
    """How one start ended. `served_s` None = it never served; `spill` is what made us end it."""

    log: Log
    listen: Listen
    served_s: float | None = None
    spill: Spill | None = None

    @property
    def outcome(self) -> Outcome:
        return self.log.outcome


class Start:
    """The `number`th start; `run` returns when the engine has ended.

    `accepts_spill`: serve although bytes lie in the wrong memory, because no start is left.
    """

    def __init__(
        self,
        given: Given,
        launch: Launch,
        listen: Listen,
        rules: Rules,
        desk: Desk,
        *,
        number: int,
        ledger: Callable[[], Ledger | None],
        accepts_spill: bool = False,
    ) -> None:
        self.given, self.launch, self.listen = given, launch, listen
        self.rules, self.desk, self.number = rules, desk, number
        self._ledger, self._accepts_spill = ledger, accepts_spill
        self._embedded = given.engine.kind == "embedded"
        self._troubles: deque[Trouble] = deque(maxlen=_LINES)
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._requests = Requests()

    def run(self) -> End:
        """Raises UsageError for what the engine cannot be told."""
        argv = self.given.argv(self.launch, self.listen)
        plain = without_secrets(argv)
        words = phrase(
            "start {number}: {engine}", number=self.number, engine=self.given.engine.name
        )
        self.desk.say("start", words, attempt=self.number, argv=plain, log=self.desk.log)
        self.desk.keeper.note(" ".join(plain))
        self.desk.tell_lost_log()
        before = self.desk.cards()
        tee = self._tee()
        child = Child(
            argv,
            limits=replace(
                self.rules.limits, silence_s=self.rules.silence_s, busy_s=self.rules.busy_s
            ),
            environment=self.desk.environment,
            on_record=self._take,
            on_output=tee,
            ends_with_stdin=self._embedded,
        )
        health = Health(child, self.listen, embedded=self._embedded)
        self.desk.signals.watch(child)
        try:
            return self._follow(child, health, before)
        finally:
            self.desk.signals.watch(None)
            if child.alive:
                child.kill()
                child.wait()
            health.close()
            tee.finish()

    def _tee(self) -> Tee:
        out, err = self.desk.outputs
        return Tee(
            self.desk.keeper,
            shown=Shown.ALL if self.given.loud else self.desk.shown,
            hear=self._hear,
            to=(-1 if self._embedded else out, err),
        )

    def _follow(self, child: Child, health: Health, before: Reading) -> End:
        began = time.monotonic()
        ledger = self._ledger()  # takes a moment, in which the engine loads
        verdict = self._load(child, health, began)
        if verdict is None and child.alive:
            after = self.desk.cards()
            spill = spilled(before, after, on_gpus(ledger))
            spill = spill or counted(child.pid, ledger)
            if spill is None or self._accepts_spill:
                self._tell_ready(child, health, time.monotonic() - began, spill, ledger)
                return self._serve(child, health, after)
            child.stop()
            verdict = "vram-spill-slow", {"spilled": show(spill.size)}
            return End(self._log(child, verdict), self.listen, spill=spill)
        if child.alive:
            child.kill()
        return End(self._log(child, verdict), self.listen)

    def _load(self, child: Child, health: Health, began: float) -> Verdict | None:
        """Wait until it serves or has ended; a verdict when it must not go on."""
        while child.alive:
            self.desk.signals.press()
            if child.loaded.failure("rpc_connect"):
                return "rpc-dead", {}
            if health.serving():
                return None
            if time.monotonic() - began > self.rules.load_s:
                return "slow-start", {"limit": round(self.rules.load_s)}
            child.wait(_POLL_S)
        return None

    def _tell_ready(
        self,
        child: Child,
        health: Health,
        seconds: float,
        spill: Spill | None,
        ledger: Ledger | None,
    ) -> None:
        child.mark_ready(keep=False)
        port = urlsplit(health.url).port
        if port and not self.listen.socket:
            self.listen = replace(self.listen, port=port)
        self.desk.say(
            "ready", phrase("ready {url}", url=health.url),
            url=health.url, openai_url=f"{health.url}/v1", host=self.listen.host,
            port=self.listen.port, pid=child.pid, seconds=round(seconds, 3), attempt=self.number,
            launch=_plain(self.launch), settings=settings(self.launch, child.loaded, ledger),
            spilled_bytes=spill.size if spill else 0, log=self.desk.log,
        )  # fmt: skip

    # -- while it serves -----------------------------------------------------------------------

    def _serve(self, child: Child, health: Health, ready: Reading) -> End:
        began = time.monotonic()
        growing, pulse = Growing(child.pid), _Pulse(self.rules, self.desk)
        shrinking = Shrinking(ready)
        next_memory = began + _MEMORY_S
        verdict: Verdict | None = None
        while child.wait(_TICK_S) is None:
            self.desk.signals.press()
            self._tell_troubles()
            if time.monotonic() >= next_memory:
                next_memory = time.monotonic() + _MEMORY_S
                self._tell_growth(growing)
                self._tell_cards(shrinking)
            silent_s = pulse.feel(child, health)
            if silent_s is not None:
                verdict = "unhealthy", {"silence": round(silent_s)}
                child.kill()
        self._tell_troubles()
        return End(self._log(child, verdict), self.listen, time.monotonic() - began)

    def _tell_troubles(self) -> None:
        self.desk.tell_lost_log()
        while self._troubles:
            trouble = self._troubles.popleft()
            self.desk.say("request", trouble.sentence, kind=trouble.kind, count=trouble.count)

    def _tell_growth(self, growing: Growing) -> None:
        found = growing.look()
        if found is None:
            return
        ledger = self._ledger()
        planned = ledger.host.total_bytes + ledger.host.up_to_bytes if ledger else None
        sentence = phrase(
            "the server's own host memory grew to {now}; it was {then} when it was ready",
            now=show(found.now_bytes),
            then=show(found.ready_bytes),
        )
        if planned is not None:
            sentence = phrase(
                "{growth}, and at most {planned} is planned", growth=sentence, planned=show(planned)
            )
        self.desk.say(
            "memory", sentence, host_bytes=found.now_bytes, ready_bytes=found.ready_bytes,
            planned_bytes=planned,
        )  # fmt: skip

    def _tell_cards(self, shrinking: Shrinking) -> None:
        found = shrinking.look(self.desk.cards())
        if found is None:
            return
        left, loss = found
        sentence = phrase(
            "a GPU has {left} left, {loss} less than when the server was ready: the server or "
            "another program took it",
            left=show(left),
            loss=show(loss),
        )
        self.desk.say("memory", sentence, gpu_free_bytes=left, gpu_loss_bytes=loss)

    # -- what it hears -------------------------------------------------------------------------

    def _log(self, child: Child, verdict: Verdict | None) -> Log:
        outcome = child.wait()
        assert outcome is not None  # noqa: S101 (waited for without a limit)
        kind, facts = verdict or ("", {})
        return Log(child.loaded, outcome, tuple(self._lines), kind, tuple(facts.items()))

    def _hear(self, line: bytes) -> None:
        self._lines.append(line[:2000].decode("utf-8", "replace").rstrip("\r"))
        trouble = self._requests.of_line(line)
        if trouble:
            self._troubles.append(trouble)

    def _take(self, record: ev.Record) -> None:
        trouble = self._requests.of_record(record)
        if trouble:
            self._troubles.append(trouble)


def _plain(launch: Launch) -> dict[str, Any]:
    """The launch as JSON can hold it, keys and tokens left out."""
    return launch.as_dict() | {"extra": without_secrets(launch.extra)}


class _Pulse:
    """Asks a serving server for its health now and then, and tells when it stops answering."""

    def __init__(self, rules: Rules, desk: Desk) -> None:
        self._rules, self._desk = rules, desk
        self._pause = min(_HEALTH_S, rules.unhealthy_s / 4)
        self._answered = time.monotonic()
        self._next = self._answered + self._pause
        self._sick = False

    def feel(self, child: Child, health: Health) -> float | None:
        """Seconds without an answer and without work, when it should be ended for that."""
        if time.monotonic() < self._next or self._desk.signals.asked is not None:
            return None
        alive = health.answers() or child.working
        now = time.monotonic()
        self._next = now + self._pause
        if alive:
            self._answered = now
            if self._sick:
                self._sick = False
                self._desk.say("healthy", phrase("it answers again"))
            return None
        silent_s = now - self._answered
        if silent_s < self._rules.unhealthy_s:
            return None
        if not self._sick:
            self._sick = True
            words = phrase("no answer and no work for {silence} s", silence=round(silent_s))
            self._desk.say("unhealthy", words, silence_s=round(silent_s))
        return silent_s if self._rules.restarts else None
