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
    with ExitStack() as stack:
        path = stack.enter_context(_file(ref))
        gpus = None
        if chosen:
            _needs_binary(engine, chosen)
            gpus = stack.enter_context(VirtualDevices(map(VirtualGPU.of, chosen)))
        said = _ask(engine, path, launch, gpus, limit_s)
    ledger = ledger_of(said, model, launch, chosen, host)
    return Simulation(ledger, said.rows, said.argv, engine)


def _needs_binary(engine: Engine, devices: Sequence[Device]) -> None:
    if engine.kind == "embedded":
        raise UsageError(
            "the embedded engine cannot simulate {device}: it knows only this processor",
            device=devices[0].name,
            hint="give --engine PATH of a llama.cpp built with RPC, or leave the devices out",
        )


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


def _ask(
    engine: Engine, path: Path, launch: Launch, gpus: VirtualDevices | None, limit_s: float
) -> Pass:
    """llama-fit-params where it has the flags and is there, else a server."""
    if engine.kind == "embedded":
        here = replace(launch, devices=(), n_gpu_layers=0)
        return noalloc_server.in_embedded(path, here, limit_s=limit_s)
    # The GPUs are those that `-dev` and `-sm none` left, so both have had their say.
    one = launch.split_mode == "none"
    launch = replace(
        launch,
        devices=() if gpus else ("none",),
        main_gpu=0 if one else launch.main_gpu,
    )
    tool = engine.tool("llama-fit-params")
    if tool is not None and fit.expressible(launch):
        return fit.measure(tool, path, launch, gpus, limit_s=limit_s)
    if not noalloc_server.expressible(launch):
        raise UsageError(
            "{engine} cannot be asked about this launch: its tools keep another number of logits",
            engine=engine.name,
            hint="leave --n-outputs-max to the engine",
        )
    return noalloc_server.in_server(engine, path, launch, gpus, limit_s=limit_s)
