"""Which failures are provoked, and which kind each must be called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvwise.engine.find import Engine
from kvwise.units import MIB
from models import gemma3, smollm2

from . import files, places, requests

SMALL = ("-c", "512", "-np", "1", "--no-warmup")


@dataclass(frozen=True)
class Failure:
    """One failure: its kind, the model, flags, and what is asked of the server when it is ready."""

    kind: str
    words: tuple[str, ...] = SMALL
    model: files.Made = lambda _: smollm2()
    ask: Callable[[str], None] | None = None
    engines: tuple[str, ...] = ("embedded", "binary")
    more: dict[str, Any] | None = None  # attributes of the embedded engine
    address_space: int | None = None
    memory_group: int | None = None  # bytes of a memory cgroup: the kernel kills what takes more
    around: Callable[[Engine], Any] | None = None  # a context that gives more flags
    stop_at: str = ""  # end it when its log says this
    special: tuple[str, ...] = ()  # flags of a binary that no Launch holds
    before: tuple[str, ...] = ()  # programs that start the engine
    beside: str = ""  # a program that must lie beside the engine
    memory: bool = False
    live: bool = True  # False: its log is kept, but it depends too much on the machine to be run


BINARY = ("binary",)
VULKAN = ("vulkan",)
"""A llama-server with Vulkan, on a device that the processor plays (llvmpipe)."""
FAILURES: dict[str, Failure] = {
    "v-needs-flash": Failure("fa-required", (*SMALL, "-ctv", "q4_0", "-fa", "off")),
    "block": Failure("cache-type-refused", engines=("embedded",), more={"type_k": "q4_K"}),
    "cache-type": Failure("cache-type-refused", engines=BINARY, special=("-ctk", "q4_K")),
    "missing-file": Failure("file-missing", model=files.missing),
    "cut-data": Failure("file-corrupt", model=files.cut(60_000_000)),
    "cut-header": Failure("file-corrupt", model=files.cut(100_000)),
    "empty-file": Failure("file-corrupt", model=files.cut(0)),
    "wrong-magic": Failure("file-corrupt", model=files.not_gguf),
    "architecture": Failure("arch-unknown", model=files.unknown),
    "missing-part": Failure("split-missing", model=files.first_part),
    "not-first-part": Failure("split-missing", model=lambda s: files.first_part(s, 1)),
    "missing-tensor": Failure("missing-tensor", model=files.without_tensor),
    "wrong-draft": Failure(
        "spec-vocab", model=lambda _: gemma3(), around=places.draft(("--spec-type", "draft-simple"))
    ),
    "draft-unused": Failure("speculation-off", engines=BINARY, around=places.draft(())),
    "no-mtp": Failure("speculation-off", (*SMALL, "--spec-type", "draft-mtp")),
    "spec-type": Failure("option-refused", engines=BINARY, special=("--spec-type", "bogus")),
    "embedding-above-ubatch": Failure(
        "embed-ubatch",
        (*SMALL, "--embedding", "--pooling", "mean", "-ub", "128", "-b", "128"),
        ask=requests.embedding,
    ),
    "context-overflow": Failure("context-overflow", ask=requests.long_prompt),
    "end-of-context": Failure("context-overflow", ask=requests.wall),
    "slots": Failure(
        "slot-split",
        ("-c", "2048", "-np", "4", "-no-kvu", "--no-warmup"),
        ask=requests.long_prompt,
    ),
    "no-cells": Failure(
        "kv-slot-exhaustion", ("-c", "512", "-np", "4", "-kvu", "--no-warmup"), ask=requests.many
    ),
    "reprocessed": Failure(
        "swa-reprocessing",
        ("-c", "4096", "-np", "1", "--no-warmup", "-ub", "256"),
        model=lambda _: gemma3(),
        ask=requests.edited,
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
    "vulkan-weights": Failure(
        "weights-oom", (*SMALL, "-ngl", "99", "-fit", "off"), address_space=1000 * MIB,
        memory=True, engines=VULKAN,
    ),
    "vulkan-compute": Failure(
        "compute-oom",
        ("-c", "8192", "-ub", "8192", "-b", "8192", "-fa", "off", "-np", "1", "-ngl", "99",
         "-fit", "off", "--no-warmup"),
        address_space=1500 * MIB, memory=True, engines=VULKAN,
    ),
    "fit-out-of-memory": Failure(
        "fit-crash", (*SMALL, "--no-mmap", "--no-repack"), address_space=200 * MIB,
        engines=BINARY, live=False,
    ),
    "device-weights": Failure(
        "weights-oom", (*SMALL, "-ngl", "99"), around=places.tiny_card, engines=BINARY, memory=True
    ),
    "device-cache": Failure(
        "kv-alloc-oom", ("-c", "8192", "-np", "1", "-ngl", "99"), around=places.full_card,
        engines=BINARY, memory=True,
    ),
    "device-compute": Failure(
        "compute-oom", ("-c", "4096", "-np", "1", "-ngl", "99", "-ub", "2048"),
        around=places.compute_card, engines=BINARY, memory=True,
    ),
    "device-block": Failure(
        "single-allocation-limit", ("-c", "16384", "-np", "1", "-ngl", "99"),
        around=places.broken_card, engines=BINARY,
    ),
    "port": Failure("port-taken", engines=BINARY, around=places.taken),
    "dead-rpc": Failure("rpc-unreachable", engines=BINARY, around=places.nobody),
    "lost-rpc": Failure(
        "rpc-unreachable", (*SMALL, "-ngl", "99"), around=places.REMOTE.around,
        ask=places.REMOTE.ask,
        engines=BINARY, beside=places.RPC_SERVER,
    ),
    "mlock": Failure(
        "mlock-warning", (*SMALL, "--mlock"), before=places.unlocked(), engines=BINARY,
        live=bool(places.unlocked()),
    ),
    "regex": Failure("option-refused", engines=BINARY, special=("-ot", "blk.[0-9=CPU")),
    "device": Failure("device-missing", engines=BINARY, special=("-dev", "CUDA9")),
    "option": Failure("option-refused", engines=BINARY, special=("--no-such-option",)),
    "removed-option": Failure("option-refused", engines=BINARY, special=("--draft-max", "8")),
    "hang": Failure("hang", stop_at="loading model tensors"),
}  # fmt: skip
HEALTHY: dict[str, Failure] = {
    "healthy": Failure("", ("-c", "1024", "-np", "1"), ask=lambda url: requests.post(
        url, "/completion", {"prompt": "Once upon a time", "n_predict": 8})),
    "healthy-slots": Failure("", ("-c", "2048", "-np", "4", "-kvu", "--no-warmup")),
    "healthy-window": Failure("", ("-c", "4096", "-np", "1"), model=lambda _: gemma3()),
    "healthy-quantized": Failure("", ("-c", "1024", "-np", "2", "-ctk", "q8_0", "-ctv", "q8_0")),
}  # fmt: skip
