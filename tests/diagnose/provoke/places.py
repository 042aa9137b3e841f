"""Where an engine fails: small cards, dead servers, taken ports, limits of the system."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2

from kvwise.engine.find import Engine
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.units import MIB
from models import smollm2

from .requests import LIMIT_S


@contextlib.contextmanager
def virtual(gpu: VirtualGPU) -> Iterator[tuple[str, ...]]:
    with VirtualDevices([gpu], (5,)) as devices:
        yield ("--rpc", devices.endpoint)


def full_card(_: Engine) -> Any:
    """A card on which weights fit and a long cache does not."""
    return virtual(VirtualGPU(220 * MIB, 220 * MIB))


def tiny_card(_: Engine) -> Any:
    return virtual(VirtualGPU(60 * MIB, 60 * MIB))


def compute_card(_: Engine) -> Any:
    return virtual(VirtualGPU(190 * MIB, 190 * MIB))


def broken_card(_: Engine) -> Any:
    """Enough is free, but not in one piece."""
    return virtual(VirtualGPU(2048 * MIB, 2048 * MIB, largest_block_bytes=256 * MIB))


@contextlib.contextmanager
def nobody(_: Engine) -> Iterator[tuple[str, ...]]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    yield ("--rpc", f"127.0.0.1:{port}")


RPC_SERVER = "ggml-rpc-server"


class Remote:
    """A real RPC server that is killed while the engine generates through it."""

    process: subprocess.Popen[bytes]

    @contextlib.contextmanager
    def around(self, engine: Engine) -> Iterator[tuple[str, ...]]:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
        program = Path(engine.path).with_name(RPC_SERVER)
        with subprocess.Popen(
            [program, "-p", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as self.process:
            try:
                for _ in range(200):
                    with (
                        contextlib.suppress(OSError),
                        socket.create_connection(("127.0.0.1", int(port)), 1),
                    ):
                        break
                    time.sleep(0.05)
                yield ("--rpc", f"127.0.0.1:{port}")
            finally:
                self.process.kill()

    def ask(self, url: str) -> None:
        body = {"prompt": "Once", "n_predict": 400, "ignore_eos": True, "stream": True}
        with (
            contextlib.suppress(httpx2.HTTPError),
            httpx2.stream(
                "POST", url + "/completion", json=body, timeout=LIMIT_S, trust_env=False
            ) as answer,
        ):
            for number, _ in enumerate(answer.iter_lines()):
                if number == 4:
                    self.process.kill()


REMOTE = Remote()


def unlocked() -> tuple[str, ...]:
    """Start the engine where it may lock 64 KiB of memory only."""
    if not shutil.which("prlimit") or not shutil.which("setpriv"):
        return ()
    root = ("setpriv", "--bounding-set", "-ipc_lock") if os.geteuid() == 0 else ()
    return (*root, "prlimit", "--memlock=65536:65536")


@contextlib.contextmanager
def taken(_: Engine) -> Iterator[tuple[str, ...]]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield ("--port", str(other.getsockname()[1]))


def draft(words: tuple[str, ...]) -> Callable[[Engine], Any]:
    @contextlib.contextmanager
    def around(_: Engine) -> Iterator[tuple[str, ...]]:
        yield ("-md", str(smollm2()), *words)

    return around


GROUPS = Path("/sys/fs/cgroup")


def memory_groups() -> Path | None:
    """The folder in which this process may make memory cgroups, None where it may not."""
    controllers = GROUPS / "cgroup.controllers"
    if (GROUPS / "memory/memory.limit_in_bytes").exists():
        parent = GROUPS / "memory"
    elif controllers.exists() and "memory" in (GROUPS / "cgroup.subtree_control").read_text():
        parent = GROUPS
    else:
        return None
    return parent if os.access(parent, os.W_OK) and os.geteuid() == 0 else None


@contextlib.contextmanager
def memory_group(limit: int) -> Iterator[tuple[str, ...]]:
    """A cgroup of so many bytes; gives the program that enters it and starts another one."""
    parent = memory_groups()
    assert parent is not None
    group = parent / f"kvwise-test-{os.getpid()}"
    group.mkdir()
    second = group / "memory.max"  # cgroup v2; the other names are those of v1
    try:
        (second if second.exists() else group / "memory.limit_in_bytes").write_text(str(limit))
        if (group / "memory.swap.max").exists():
            (group / "memory.swap.max").write_text("0")
        yield ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)
