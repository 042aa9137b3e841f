"""What a command is asked about: the model, the launch, the devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvwise import here
from kvwise.arch import describe
from kvwise.cli._build import for_architecture, read_for_build
from kvwise.device import Device, Host
from kvwise.errors import UsageError
from kvwise.gguf.lies import plain
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.gguf.shape import header_of_shape
from kvwise.launch import Launch
from kvwise.memory.parts.companions import Companions
from kvwise.opening import open_model
from kvwise.options import Reading, asked
from kvwise.units import parse_size

if TYPE_CHECKING:
    from kvwise.engine.find import Engine

MODEL = click.Argument(["model"], required=False)

SHAPE = click.Option(
    ["--shape"],
    metavar="SHAPE",
    help="A model that is only numbers, layers x heads x head size: 24x16x48, with any of ,kv=8 "
    ",embd=1024 ,ff=3072 ,vocab=32000 ,ctx=32768 ,type=q8_0. Weights are counted if their type is "
    "given.",
)

ENGINE = click.Option(
    ["--engine"],
    metavar="PATH",
    help="The llama-server to use [default: the embedded engine, else the one on PATH].",
)

TAKEN_UP = (
    click.Option(["--resume"], is_flag=True, help="Insist on going on, also after the end."),
    click.Option(["--fresh"], is_flag=True, help="Forget what was interrupted."),
)
"""Of commands that go on where they were interrupted."""

LOGS = click.Option(["--logs"], metavar="FOLDER", help="Keep the engine's log of each start there.")

DEVICE_OPTIONS = (
    click.Option(
        ["--gpu"],
        multiple=True,
        metavar="GPU",
        help="A GPU instead of those here; repeatable: a name (RTX 4060), a size (6GiB), or "
        "name=A,total=6144MiB,free=5900MiB,kind=cuda.",
    ),
    click.Option(["--cpu-only"], is_flag=True, help="No GPU at all."),
    click.Option(
        ["--device-file"],
        metavar="FILE",
        help="The GPUs and the memory of a machine, as `kvwise probe --json` printed them there.",
    ),
    click.Option(["--ram"], metavar="SIZE", help="Memory of the host instead of what is here."),
    click.Option(["--reserve"], metavar="SIZE", help="Memory to keep free on each GPU."),
)

DEVICE_NAMES = tuple(option.name or "" for option in DEVICE_OPTIONS)


@dataclass(frozen=True, slots=True)
class Machine:
    """The devices and the host that a command accounts for."""

    devices: tuple[Device, ...]
    host: Host


def machine(
    gpu: Sequence[str] = (),
    cpu_only: bool = False,
    ram: str | None = None,
    reserve: str | None = None,
    device_file: str | None = None,
    *,
    engine: Engine | None = None,
) -> Machine:
    """The devices named on the line, else those of this machine as `engine` sees them.

    Raises UsageError, SourceError, EngineError.
    """
    if gpu and cpu_only:
        raise UsageError("--gpu and --cpu-only exclude each other")
    devices: tuple[Device, ...] = ()
    there: Host | None = None
    if device_file is not None:
        if gpu or cpu_only:
            raise UsageError("--device-file stands instead of --gpu and --cpu-only")
        devices, there = _probed(device_file)
    elif gpu:
        devices = _in_order([Device.of(text) for text in gpu])
    elif not cpu_only:
        devices = tuple(here.devices(engine))
    if reserve is not None:
        kept = parse_size(reserve)
        devices = tuple(with_reserve(device, kept) for device in devices)
    if ram is not None:
        return Machine(devices, Host.of(ram))
    if there is not None:
        return Machine(devices, there)
    from kvwise.probe.host import host  # noqa: PLC0415

    return Machine(devices, host())


def _in_order(devices: Sequence[Device]) -> tuple[Device, ...]:
    """As llama.cpp numbers them: devices of RPC servers first, and by themselves."""
    remote = [each for each in devices if each.kind == "rpc"]
    own = [each for each in devices if each.kind != "rpc"]
    return tuple(
        replace(each, index=index) for group in (remote, own) for index, each in enumerate(group)
    )


def with_reserve(device: Device, kept: int) -> Device:
    """The device with what somebody wants kept free; who says so knows that a size is no card."""
    note = None if device.kind == "generic" else device.note
    return replace(device, reserve_bytes=kept, reserve_reason=None, note=note)


def _probed(path: str) -> tuple[tuple[Device, ...], Host]:
    """The GPUs and the host of a probe's file."""
    from kvwise.probe.advice import usable  # noqa: PLC0415
    from kvwise.probe.remember import read as read_probe  # noqa: PLC0415

    report = read_probe(Path(path))
    return usable(report), report.host


def read_launch(
    words: Sequence[str], model: str | None, engine: str | None = None
) -> tuple[str, Reading]:
    """(MODEL, the launch): the model stands alone or behind -m, the rest is llama.cpp's.

    `engine` is what `--engine` names: its build decides where `--engine-build` is not given.
    """
    reading = read_for_build(words, model, engine)
    named = reading.launch.model
    if model and "model" in reading.origins and named != model and _from_line(reading):
        raise UsageError("two models: {one} and {other}", one=model, other=named)
    return model or named, reading


def _from_line(reading: Reading) -> bool:
    return reading.origins["model"].startswith("-")


def model_of(ref: str | None, shape: str | None = None) -> Model:
    """The model behind MODEL or `--shape`; only a header is read.

    Raises UsageError, SourceError, HeaderError, ModelError.
    """
    if shape is None:
        if not ref:
            raise _no_model()
        return open_model(ref)
    if ref:
        raise UsageError("--shape stands instead of a model, not beside {model}", model=ref)
    return describe(header_of_shape(shape))


def _no_model() -> UsageError:
    return UsageError("no model", hint="name a .gguf file, hf:owner/repo, ollama:name or a URL")


def called(model: Model) -> str:
    """The model's name, or its file's without what it is packed in; always one line."""
    return plain(model.called)


def launch_model(ref: str, model: Model) -> str:
    """How a launch names the model: an address stays, anything else is the file it led to."""
    if ref.startswith(("hf:", "http://", "https://")):
        return ref
    if not ref or ref.endswith((".json", ".json.gz")):  # a header without a file
        return f"{called(model)}.gguf"
    return model.path or ref


def companions_of(launch: Launch) -> Companions:
    """The files beside the model that a launch names; only their headers are read.

    Raises what `open_model` raises.
    """
    draft = None
    if launch.model_draft:
        from kvwise.memory.parts.draft import sidecars  # noqa: PLC0415  (all of the ledger)

        draft = open_model(launch.model_draft, sidecars=sidecars(launch))
    return Companions(
        draft=draft,
        mmproj=open_header(launch.mmproj) if launch.mmproj else None,
        loras=tuple(open_header(path) for path in asked.adapters(launch)),
    )


def with_model(launch: Launch, ref: str, model: Model) -> Launch:
    return replace(for_architecture(launch, model), model=launch_model(ref, model))
