"""Ledger from the engine's own no-alloc pass: what llama.cpp itself says a launch will take.

With a user's llama.cpp the GPUs need not exist: virtual devices stand in for them. The embedded
engine knows only the processor. A model that is not a GGUF file here (zoo JSON, URL, Hub) is asked
about through a sparse twin of its header. Nothing is loaded either way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kvwise.arch import describe
from kvwise.device import Device, Host
from kvwise.engine import fit, noalloc_server
from kvwise.engine.find import Engine, find
from kvwise.engine.noalloc import Pass, Row
from kvwise.engine.simulated import ledger_of
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.errors import UsageError
from kvwise.gguf.open import open_header
from kvwise.gguf.writer import write_twin
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.memory.placement import select

_FIT = "llama-fit-params"
How = Literal["embedded", "fit", "server"]


@dataclass(frozen=True, slots=True)
class Simulation:
    """A ledger, and what it was read from: `rows` are the engine's own table (whole MiB, cut
    off), GPUs in order, the host after them; `argv` the command that printed it."""

    ledger: Ledger
    rows: tuple[Row, ...]
    argv: tuple[str, ...]
    engine: Engine


def simulate(
    ref: str,
    launch: Launch,
    devices: Sequence[Device] = (),
    *,
    engine: Engine | None = None,
    host: Host | None = None,
    limit_s: float = 120.0,
) -> Ledger:
    """The ledger of a launch as the engine's no-alloc pass sees it (basis `simulated`).

    `ref` is MODEL as in the command line; `devices` need not exist, except that the embedded
    engine takes none. Compute and output are the engine's to 0.01 MiB, weights and caches are
    whole MiB, cut off (llama-fit-params prints no more).
    Raises Refused with the engine's own reason, UsageError for what this engine cannot be asked,
    EngineError, SourceError, HeaderError, ModelError.
    """
    return simulation(ref, launch, devices, engine=engine, host=host, limit_s=limit_s).ledger


def simulation(
    ref: str,
    launch: Launch,
    devices: Sequence[Device] = (),
    *,
    engine: Engine | None = None,
    host: Host | None = None,
    limit_s: float = 120.0,
) -> Simulation:
    """`simulate`, with the engine's table and command beside the ledger."""
    engine = engine or find()
    model = describe(open_header(ref))
    chosen = select(launch, devices)
    how = _how(engine, launch, chosen)
    with ExitStack() as stack:
        path = stack.enter_context(_file(ref))
        gpus = None
        if chosen:
            gpus = stack.enter_context(VirtualDevices(map(VirtualGPU.of, chosen)))
        said = _ask(how, engine, path, launch, gpus, limit_s=limit_s)
    ledger = ledger_of(said, model, launch, chosen, host)
    return Simulation(ledger, said.rows, said.argv, engine)


def command(
    ref: str, launch: Launch, devices: Sequence[Device] = (), *, engine: Engine | None = None
) -> tuple[str, ...]:
    """The command that `simulate` would run; `TWIN` and `PORT` stand for what is made for it.

    Raises UsageError and Refused as `simulate` does before it starts anything.
    """
    engine = engine or find()
    chosen = select(launch, devices)
    how = _how(engine, launch, chosen)
    path = Path(ref if _is_gguf(ref) else "TWIN")
    gpus = VirtualDevices(map(VirtualGPU.of, chosen)) if chosen else None
    try:
        asked = _asked(launch, gpus)
        if how == "embedded":
            argv = noalloc_server.embedded_command(path, _embedded(launch))
        elif how == "fit":
            argv = fit.command(_fit_params(engine), path, asked, gpus)
        else:
            argv = noalloc_server.server_command(engine, path, asked, gpus)
    finally:
        if gpus is not None:
            gpus.close()
    if gpus is not None:
        argv = [word.replace(gpus.endpoint, "127.0.0.1:PORT") for word in argv]
    return tuple(argv)


@contextmanager
def _file(ref: str) -> Iterator[Path]:
    """The model as a GGUF file: itself, or a sparse twin that is gone afterwards."""
    if _is_gguf(ref):
        yield Path(ref)
        return
    with tempfile.TemporaryDirectory(prefix="kvwise-twin-") as folder:
        path = Path(folder) / "twin.gguf"
        write_twin(open_header(ref), path)
        yield path


def _is_gguf(ref: str) -> bool:
    try:
        with Path(ref).open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def _how(engine: Engine, launch: Launch, devices: Sequence[Device]) -> How:
    """Who is asked: llama-fit-params where it has the flags and is there, else a server."""
    if engine.kind == "embedded":
        if devices:
            raise UsageError(
                "the embedded engine cannot simulate {device}: it knows only this processor",
                device=devices[0].name,
                hint="give --engine PATH of a llama.cpp built with RPC, or leave the devices out",
            )
        return "embedded"
    if fit.expressible(launch) and engine.tool(_FIT) is not None:
        return "fit"
    if not noalloc_server.expressible(launch):
        raise UsageError(
            "{engine} cannot be asked about this launch: its tools keep another number of logits",
            engine=engine.name,
            hint="leave --n-outputs-max to the engine",
        )
    return "server"


def _fit_params(engine: Engine) -> Path:
    tool = engine.tool(_FIT)
    assert tool is not None  # noqa: S101 (`_how` looked)
    return tool


def _asked(launch: Launch, gpus: VirtualDevices | None) -> Launch:
    """The launch for a tool whose GPUs are those that `-dev` and `-sm none` left."""
    main_gpu = 0 if launch.split_mode == "none" else launch.main_gpu
    return replace(launch, devices=() if gpus else ("none",), main_gpu=main_gpu)


def _ask(
    how: How,
    engine: Engine,
    path: Path,
    launch: Launch,
    gpus: VirtualDevices | None,
    *,
    limit_s: float,
) -> Pass:
    if how == "embedded":
        return noalloc_server.in_embedded(path, _embedded(launch), limit_s=limit_s)
    asked = _asked(launch, gpus)
    if how == "fit":
        return fit.measure(_fit_params(engine), path, asked, gpus, limit_s=limit_s)
    return noalloc_server.in_server(engine, path, asked, gpus, limit_s=limit_s)


def _embedded(launch: Launch) -> Launch:
    return replace(launch, devices=(), n_gpu_layers=0)
