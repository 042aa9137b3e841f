"""One guarded run: start, step down, start again; and at the end the engine's own exit code."""

from __future__ import annotations

import time

from kvwise.engine.outcome import Ending, Outcome
from kvwise.guard.case import Case
from kvwise.guard.cause import Cause, cause_of
from kvwise.guard.line import Given, Listen
from kvwise.guard.port import another
from kvwise.guard.rules import Desk, Rules
from kvwise.guard.start import End, Start
from kvwise.guard.steps import Exhausted, Ladder
from kvwise.launch import Launch
from kvwise.text import Phrase, phrase

_PORT_TRIES = 3


class Session:
    """A server and its guard. `run` returns the exit code for the shell."""

    def __init__(
        self,
        given: Given,
        case: Case,
        launch: Launch,
        listen: Listen,
        *,
        desk: Desk,
        rules: Rules | None = None,
    ) -> None:
        self.given, self.case, self.launch, self.listen = given, case, launch, listen
        self.desk, self.rules = desk, rules or Rules()
        self._ladder = Ladder(case)
        self._starts = self._unknown = self._ports = self._restarts = 0

    def run(self) -> int:
        """Until the engine has ended for good; raises UsageError for what it cannot be told."""
        with self.desk.signals.caught():
            try:
                while True:
                    end = self._start()
                    code = self._judge(end)
                    if code is not None:
                        words = phrase("ended with code {code}", code=code)
                        self.desk.say("ended", words, code=code, log=self.desk.log)
                        return code
            finally:
                self.desk.keeper.close()

    def _start(self) -> End:
        self._starts += 1
        end = Start(
            self.given, self.launch, self.listen, self.rules, self.desk,
            number=self._starts,
            ledger=lambda: self.case.ledger(self.launch),
            accepts_spill=self._starts >= self.rules.tries,
        ).run()  # fmt: skip
        self.listen = end.listen
        return end

    def _judge(self, end: End) -> int | None:
        """The exit code when this was the last start, None for another one."""
        code = exit_code(end.outcome)
        if self.desk.signals.asked is not None:
            return code
        cause = cause_of(end.log)
        if end.served_s is None:
            if self._again(cause, end):
                return None
            return code if cause.kind == "ended" else code or 1
        if end.served_s > self.rules.settled_s:
            self._restarts = 0
        if self._revive(cause, end):
            return None
        asked = self.desk.signals.asked
        return code if asked is None else 128 + asked

    # -- after a load that failed ----------------------------------------------------------------

    def _again(self, cause: Cause, end: End) -> bool:
        """Is there another start? Says why, and what comes next."""
        if cause.kind == "ended":  # `--help`, `--version`: it did what it was asked
            return False
        self._tell_cause("failed", cause)
        if cause.kind == "port-taken" and self.listen.chosen and self._ports < _PORT_TRIES:
            self._ports += 1
            self.listen = another(self.listen)
            words = phrase("again on port {port}", port=self.listen.port)
            self.desk.say("retry", words, port=self.listen.port)
            return True
        if cause.kind == "unknown" and not self._unknown:
            self._unknown += 1  # its log thread may have died before it wrote the reason
            words = phrase("once more with the same settings, to hear the reason")
            self.desk.say("retry", words)
            return True
        if not cause.curable:
            return False
        if self._starts >= self.rules.tries:
            words = phrase("{count} starts failed: no more (--tries)", count=self._starts)
            self.desk.say("gave-up", words)
            return False
        return self._step(cause, end.spill.size if end.spill else 0)

    def _step(self, cause: Cause, spilled_bytes: int = 0) -> bool:
        step = self._ladder.next(self.launch, cause, spilled_bytes)
        if isinstance(step, Exhausted):
            self.desk.say("gave-up", _nothing_left(step))
            return False
        self.launch = step.launch
        self.desk.say(
            "step",
            phrase(
                "step down ({knobs}): {reason}", knobs=" + ".join(step.knobs), reason=step.reason
            ),
            knobs=list(step.knobs),
            frees_bytes=step.frees_bytes,
            cause=cause.kind,
            changes={flag: list(both) for flag, both in step.changes.items()},
        )
        return True

    # -- after an end while it served --------------------------------------------------------------

    def _revive(self, cause: Cause, end: End) -> bool:
        """Restart? Waits before each, longer every time."""
        if end.outcome.code == 0 and cause.kind == "ended":
            return False
        self._tell_cause("died", cause)
        most = self.rules.restarts
        if self._restarts >= most:
            if most:
                words = phrase("{count} restarts: no more (--restart)", count=most)
                self.desk.say("gave-up", words)
            return False
        self._restarts += 1
        if cause.memory:
            self._step(cause)
        pauses = self.rules.backoff_s
        pause = pauses[min(self._restarts, len(pauses)) - 1]
        words = phrase(
            "restart {number} of {all} in {seconds} s",
            number=self._restarts,
            all=most,
            seconds=round(pause),
        )
        self.desk.say("restart", words, number=self._restarts, in_seconds=pause)
        until = time.monotonic() + pause
        while time.monotonic() < until and self.desk.signals.asked is None:
            time.sleep(0.05)
        return self.desk.signals.asked is None

    def _tell_cause(self, name: str, cause: Cause) -> None:
        self.desk.say(
            name, cause.sentence,
            cause=cause.kind, curable=cause.curable, evidence=list(cause.evidence),
            buffer=cause.buffer, asked_bytes=cause.asked_bytes, hint=cause.hint,
        )  # fmt: skip


def exit_code(outcome: Outcome) -> int:
    """As a shell would see it: 128 + n for a signal."""
    if outcome.ending is Ending.PORT_TAKEN and outcome.code <= 0:
        return 1
    return 128 - outcome.code if outcome.code < 0 else outcome.code


def _nothing_left(step: Exhausted) -> Phrase:
    if step.would is None:
        return phrase("nothing is left that could be made smaller")
    return phrase(
        "only settings that you gave could still be made smaller: {reason}; allow it with "
        "--may-change {knobs}",
        reason=step.would.reason,
        knobs=",".join(step.would.knobs),
    )
