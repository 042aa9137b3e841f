"""How a run of an engine ended, and why, as far as an exit status and a log can say.

The engine itself tells little: a refused setting, a missing file and a bad flag all exit 1; when
the kernel takes its memory away it says nothing at all.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum

from kvwise.errors import EngineError
from kvwise.text import Phrase, phrase


class Ending(StrEnum):
    """The distinct ways to end."""

    EXITED = "exited"  # by itself, code 0, or any code after it was ready
    REFUSED = "refused"  # a code other than 0 before it was ready
    CANNOT_START = "cannot_start"  # no such program, or not runnable
    KILLED = "killed"  # SIGKILL, not from us: almost always out of memory
    SEGMENTATION_FAULT = "segmentation_fault"
    ILLEGAL_INSTRUCTION = "illegal_instruction"  # built for another processor
    ABORTED = "aborted"  # an assertion, or a lost RPC server
    SIGNALLED = "signalled"  # any other signal, not from us
    HUNG = "hung"  # nothing written, read or allocated for too long; we ended it
    LOW_MEMORY = "low_memory"  # the machine was about to run out; we ended it
    PORT_TAKEN = "port_taken"  # another process has, or answers on, the port
    STOPPED = "stopped"  # by us, on request


_SIGNALS = {
    "SIGKILL": Ending.KILLED,
    "SIGSEGV": Ending.SEGMENTATION_FAULT,
    "SIGBUS": Ending.SEGMENTATION_FAULT,
    "SIGILL": Ending.ILLEGAL_INSTRUCTION,
    "SIGABRT": Ending.ABORTED,
}

_SENTENCES = {
    Ending.EXITED: "the engine ended with code {code}",
    Ending.REFUSED: "the engine refused to start (code {code}): {said}",
    Ending.CANNOT_START: "the engine cannot be run: {said}",
    Ending.KILLED: "the engine was killed, probably because memory ran out; its last line: {said}",
    Ending.SEGMENTATION_FAULT: "the engine crashed (segmentation fault); its last line: {said}",
    Ending.ILLEGAL_INSTRUCTION: "the engine uses instructions that this processor lacks",
    Ending.ABORTED: "the engine aborted: {said}",
    Ending.SIGNALLED: "the engine was ended by {signal}; its last line: {said}",
    Ending.HUNG: "the engine did nothing for {silence} s and was ended; its last line: {said}",
    Ending.LOW_MEMORY: "the engine was ended because the machine had only {available} left",
    Ending.PORT_TAKEN: "port {port} belongs to another process",
    Ending.STOPPED: "the engine was stopped",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One finished run. `code` is the exit status, negative for a signal; sizes in bytes.

    `said` is the line that explains it best: the first known failure, else the last line.
    """

    ending: Ending
    code: int
    pid: int
    seconds: float
    ready: bool
    said: str = ""
    tail: tuple[str, ...] = ()
    peak_rss_bytes: int = 0
    silence_s: float = 0.0
    available_bytes: int | None = None
    port: int | None = None
    failures: tuple[str, ...] = ()  # codes of engine/failures.py

    @property
    def clean(self) -> bool:
        """Did it end as it should: by itself with 0, or because we asked?"""
        return self.ending is Ending.STOPPED or (self.ending is Ending.EXITED and self.code == 0)

    @property
    def signal(self) -> str | None:
        """`SIGSEGV`, or None."""
        return _signal_name(self.code)

    @property
    def sentence(self) -> Phrase:
        fields: dict[str, object] = {
            "code": self.code,
            "said": self.said or "-",
            "signal": self.signal or "-",
            "silence": round(self.silence_s),
            "port": self.port if self.port is not None else "-",
            "available": f"{(self.available_bytes or 0) >> 20} MiB",
        }
        return phrase(_SENTENCES[self.ending], **fields)


class EngineEnded(EngineError):
    """An engine ended that should be running, or never came up."""

    def __init__(self, outcome: Outcome, *, hint: str | None = None) -> None:
        super().__init__(outcome.sentence.template, hint=hint, **outcome.sentence.fields)
        self.outcome = outcome


def _signal_name(code: int) -> str | None:
    number = -code if code < 0 else code - 128 if 128 < code < 128 + 65 else 0
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def ending_of(code: int, *, ready: bool) -> Ending:
    """Class of an exit status that nobody asked for. A shell in between makes it 128 + signal."""
    name = _signal_name(code)
    if name is not None:
        return _SIGNALS.get(name, Ending.SIGNALLED)
    if code in (126, 127) and not ready:
        return Ending.CANNOT_START
    return Ending.EXITED if code == 0 or ready else Ending.REFUSED
