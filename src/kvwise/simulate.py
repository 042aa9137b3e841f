"""Ledger from the engine's own no-alloc pass: what llama.cpp itself says a launch will take.

With a user's llama.cpp the GPUs need not exist: virtual devices stand in for them, unless the
engine is asked about those that it has itself (`own`). The embedded engine knows only the
processor. A model that is not a GGUF file here (zoo JSON, URL, Hub) is asked about through a sparse
twin of its header. Nothing is loaded either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from kvwise.arch import describe
from kvwise.device import Device, Host
from kvwise.engine import fit, noalloc_server
from kvwise.engine.find import FIT_PARAMS, SERVER, Engine, binary, find
from kvwise.engine.noalloc import Pass, Row
from kvwise.engine.on_disk import named, on_disk
from kvwise.engine.simulated import Told, ledger_of, tell, tell_draft, tell_projector
from kvwise.engine.simulated_beside import with_beside
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.errors import Refused, UsageError
from kvwise.gguf.open import open_header
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.memory.placement import buffer_name, override_names, select
from kvwise.options import asked as asked_for

How = Literal["embedded", "fit", "server"]


@dataclass(frozen=True, slots=True)
class Simulation:
    """A ledger, and what it was read from: `rows` are the engine's own table (whole MiB, cut
    off), GPUs in order, the host after them; `told` the same for each device that the model uses,
    as fine as the log has it, the host last, and `beside` what was told of a draft and of a
    projector; `argv` the command that printed it. `devices` are all there are, `own` = the engine's
    own ones; `companions` are in the ledger."""

    ledger: Ledger
    rows: tuple[Row, ...]
    told: tuple[tuple[Told, ...], ...]
    argv: tuple[str, ...]
    engine: Engine
    own: bool = False
    devices: tuple[Device, ...] = ()
    companions: Companions = NONE
    beside: dict[str, tuple[tuple[Told, ...], ...]] = field(default_factory=dict)


def simulate(
    ref: str,
    launch: Launch,
    devices: Sequence[Device] = (),
    *,
    engine: Engine | None = None,
    host: Host | None = None,
    companions: Companions = NONE,
    limit_s: float = 120.0,
) -> Ledger:
    """The ledger of a launch as the engine's no-alloc pass sees it (basis `simulated`).

    `ref` is MODEL as in the command line; `devices` need not exist, except that the embedded
    engine takes none. Compute and output are the engine's to 0.01 MiB, weights and caches are
    whole MiB, cut off (llama-fit-params prints no more). What stands beside the model
    (`companions`) is the engine's where its pass measures it, else computed: see each basis.
    Raises Refused with the engine's own reason, UsageError for what this engine cannot be asked,
    EngineError, SourceError, HeaderError, ModelError.
    """
    return simulation(
        ref, launch, devices, engine=engine, host=host, companions=companions, limit_s=limit_s
    ).ledger


def simulation(
    ref: str,
    launch: Launch,
    devices: Sequence[Device] = (),
    *,
    engine: Engine | None = None,
    host: Host | None = None,
    own: bool = False,
    twin: bool = False,
    companions: Companions = NONE,
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
        files = on_disk(model, asking.asked, companions, twin=twin)
        path, wanted = stack.enter_context(files)
        gpus = stack.enter_context(asking.stand_ins()) if asking.virtual else None
        said = _ask(asking, path, wanted, gpus, limit_s=limit_s)
    names = tuple(map(buffer_name, asking.devices)) if own else None
    draft = tell_draft(said, asking.devices, names)
    ledger = ledger_of(said, model, asking.launch, asking.devices, host, names=names)
    return Simulation(
        _with_beside(ledger, asking, host, companions, draft),
        said.rows,
        tell(said, asking.devices, names),
        said.argv,
        asking.engine,
        own,
        asking.all,
        companions,
        {"draft": draft, "mmproj": tell_projector(said, asking.devices, names)},
    )


def _with_beside(
    ledger: Ledger,
    asking: _Asking,
    host: Host | None,
    companions: Companions,
    draft: tuple[tuple[Told, ...], ...],
) -> Ledger:
    """With what stands beside the model; without it where our rules refuse what the engine took."""
    nothing = companions == NONE and not asking.launch.spec_types
    try:
        computed = account(
            ledger.model,
            asking.ours,
            asking.all,
            host=host,
            compute_mode="none" if nothing else "no-alloc",
            companions=companions,
        )
    except Refused:
        return ledger
    return with_beside(ledger, computed, draft)


def command(
    ref: str,
    launch: Launch,
    devices: Sequence[Device] = (),
    *,
    engine: Engine | None = None,
    own: bool = False,
    companions: Companions = NONE,
) -> tuple[str, ...]:
    """The command that `simulate` would run; `TWIN` and `PORT` stand for what is made for it.

    Raises what `simulate` raises before it starts anything.
    """
    asking = _asking(launch, devices, engine, own=own)
    path, wanted = named(describe(open_header(ref)), asking.asked, companions)
    if not asking.virtual:
        return tuple(_command(asking, path, wanted, None))
    gpus = asking.stand_ins()
    try:
        argv = _command(asking, path, wanted, gpus)
    finally:
        gpus.close()
    return tuple(word.replace(gpus.endpoint, "127.0.0.1:PORT") for word in argv)


@dataclass(frozen=True, slots=True)
class _Asking:
    """Who is asked about what: `how` picks the program, `launch` has the engine's build; `devices`
    are those that the model uses of `all`."""

    how: How
    engine: Engine
    launch: Launch
    devices: tuple[Device, ...]
    all: tuple[Device, ...]
    own: bool

    @property
    def virtual(self) -> bool:
        return bool(self.devices) and not self.own

    def stand_ins(self) -> VirtualDevices:
        return VirtualDevices(map(VirtualGPU.of, self.devices))

    @property
    def ours(self) -> Launch:
        """The launch for our rules; the pass reads the weights into memory."""
        launch = replace(self.launch, mmap=False)
        return without_gpus(launch) if self.how == "embedded" else launch

    @property
    def asked(self) -> Launch:
        """The launch for the program; virtual GPUs are those that `-dev` and `-sm none` left.

        Flags that move no byte of a pass are left out where the embedded engine has none.
        """
        if self.how == "embedded":
            return without_gpus(replace(self.launch, extra=_overrides(self.launch)))
        if self.own and self.devices:
            return self.launch
        main_gpu = 0 if self.launch.split_mode == "none" else self.launch.main_gpu
        return replace(
            self.launch,
            devices=() if self.devices else ("none",),
            main_gpu=main_gpu,
            draft_devices=_stand_in_names(self.launch.draft_devices, self.devices),
            override_tensor=_stand_in_buffers(self.launch.override_tensor, self.devices),
        )


def without_gpus(launch: Launch) -> Launch:
    """The launch where there is only the processor."""
    return replace(launch, devices=(), n_gpu_layers=0, draft_devices=(), draft_gpu_layers=0)


def _overrides(launch: Launch) -> tuple[str, ...]:
    """What of `extra` decides where a draft is, in the engine's words."""
    return tuple(word for text in asked_for.values(launch, "-otd") for word in ("-otd", text))


def _stand_in_names(names: Sequence[str], devices: Sequence[Device]) -> tuple[str, ...]:
    """`-devd` with stand-ins; raises UsageError for a GPU that the model does not use."""
    found = []
    for name in names:
        known = [buffer_name(each).lower() for each in devices]
        if name.lower() != "none" and name.lower() not in known:
            raise UsageError(
                "the engine cannot be asked about a draft on {name}, which the model does not use",
                name=name,
                hint="leave out -devd, or let the model use that device too",
            )
        found.append(name if name.lower() == "none" else f"RPC{known.index(name.lower())}")
    return tuple(found)


def _stand_in_buffers(
    pairs: Sequence[tuple[str, str]], devices: Sequence[Device]
) -> tuple[tuple[str, str], ...]:
    """`-ot` with the number of each GPU among those that the model uses."""
    numbers = {name: f"VGPU{number}" for number, name in enumerate(override_names(devices))}
    numbers |= {buffer_name(each): f"VGPU{number}" for number, each in enumerate(devices)}
    return tuple((pattern, numbers.get(buffer, buffer)) for pattern, buffer in pairs)


def _asking(
    launch: Launch, devices: Sequence[Device], engine: Engine | None, *, own: bool
) -> _Asking:
    engine = engine or find()
    launch = engine.ruled(launch)
    chosen = select(launch, devices)
    how = _how(engine, launch, chosen)
    if how == "server":
        engine = _server(engine)
    return _Asking(how, engine, launch, chosen, tuple(devices), own)


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


def _command(asking: _Asking, path: Path, launch: Launch, gpus: VirtualDevices | None) -> list[str]:
    if asking.how == "embedded":
        return noalloc_server.embedded_command(path, launch)
    if asking.how == "fit":
        return fit.command(_fit_params(asking.engine), path, launch, gpus)
    return noalloc_server.server_command(asking.engine, path, launch, gpus)


def _ask(
    asking: _Asking, path: Path, launch: Launch, gpus: VirtualDevices | None, *, limit_s: float
) -> Pass:
    if asking.how == "embedded":
        return noalloc_server.in_embedded(path, launch, limit_s=limit_s)
    if asking.how == "fit":
        return fit.measure(_fit_params(asking.engine), path, launch, gpus, limit_s=limit_s)
    return noalloc_server.in_server(asking.engine, path, launch, gpus, limit_s=limit_s)
