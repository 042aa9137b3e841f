"""Starting an engine so that it fails, and the log that it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx2

from kvwise.engine.find import Engine, find
from kvwise.engine.process import Child, Limits
from kvwise.engine.settings import Run, embedded_spec
from kvwise.launch import Launch

from . import places
from .requests import LIMIT_S
from .table import Failure

_TRIES = 5


def suits(failure: Failure, engine: Engine) -> bool:
    """Is the failure one of this engine, and of this machine?"""
    kind = "vulkan" if _is_vulkan(engine) else engine.kind
    grouped = failure.memory_group is None or places.memory_groups() is not None
    return kind in failure.engines and failure.live and grouped


def _is_vulkan(engine: Engine) -> bool:
    program = os.environ.get("KVWISE_TEST_VULKAN")
    return bool(program) and engine.path == find(program).path


def run(failure: Failure, engine: Engine, folder: Path) -> tuple[bytes, int]:
    """The engine's log and exit status. It was asked to end once it had answered.

    An engine that refuses may be gone before it has written why (1 in 10 on b10605): once more.
    """
    for _ in range(_TRIES):
        log, code, said = _run(failure, engine, folder)
        if said or code != 1:
            break
    return log, code


def _run(failure: Failure, engine: Engine, folder: Path) -> tuple[bytes, int, bool]:
    limit = failure.memory_group
    group = places.memory_group(limit) if limit else contextlib.nullcontext(())
    around = failure.around(engine) if failure.around else contextlib.nullcontext(())
    with group as entered, around as words:
        argv = [*entered, *_argv(failure, engine, failure.model(folder), tuple(words))]
        log = folder / "engine.log"
        limits = Limits(silence_s=60.0, address_space_bytes=failure.address_space)
        shown = {"GGML_VK_VISIBLE_DEVICES": "0"} if _is_vulkan(engine) else {}  # also the processor
        with Child(
            argv,
            log=log,
            limits=limits,
            environment=shown,
            ends_with_stdin=engine.kind == "embedded",
        ) as child:
            _drive(child, failure, engine)
            outcome = child.outcome or child.stop()
    said = log.read_bytes()
    if limit and outcome.code == -signal.SIGKILL:
        said += _kernel_words(outcome.pid)
    return said, outcome.code, bool(outcome.failures)


def _kernel_words(pid: int) -> bytes:
    """What the kernel logged about a process that it ended, where that may be read."""
    kept = subprocess.run(["dmesg"], capture_output=True, check=False).stdout
    return b"".join(
        line + b"\n" for line in kept.splitlines() if b"Killed process %d " % pid in line
    )


def _drive(child: Child, failure: Failure, engine: Engine) -> None:
    if failure.stop_at:
        child.wait_until(lambda: any(failure.stop_at in line for line in child.tail), LIMIT_S)
        child.kill()
        child.wait(10)
        return
    url = _ready(child, engine)
    if url and failure.ask:
        failure.ask(url)


def _ready(child: Child, engine: Engine) -> str | None:
    """The address once the model is loaded; None when it ended."""
    if engine.kind == "embedded":
        child.wait_until(lambda: not child.answers.empty(), LIMIT_S)
        line = None if child.answers.empty() else child.answers.get_nowait()
        url = str(json.loads(line)["url"]).rstrip("/") if line else None
    else:
        child.wait_until(lambda: child.loaded.listening is not None, LIMIT_S)
        url = child.loaded.listening
    while url and child.outcome is None:
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.get(url + "/health", trust_env=False).status_code == 200:
                return url
        child.wait(0.05)
    return None


def _argv(failure: Failure, engine: Engine, model: Path, words: tuple[str, ...]) -> list[str]:
    if engine.kind == "binary":
        port = () if "--port" in words else ("--port", "0")
        return [
            *failure.before, engine.path, "-m", str(model), *failure.words, *words,
            *failure.special, "-lv", "4", "-t", "1", "--host", "127.0.0.1",
            "--cache-ram", "0", *port,
        ]  # fmt: skip
    launch = Launch.parse([*failure.words, *words])
    spec = embedded_spec(str(model), launch, Run(threads=1))
    for name, value in (failure.more or {}).items():
        spec["launch"][name] = value
    return [sys.executable, "-m", "kvwise.engine.embedded", json.dumps(spec)]


_CLEAN = (
    (re.compile(rb"127\.0\.0\.1:\d+"), b"127.0.0.1:PORT"),
    (re.compile(rb"port: \d+"), b"port: 8080"),
    (re.compile(rb"(?:/[\w.+@~-]+)+/([\w.-]+\.(?:gguf|cpp|c|h|cu|so|py))\b"), rb"PATH/\1"),
    (re.compile(rb"^.*Traceback(?:.|\n)*\Z", re.MULTILINE), b""),
    (
        re.compile(
            rb"^.*(?:control token|logit bias|OG token|FIM |tokenizer\.(?:chat|ggml\.t|ggml\.m)|"
            rb"^.{0,60}token +=).*\n",
            re.MULTILINE,
        ),
        b"",
    ),
    (re.compile(rb"^.*chat template, example_format(?:.|\n)*?\n'\n", re.MULTILINE), b""),
)


def clean(log: bytes) -> bytes:
    """Without paths, ports and names of a machine."""
    for pattern, instead in _CLEAN:
        log = pattern.sub(instead, log)
    return log
