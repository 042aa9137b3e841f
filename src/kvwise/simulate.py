"""Ledger from the engine's own no-alloc pass: what llama.cpp itself says a launch will take.

With a user's llama.cpp the GPUs need not exist: virtual devices stand in for them, unless the
engine is asked about those that it has itself (`own`). The embedded engine knows only the
processor. A model that is not a GGUF file here (zoo JSON, URL, Hub) is asked about through a sparse
twin of its header. Nothing is loaded either way.
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
from kvwise.engine.find import FIT_PARAMS, SERVER, Engine, binary, find
from kvwise.engine.noalloc import Pass, Row
from kvwise.engine.simulated import Told, ledger_of, tell
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.errors import UsageError
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.gguf.writer import write_twin
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.memory.placement import buffer_name, select

How = Literal["embedded", "fit", "server"]


@dataclass(frozen=True, slots=True)
class Simulation:
    """A ledger, and what it was read from: `rows` are the engine's own table (whole MiB, cut
    off), GPUs in order, the host after them; `told` the same for each line of the ledger, as fine
    as the log has it; `argv` the command that printed it. `own` = on the engine's own devices."""

    ledger: Ledger
    rows: tuple[Row, ...]
    told: tuple[tuple[Told, ...], ...]
    argv: tuple[str, ...]
    engine: Engine
    own: bool = False


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
    own: bool = False,
    twin: bool = False,
    limit_s: float = 120.0,
) -> Simulation:
    """`simulate`, with the engine's table and command beside the ledger.

    `own` asks a binary about the devices that it sees itself, so that nothing stands in for them.
    `twin` asks about a twin even of a file that is here: it has no vocabulary, which takes the
    engine longer to read than all the rest.
    The rules of the ledger's launch are those of the engine's build, when that is known.
    """
    asking = _asking(launch, devices, engine, own=own)
    model = describe(open_header(ref))
    with ExitStack() as stack:
        path = stack.enter_context(_file(model, twin=twin))
        gpus = stack.enter_context(asking.stand_ins()) if asking.virtual else None
        said = _ask(asking, path, gpus, limit_s=limit_s)
    names = tuple(map(buffer_name, asking.devices)) if own else None
    return Simulation(
        ledger_of(said, model, asking.launch, asking.devices, host, names=names),
        said.rows,
        tell(said, asking.devices, names),
        said.argv,
        asking.engine,
        own,
    )


def command(
    ref: str,
    launch: Launch,
    devices: Sequence[Device] = (),
    *,
    engine: Engine | None = None,
    own: bool = False,
) -> tuple[str, ...]:
    """The command that `simulate` would run; `TWIN` and `PORT` stand for what is made for it.

    Raises what `simulate` raises before it starts anything.
    """
    asking = _asking(launch, devices, engine, own=own)
    place = open_header(ref).path
    path = Path(place if _is_gguf(place) else "TWIN")
    if not asking.virtual:
        return tuple(_command(asking, path, None))
    gpus = asking.stand_ins()
    try:
        argv = _command(asking, path, gpus)
    finally:
        gpus.close()
    return tuple(word.replace(gpus.endpoint, "127.0.0.1:PORT") for word in argv)


@dataclass(frozen=True, slots=True)
class _Asking:
    """Who is asked about what: `how` picks the program, `launch` has the engine's build."""

    how: How
    engine: Engine
    launch: Launch
    devices: tuple[Device, ...]
    own: bool

    @property
    def virtual(self) -> bool:
        return bool(self.devices) and not self.own

    def stand_ins(self) -> VirtualDevices:
        return VirtualDevices(map(VirtualGPU.of, self.devices))

    @property
    def asked(self) -> Launch:
        """The launch for the program; virtual GPUs are those that `-dev` and `-sm none` left."""
        if self.how == "embedded":
            return replace(self.launch, devices=(), n_gpu_layers=0)
        if self.own and self.devices:
            return self.launch
        main_gpu = 0 if self.launch.split_mode == "none" else self.launch.main_gpu
        return replace(self.launch, devices=() if self.devices else ("none",), main_gpu=main_gpu)


def _asking(
    launch: Launch, devices: Sequence[Device], engine: Engine | None, *, own: bool
) -> _Asking:
    engine = engine or find()
    if engine.build:
        launch = replace(launch, build=engine.build)
    chosen = select(launch, devices)
    how = _how(engine, launch, chosen)
    if how == "server":
        engine = _server(engine)
    return _Asking(how, engine, launch, chosen, own)


@contextmanager
def _file(model: Model, *, twin: bool = False) -> Iterator[Path]:
    """The model as a GGUF file: itself, or a sparse twin that is gone afterwards."""
    if not twin and _is_gguf(model.path):
        yield Path(model.path)
        return
    with tempfile.TemporaryDirectory(prefix="kvwise-twin-") as folder:
        path = Path(folder) / "twin.gguf"
        write_twin(model.header, path)
        yield path


def _is_gguf(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
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
                hint="give --engine PATH of a llama.cpp built with -DGGML_RPC=ON, or --cpu-only",
            )
        return "embedded"
    if fit.expressible(launch) and engine.tool(FIT_PARAMS) is not None:
        return "fit"
    if not noalloc_server.expressible(launch):
        raise UsageError(
            "{engine} cannot be asked about this launch: its tools keep another number of logits",
            engine=engine.name,
            hint="leave --n-outputs-max to the engine",
        )
    return "server"


def _server(engine: Engine) -> Engine:
    """The llama-server of an engine that was named by its llama-fit-params."""
    if Path(engine.path).stem != FIT_PARAMS:
        return engine
    server = engine.tool(SERVER)
    if server is None:
        raise UsageError(
            "{engine} has no flag for these settings, and no llama-server is beside it",
            engine=engine.name,
            hint="give --engine PATH of a llama-server",
        )
    return binary(server)


def _fit_params(engine: Engine) -> Path:
    tool = engine.tool(FIT_PARAMS)
    assert tool is not None  # noqa: S101 (`_how` looked)
    return tool


def _command(asking: _Asking, path: Path, gpus: VirtualDevices | None) -> list[str]:
    if asking.how == "embedded":
        return noalloc_server.embedded_command(path, asking.asked)
    if asking.how == "fit":
        return fit.command(_fit_params(asking.engine), path, asking.asked, gpus)
    return noalloc_server.server_command(asking.engine, path, asking.asked, gpus)


def _ask(asking: _Asking, path: Path, gpus: VirtualDevices | None, *, limit_s: float) -> Pass:
    if asking.how == "embedded":
        return noalloc_server.in_embedded(path, asking.asked, limit_s=limit_s)
    if asking.how == "fit":
        tool = _fit_params(asking.engine)
        return fit.measure(tool, path, asking.asked, gpus, limit_s=limit_s)
    return noalloc_server.in_server(asking.engine, path, asking.asked, gpus, limit_s=limit_s)
