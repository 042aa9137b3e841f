"""Start a probing child, hear it, and end it when a call of its driver does not come back.

The child's lines are the answer; how it ended is part of it: a crash, a hang or a driver that
ends the process is a result with the phase in which it happened.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvwise.probe.notes import Note, meaning

LIMITS_S = {"load": 20.0, "init": 20.0, "context": 20.0, "touch": 30.0}
"""Seconds that a phase may take; the first use after a boot, and pages made at touch, are slow."""
LIMIT_S = 10.0
START_S = 20.0
"""Before the first phase; no driver is loaded yet."""
WHOLE_S = 90.0
_AFTER_KILL_S = 2.0
_LINE = 1 << 20
_ROOT = str(Path(__file__).resolve().parents[2])
_START = "import sys; sys.path.insert(0, sys.argv[1]); from kvwise.probe.child import main; main()"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child told: `fields` of the device, `devices` of a list, `notes`.

    `ending`: done, missing (no such driver), failed (the driver refused), broken (our own fault),
    crashed, left (the driver ended the process), hung. `stuck`: it did not even end when killed.
    """

    ending: str
    fields: dict[str, Any] = field(default_factory=dict)
    devices: list[dict[str, Any]] = field(default_factory=list)
    notes: tuple[Note, ...] = ()
    stuck: bool = False

    @property
    def done(self) -> bool:
        return self.ending == "done"


def ask(
    request: Mapping[str, Any],
    *,
    patience: float = 1.0,
) -> Answer:
    """Run one task of `child` and return what it told; `patience` multiplies a driver's limits.

    Returns within WHOLE_S and a little in any case.
    """
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", _START, _ROOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_hear, args=(child, lines), daemon=True).start()
    heard = _Heard(str(request.get("backend", "")))
    hung_s = 0.0
    end = time.monotonic() + WHOLE_S * patience
    try:
        assert child.stdin is not None  # noqa: S101  (asked for above)
        with contextlib.suppress(OSError):  # it can have crashed already
            child.stdin.write(json.dumps(dict(request)).encode() + b"\n")
            child.stdin.flush()
        while not heard.ending:
            limit = LIMITS_S.get(heard.phase, LIMIT_S) * patience if heard.phase else START_S
            allowed = max(0.0, min(limit, end - time.monotonic()))
            try:
                line = lines.get(timeout=allowed)
            except queue.Empty:
                hung_s = allowed or WHOLE_S * patience
                break
            if line is None:
                break
            heard.take(line)
    finally:
        code, stuck = _end(child, at_once=bool(hung_s))
    return heard.answer(code, hung_s, stuck=stuck)


class _Heard:
    """What a child told so far."""

    def __init__(self, backend: str) -> None:
        self.phase, self.ending = "", ""
        self._backend = backend
        self._fields: dict[str, Any] = {}
        self._devices: list[dict[str, Any]] = []
        self._notes: list[Note] = []

    def take(self, line: bytes) -> None:
        """One line: a phase, a remark, the last word, or fields."""
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            return
        if "phase" in told:
            self.phase = told["phase"]
        elif "note" in told:
            self._notes.append(Note(told.pop("note"), told))
        elif "devices" in told:
            self._devices = told["devices"]
        elif told.keys() & {"done", "missing", "failed", "broken"}:
            self._last(told)
        else:
            self._fields.update(told)

    def _last(self, told: dict[str, Any]) -> None:
        self.ending = next(word for word in ("done", "missing", "failed", "broken") if word in told)
        if self.ending == "broken":
            self._notes.append(Note("broken", {"error": told["error"], "phase": self.phase}))
        elif self.ending == "failed" and told["text"] == "moved":
            self._notes.append(Note("moved"))
        elif self.ending == "failed":
            number, text = told["code"], told["text"]
            error = f"{number} {text}".strip() if number else text
            why = meaning(self._backend, number)
            values = {"call": told["call"], "error": error, "meaning": why, "number": number}
            self._notes.append(Note("driver", values))

    def answer(self, code: int | None, hung_s: float, *, stuck: bool) -> Answer:
        """Everything, with how it ended when it did not say so itself."""
        ending, notes = self.ending, list(self._notes)
        where: dict[str, int | str] = {"phase": self.phase or "start"}
        if not ending and hung_s:
            ending = "hung"
            notes.append(Note("hung", {"seconds": max(1, round(hung_s)), **where}))
        elif not ending and (code is None or code < 0 or code > 255):
            ending = "crashed"
            notes.append(Note("crashed", {"how": _how(code), **where}))
        elif not ending:
            ending = "left"
            notes.append(Note("left", {"exit_code": code or 0, **where}))
        return Answer(ending, self._fields, self._devices, tuple(notes), stuck)


def _how(code: int | None) -> str:
    """SIGSEGV, or Windows' status of a crash."""
    if code is None:
        return "?"
    if code > 255:
        return f"0x{code & 0xFFFFFFFF:08X}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return str(code)


def _hear(child: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    assert child.stdout is not None  # noqa: S101  (asked for above)
    with contextlib.suppress(OSError, ValueError), child.stdout:
        while line := child.stdout.readline(_LINE):
            lines.put(line)
    lines.put(None)


def _end(child: subprocess.Popen[bytes], *, at_once: bool) -> tuple[int | None, bool]:
    """(exit code, whether it cannot be ended): a process inside the kernel ignores even SIGKILL."""
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if not at_once:
                return child.wait(1.0), False
        _kill(child)
        return child.wait(_AFTER_KILL_S), False
    except subprocess.TimeoutExpired:
        return None, True
    finally:
        with contextlib.suppress(OSError):
            if child.stdin:
                child.stdin.close()


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The child and whatever its driver started."""
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
