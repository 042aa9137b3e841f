"""`kvwise run` as a process of its own, followed by its events."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import psutil

SOON = 60.0
ROOT = Path(__file__).parents[2]
QWEN = str(ROOT / "tests/zoo/models/qwen3-8b.json.gz")


@dataclass(frozen=True)
class Done:
    """Its exit code, its events, and what stood on stderr."""

    code: int
    events: list[dict[str, Any]]
    err: str

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event.get("event") == name]

    def causes(self, name: str = "failed") -> list[str]:
        return [event["cause"] for event in self.named(name)]


Inside = Callable[..., Done]


class Running:
    """Start `kvwise run --json WORDS...`; leaving the block kills whatever is left."""

    def __init__(self, *words: str, env: dict[str, str] | None = None, json_events: bool = True,
                 before: str = "", **options: Any) -> None:  # fmt: skip
        command = [sys.executable, "-m", "kvwise", "run", *(["--json"] if json_events else [])]
        command += words
        if before:  # like `ulimit -v 1000000 && exec`
            command = ["sh", "-c", f'{before} && exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})}, start_new_session=True, **options,
        )  # fmt: skip
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._new: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._json = json_events
        self._threads = [
            threading.Thread(target=self._hear_out, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._hear_err, args=(self.process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _hear_out(self, stream: IO[bytes]) -> None:
        for raw in stream:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            self.lines.append(line)
            if self._json:
                event = json.loads(line)
                self.events.append(event)
                self._new.put(event)
            elif line.startswith("ready "):
                self._new.put({"event": "ready", "url": line.removeprefix("ready ")})
        self._new.put(None)

    def _hear_err(self, stream: IO[bytes]) -> None:
        for raw in stream:
            self.errors.append(raw.decode("utf-8", "replace").rstrip("\n"))

    def until(self, name: str, timeout: float = SOON) -> dict[str, Any]:
        """The next event of that name."""
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            try:
                event = self._new.get(timeout=left)
            except queue.Empty:
                break
            if event is None:
                raise AssertionError(f"it ended before {name}: {self.lines} {self.errors[-20:]}")
            if event.get("event") == name:
                return event
        raise AssertionError(f"no {name} within {timeout} s: {self.lines} {self.errors[-20:]}")

    def wait(self, timeout: float = SOON) -> int:
        """Its exit code, with everything it printed read."""
        code = self.process.wait(timeout)
        for thread in self._threads:
            thread.join(SOON)
        assert not any("Traceback" in line for line in self.errors), self.errors
        return code

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def named(self, name: str) -> list[dict[str, Any]]:
        """All events of that name so far."""
        return [event for event in self.events if event.get("event") == name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def post(url: str, path: str, body: bytes = b"{}") -> bytes:
    """A POST whose answer may be cut off by the end of the server."""
    request = urllib.request.Request(url + path, data=body, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())
    except OSError:
        return b""


def gone(pid: int, timeout: float = 20.0) -> bool:
    """Does the process end (or is it a zombie of someone else) within that time?"""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


GPU = ("--gpu", "name=card,total=6GiB,free=6GiB,kind=cuda")
TAKEN = ("-m", QWEN, "-np", "1", "-ngl", "99", "-fit", "off", *GPU)
"""A command that is taken as it stands, of a model that kvwise can account for."""
KV_OOM = [
    "0.01.000.000 E alloc_tensor_range: failed to allocate CUDA0 buffer of size 1073741824",
    (
        "0.01.000.001 E llama_init_from_model: failed to initialize the context: failed to "
        "allocate buffer for kv cache"
    ),
]


def run(program: Path, *words: str, any_port: bool = False, **options: Any) -> Running:
    """With a port of its own, because tests that run at the same time would take it from it."""
    port = () if any_port or "--port" in words else ("--port", str(free_port()))
    return Running("--engine", str(program), *port, *words, **options)


def served(program: Path, *words: str, **options: Any) -> tuple[Running, dict[str, Any]]:
    """A run that came up, and its readiness event; the caller ends it."""
    running = run(program, *words, **options)
    return running, running.until("ready")
