"""One run of llama-fit-params: what the engine's no-alloc pass says, and what it would choose.

Its table is in whole MiB, cut off; with every log line on, caches, output and compute come rounded
to 0.01 MiB. Against our virtual devices (`virtual.py`) the GPUs need not exist.
Source: tools/fit-params, common/fit.cpp, b10605.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvwise.engine.noalloc import HOST, Pass, Row, negotiated, on_virtual, run, table, whole, why
from kvwise.engine.virtual import VirtualDevices
from kvwise.errors import EngineError
from kvwise.launch import Launch

_ROW = re.compile(r"^(\S{1,80}) (\d{1,12}) (\d{1,12}) (\d{1,12})\s*$")
EVERYTHING = ("--verbosity", "5")
"""The pass logs its lines as debug (common_get_device_memory_data)."""
_ALL_LAYERS = "999"
_TRIES = 8


@dataclass(frozen=True, slots=True)
class FitChoice:
    """What llama.cpp itself would start with (`--fit on`); `argv` as it printed it."""

    n_ctx: int
    n_gpu_layers: int
    tensor_split: tuple[int, ...]
    override_tensor: str
    argv: tuple[str, ...]


def settings(launch: Launch, gpus: VirtualDevices | None = None) -> list[str]:
    """The launch as llama-fit-params takes it: every setting that moves bytes, spelled out.

    It has no flag for a unified cache, embeddings or how many logits are kept: see `expressible`.
    Buffer names in `-ot` that end in a GPU's number become that virtual GPU's.
    """
    layers = launch.n_gpu_layers
    argv = ["-c", str(launch.n_ctx), "-b", str(launch.n_batch), "-ub", str(launch.n_ubatch)]
    argv += ["-np", str(launch.n_seq_max), "-fa", launch.flash_attn]
    argv += ["-ctk", launch.type_k, "-ctv", launch.type_v, "-sm", launch.split_mode]
    argv += ["-ngl", _ALL_LAYERS if layers < 0 else str(layers), "-mg", str(launch.main_gpu)]
    if gpus is None and launch.devices:
        argv += ["-dev", ",".join(launch.devices)]
    if launch.tensor_split:
        argv += ["-ts", ",".join(f"{share:.9g}" for share in launch.tensor_split)]
    if launch.n_cpu_moe:
        argv += ["-ncmoe", str(launch.n_cpu_moe)]
    if launch.override_tensor:
        pairs = rename_buffers(launch.override_tensor, gpus)
        argv += ["-ot", ",".join(f"{pattern}={buffer}" for pattern, buffer in pairs)]
    switches = {
        "--swa-full": launch.swa_full,
        "-nkvo": not launch.offload_kqv,
        "--no-op-offload": not launch.op_offload,
        "--no-repack": not launch.repack,
    }
    return argv + [flag for flag, on in switches.items() if on]


def rename_buffers(
    pairs: Sequence[tuple[str, str]], gpus: VirtualDevices | None
) -> tuple[tuple[str, str], ...]:
    """`-ot` pairs with `CUDA0`, `VGPU1`... as the virtual GPU of that number is called."""
    if gpus is None:
        return tuple(pairs)
    renamed = []
    for pattern, buffer in pairs:
        number = re.search(r"[A-Za-z](\d{1,2})$", buffer)
        known = number is not None and int(number[1]) < len(gpus.buffers)
        name = gpus.buffers[int(number[1])] if number is not None and known else buffer
        renamed.append((pattern, name))
    return tuple(renamed)


def expressible(launch: Launch) -> bool:
    """Can llama-fit-params be asked about this launch? If not, llama-server may be."""
    rows = launch.n_outputs_max
    every = rows == 0 or rows >= min(launch.n_batch, launch.n_ubatch)
    one_cache = not launch.kv_unified or launch.n_seq_max == 1
    plain = not (launch.embeddings or launch.n_rs_seq or launch.load_mtp or launch.mtp)
    return every and one_cache and plain and not (launch.spec_types or launch.model_draft)


def command(
    tool: Path, model: Path, launch: Launch, gpus: VirtualDevices | None = None
) -> list[str]:
    """The command that `measure` runs."""
    argv = [str(tool), "-m", str(model), *on_virtual(gpus), *settings(launch, gpus)]
    return [*argv, "--fit-print", "on", *EVERYTHING]


def measure(
    tool: Path,
    model: Path,
    launch: Launch,
    gpus: VirtualDevices | None = None,
    *,
    limit_s: float = 120.0,
) -> Pass:
    """What llama-fit-params says about a launch, on virtual GPUs or on the tool's own devices.

    Raises Refused with the engine's reason when it would not start, EngineError for anything else.
    """
    argv = command(tool, model, launch, gpus)
    found: Pass | None = None
    for _ in range(_TRIES):
        got = negotiated(gpus, lambda: run(argv, limit_s=limit_s))
        rows = _rows(got.stdout)
        # The log is written by a thread of its own: now and then the tool ends before its last
        # lines are out, which are the table again, or the reason of a refusal.
        logged = table(got.loaded)
        if got.outcome.code == 0 and rows:
            names = {row.device for row in rows}
            more = tuple(row for row in logged if row.device not in names)  # repacked weights
            found = Pass(rows + more, got.loaded, tuple(argv))
            if any(row.device == HOST for row in logged):
                return found
        elif got.loaded.failures:
            break
    if found is not None:
        return found
    raise why(got, tool.name)


def choose(
    tool: Path,
    model: Path,
    launch: Launch,
    gpus: VirtualDevices | None = None,
    *,
    fixed: Sequence[str] = (),
    limit_s: float = 300.0,
) -> FitChoice:
    """What llama.cpp would start with by itself (`--fit on`).

    Of `launch`, only what `--fit` never changes is passed on; context, layers, splits and
    placement are left to it. `fixed` are flags to add (`-c 8192`, `-fitt 512`, `-fitc 4096`).
    Raises EngineError when it finds nothing that fits.
    """
    free = settings(launch, gpus)
    for flag in ("-c", "-ngl", "-ts", "-ncmoe", "-ot"):
        if flag in free:
            at = free.index(flag)
            del free[at : at + 2]
    argv = [str(tool), "-m", str(model), *on_virtual(gpus), *free, *fixed]
    got = negotiated(gpus, lambda: run(argv, limit_s=limit_s))
    if got.outcome.code != 0:
        raise why(got, tool.name)
    return read_choice(got.stdout)


def read_choice(text: str) -> FitChoice:
    """The line that llama-fit-params prints: `-c 4096 -ngl 31 -ts 3,1 -ot "..."`."""
    try:
        words = shlex.split(text)
        given = dict(zip(words[::2], words[1::2], strict=True))
        split = tuple(int(part) for part in given.get("-ts", "").split(",") if part)
        return FitChoice(
            int(given["-c"]), int(given["-ngl"]), split, given.get("-ot", ""), tuple(words)
        )
    except (ValueError, KeyError):
        raise EngineError(
            "llama-fit-params printed {text!r}, not the settings it chose", text=text[:200]
        ) from None


def _rows(text: str) -> tuple[Row, ...]:
    found = (_ROW.match(line) for line in text.splitlines())
    return tuple(Row(m[1], whole(m[2]), whole(m[3]), whole(m[4])) for m in found if m)
