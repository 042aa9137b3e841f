"""Real failures of real engines: how each is provoked, and which kind it must be called.

`python tests/diagnose/provoke.py FOLDER ENGINE...` writes a cleaned log of each. An engine is
`embedded` or the path of a llama-server.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2

from kvwise.engine.find import Engine, find
from kvwise.engine.process import Child, Limits
from kvwise.engine.settings import Run, embedded_spec
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.gguf.header import Header
from kvwise.gguf.open import open_header
from kvwise.gguf.writer import Entry, _place, encode, twin_entries, write_twin
from kvwise.launch import Launch
from kvwise.units import MIB, pad

MODELS = Path(__file__).parents[1]
sys.path.insert(0, str(MODELS))
from models import gemma3, smollm2  # noqa: E402

LIMIT_S = 120.0
_TRIES = 5
SMALL = ("-c", "512", "-np", "1", "--no-warmup")


@dataclass(frozen=True)
class Setting:
    """What a failure needs: a folder for files, the engine, and what was set up for it."""

    folder: Path
    engine: Engine


Ask = Callable[[str], None]


@dataclass(frozen=True)
class Failure:
    """One failure: its kind, the model, flags, and what is asked of the server when it is ready."""

    kind: str
    words: tuple[str, ...] = SMALL
    model: Callable[[Setting], Path] = lambda _: smollm2()
    ask: Ask | None = None
    engines: tuple[str, ...] = ("embedded", "binary")
    more: dict[str, Any] | None = None  # attributes of the embedded engine
    address_space: int | None = None
    memory_group: int | None = None  # bytes of a memory cgroup: the kernel kills what takes more
    around: Callable[[Setting], Any] | None = None  # a context that gives more flags
    stop_at: str = ""  # end it when its log says this
    special: tuple[str, ...] = ()  # flags of a binary that no Launch holds
    before: tuple[str, ...] = ()  # programs that start the engine
    beside: str = ""  # a program that must lie beside the engine
    memory: bool = False
    live: bool = True  # False: its log is kept, but it depends too much on the machine to be run


# -- models ----------------------------------------------------------------------------------------


def _header() -> Header:
    return open_header(str(smollm2()))


def _cut(size: int) -> Callable[[Setting], Path]:
    def model(setting: Setting) -> Path:
        path = setting.folder / "cut.gguf"
        with smollm2().open("rb") as file:
            path.write_bytes(file.read(size))
        return path

    return model


def _not_gguf(setting: Setting) -> Path:
    path = setting.folder / "page.gguf"
    path.write_text("hello, this is a web page\n" * 100)
    return path


def _missing(setting: Setting) -> Path:
    return setting.folder / "nothing.gguf"


def _unknown(setting: Setting) -> Path:
    header = _header()
    metadata = {
        key.replace("llama.", "nonesuch.", 1): value for key, value in header.metadata.items()
    }
    metadata["general.architecture"] = "nonesuch"
    path = setting.folder / "unknown.gguf"
    write_twin(replace(header, metadata=metadata), path)
    return path


def _without_tensor(setting: Setting) -> Path:
    header = _header()
    kept = tuple(each for each in header.tensors if each.name != "blk.3.attn_q.weight")
    path = setting.folder / "without.gguf"
    write_twin(replace(header, tensors=kept), path)
    return path


def _first_part(setting: Setting, number: int = 0) -> Path:
    """A part of a split model whose other parts are not there."""
    header = _header()
    entries = [
        *twin_entries(header),
        Entry("split.no", "uint16", number),
        Entry("split.count", "uint16", 3),
        Entry("split.tensors.count", "int32", 900),
    ]
    rows, size = _place(header)
    text = encode(entries, rows)
    path = setting.folder / f"parts-{number + 1:05d}-of-00003.gguf"
    with path.open("wb") as file:
        file.write(text)
        file.truncate(pad(len(text), header.alignment) + size)
    return path


# -- requests --------------------------------------------------------------------------------------


def _post(url: str, path: str, body: dict[str, Any]) -> None:
    with contextlib.suppress(httpx2.HTTPError):
        httpx2.post(url + path, json=body, timeout=LIMIT_S, trust_env=False)


def _long_prompt(url: str) -> None:
    _post(url, "/completion", {"prompt": list(range(100, 1500)), "n_predict": 1})


def _wall(url: str) -> None:
    _post(url, "/completion", {"prompt": list(range(100, 580)), "n_predict": 200})


def _embedding(url: str) -> None:
    _post(url, "/embedding", {"content": list(range(100, 400))})


def _many(url: str) -> None:
    """Requests at the same time that do not fit one cache together."""
    bodies = [
        {"prompt": list(range(100 + 7 * n, 260 + 7 * n)), "n_predict": 300, "ignore_eos": True}
        for n in range(4)
    ]
    threads = [threading.Thread(target=_post, args=(url, "/completion", body)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _edited(url: str) -> None:
    """A long prompt, then one that differs early: its window is gone."""
    first = list(range(1000, 2600))
    for prompt in (first, [*first[:300], *range(5000, 6000)]):
        _post(url, "/completion", {"prompt": prompt, "n_predict": 2, "cache_prompt": True})


# -- devices ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _virtual(gpu: VirtualGPU) -> Iterator[tuple[str, ...]]:
    with VirtualDevices([gpu], (5,)) as devices:
        yield ("--rpc", devices.endpoint)


def _full_card(_: Setting) -> Any:
    """A card on which weights fit and a long cache does not."""
    return _virtual(VirtualGPU(220 * MIB, 220 * MIB))


def _tiny_card(_: Setting) -> Any:
    return _virtual(VirtualGPU(60 * MIB, 60 * MIB))


def _compute_card(_: Setting) -> Any:
    return _virtual(VirtualGPU(190 * MIB, 190 * MIB))


def _broken_card(_: Setting) -> Any:
    """Enough is free, but not in one piece."""
    return _virtual(VirtualGPU(2048 * MIB, 2048 * MIB, largest_block_bytes=256 * MIB))


@contextlib.contextmanager
def _nobody(_: Setting) -> Iterator[tuple[str, ...]]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    yield ("--rpc", f"127.0.0.1:{port}")


_RPC_SERVER = "ggml-rpc-server"


class _Remote:
    """A real RPC server that is killed while the engine generates through it."""

    process: subprocess.Popen[bytes]

    @contextlib.contextmanager
    def around(self, setting: Setting) -> Iterator[tuple[str, ...]]:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
        program = Path(setting.engine.path).with_name(_RPC_SERVER)
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


_REMOTE = _Remote()


def _unlocked() -> tuple[str, ...]:
    """Start the engine where it may lock 64 KiB of memory only."""
    if not shutil.which("prlimit") or not shutil.which("setpriv"):
        return ()
    root = ("setpriv", "--bounding-set", "-ipc_lock") if os.geteuid() == 0 else ()
    return (*root, "prlimit", "--memlock=65536:65536")


@contextlib.contextmanager
def _taken(setting: Setting) -> Iterator[tuple[str, ...]]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield ("--port", str(other.getsockname()[1]))


def _draft(words: tuple[str, ...]) -> Callable[[Setting], Any]:
    @contextlib.contextmanager
    def around(_: Setting) -> Iterator[tuple[str, ...]]:
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
def _memory_group(limit: int) -> Iterator[tuple[str, ...]]:
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


BINARY = ("binary",)
VULKAN = ("vulkan",)
"""A llama-server with Vulkan, on a device that the processor plays (llvmpipe)."""
FAILURES: dict[str, Failure] = {
    "v-needs-flash": Failure("fa-required", (*SMALL, "-ctv", "q4_0", "-fa", "off")),
    "block": Failure("cache-type-refused", engines=("embedded",), more={"type_k": "q4_K"}),
    "cache-type": Failure("cache-type-refused", engines=BINARY, special=("-ctk", "q4_K")),
    "missing-file": Failure("file-missing", model=_missing),
    "cut-data": Failure("file-corrupt", model=_cut(60_000_000)),
    "cut-header": Failure("file-corrupt", model=_cut(100_000)),
    "empty-file": Failure("file-corrupt", model=_cut(0)),
    "wrong-magic": Failure("file-corrupt", model=_not_gguf),
    "architecture": Failure("arch-unknown", model=_unknown),
    "missing-part": Failure("split-missing", model=_first_part),
    "not-first-part": Failure("split-missing", model=lambda s: _first_part(s, 1)),
    "missing-tensor": Failure("missing-tensor", model=_without_tensor),
    "wrong-draft": Failure(
        "spec-vocab", model=lambda _: gemma3(), around=_draft(("--spec-type", "draft-simple"))
    ),
    "draft-unused": Failure("speculation-off", engines=BINARY, around=_draft(())),
    "no-mtp": Failure("speculation-off", (*SMALL, "--spec-type", "draft-mtp")),
    "spec-type": Failure("option-refused", engines=BINARY, special=("--spec-type", "bogus")),
    "embedding-above-ubatch": Failure(
        "embed-ubatch",
        (*SMALL, "--embedding", "--pooling", "mean", "-ub", "128", "-b", "128"),
        ask=_embedding,
    ),
    "context-overflow": Failure("context-overflow", ask=_long_prompt),
    "end-of-context": Failure("context-overflow", ask=_wall),
    "slots": Failure(
        "slot-split",
        ("-c", "2048", "-np", "4", "-no-kvu", "--no-warmup"),
        ask=_long_prompt,
    ),
    "no-cells": Failure(
        "kv-slot-exhaustion", ("-c", "512", "-np", "4", "-kvu", "--no-warmup"), ask=_many
    ),
    "reprocessed": Failure(
        "swa-reprocessing",
        ("-c", "4096", "-np", "1", "--no-warmup", "-ub", "256"),
        model=lambda _: gemma3(),
        ask=_edited,
        engines=BINARY,
        special=("--ctx-checkpoints", "0"),
    ),
    "huge-context": Failure("kv-alloc-oom", ("-c", "10000000", "-np", "1"), memory=True),
    "address-space": Failure(
        "kv-alloc-oom", ("-c", "131072", "-np", "1"), address_space=2300 * MIB, memory=True
    ),
    "weights-address-space": Failure(
        "weights-oom", (*SMALL, "--no-mmap", "--no-repack"), address_space=240 * MIB,
        memory=True, engines=BINARY, live=False,
    ),
    "group-weights": Failure(
        "weights-oom", (*SMALL, "--no-mmap", "--no-repack"), memory_group=64 * MIB, memory=True,
        engines=BINARY,
    ),
    "group-cache": Failure(
        "kv-alloc-oom", ("-c", "65536", "-np", "1"), memory_group=700 * MIB, memory=True
    ),
    "vulkan-cache": Failure(
        "kv-alloc-oom", ("-c", "65536", "-np", "1", "-ngl", "99", "-fit", "off", "--no-warmup"),
        address_space=2048 * MIB, memory=True, engines=VULKAN,
    ),
    "fit-out-of-memory": Failure(
        "fit-crash", (*SMALL, "--no-mmap", "--no-repack"), address_space=200 * MIB,
        engines=BINARY, live=False,
    ),
    "device-weights": Failure(
        "weights-oom", (*SMALL, "-ngl", "99"), around=_tiny_card, engines=BINARY, memory=True
    ),
    "device-cache": Failure(
        "kv-alloc-oom", ("-c", "8192", "-np", "1", "-ngl", "99"), around=_full_card,
        engines=BINARY, memory=True,
    ),
    "device-compute": Failure(
        "compute-oom", ("-c", "4096", "-np", "1", "-ngl", "99", "-ub", "2048"),
        around=_compute_card, engines=BINARY, memory=True,
    ),
    "device-block": Failure(
        "single-allocation-limit", ("-c", "16384", "-np", "1", "-ngl", "99"),
        around=_broken_card, engines=BINARY,
    ),
    "port": Failure("port-taken", engines=BINARY, around=_taken),
    "dead-rpc": Failure("rpc-unreachable", engines=BINARY, around=_nobody),
    "lost-rpc": Failure(
        "rpc-unreachable", (*SMALL, "-ngl", "99"), around=_REMOTE.around, ask=_REMOTE.ask,
        engines=BINARY, beside=_RPC_SERVER,
    ),
    "mlock": Failure(
        "mlock-warning", (*SMALL, "--mlock"), before=_unlocked(), engines=BINARY,
        live=bool(_unlocked()),
    ),
    "regex": Failure("option-refused", engines=BINARY, special=("-ot", "blk.[0-9=CPU")),
    "device": Failure("device-missing", engines=BINARY, special=("-dev", "CUDA9")),
    "option": Failure("option-refused", engines=BINARY, special=("--no-such-option",)),
    "removed-option": Failure("option-refused", engines=BINARY, special=("--draft-max", "8")),
    "hang": Failure("hang", stop_at="loading model tensors"),
}  # fmt: skip
HEALTHY: dict[str, Failure] = {
    "healthy": Failure("", ("-c", "1024", "-np", "1"), ask=lambda url: _post(
        url, "/completion", {"prompt": "Once upon a time", "n_predict": 8})),
    "healthy-slots": Failure("", ("-c", "2048", "-np", "4", "-kvu", "--no-warmup")),
    "healthy-window": Failure("", ("-c", "4096", "-np", "1"), model=lambda _: gemma3()),
    "healthy-quantized": Failure("", ("-c", "1024", "-np", "2", "-ctk", "q8_0", "-ctv", "q8_0")),
}  # fmt: skip


def suits(failure: Failure, engine: Engine) -> bool:
    """Is the failure one of this engine, and of this machine?"""
    vulkan = os.environ.get("KVWISE_TEST_VULKAN")
    kind = "vulkan" if vulkan and engine.path == find(vulkan).path else engine.kind
    grouped = failure.memory_group is None or memory_groups() is not None
    return kind in failure.engines and failure.live and grouped


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
    setting = Setting(folder, engine)
    limit = failure.memory_group
    group = _memory_group(limit) if limit else contextlib.nullcontext(())
    around = failure.around(setting) if failure.around else contextlib.nullcontext(())
    with group as entered, around as words:
        argv = [*entered, *_argv(failure, setting, tuple(words))]
        log = folder / "engine.log"
        limits = Limits(silence_s=60.0, address_space_bytes=failure.address_space)
        with Child(
            argv, log=log, limits=limits, ends_with_stdin=engine.kind == "embedded"
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


def _argv(failure: Failure, setting: Setting, words: tuple[str, ...]) -> list[str]:
    model, engine = failure.model(setting), setting.engine
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


if __name__ == "__main__":
    import tempfile

    from kvwise.diagnose import diagnose

    target, *engines = sys.argv[1:]
    only = [each[1:] for each in engines if each[0] == "="]
    for name in [each for each in engines if each[0] != "="]:
        used = find(name)
        for title, each in (FAILURES | HEALTHY).items():
            if not suits(each, used) or (only and title not in only):
                continue
            with tempfile.TemporaryDirectory() as scratch:
                log, code = run(each, used, Path(scratch))
            found = diagnose(log, exit_code=None if each.stop_at else code, numbers=False)
            kinds = [(f.kind, f.confidence, f.memory_is_the_cause) for f in found.findings]
            good = (kinds[:1] and kinds[0][0] == each.kind) or (not each.kind and not found.blamed)
            print("ok " if good else "BAD", used.kind, title, each.kind, code, found.outcome, kinds)
            Path(target).mkdir(exist_ok=True)
            Path(target, f"{title}-{used.build or 'b10605'}.log").write_bytes(clean(log))
