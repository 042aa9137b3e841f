"""What a measurement says about where it was made, out of what kvwise knows of this machine."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence

from kvwise.catalogue.offline import running_os
from kvwise.device import Device
from kvwise.engine.find import Engine
from kvwise.gguf.header import ArrayInfo, Header, Value
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.probe.cores import cores
from kvwise.probe.cpu import cpu_name
from kvwise.probe.driver import driver_of
from kvwise.probe.host import host
from kvwise.results.record import DeviceSeen, EngineSeen, Machine, ModelSeen, canonical


def machine_seen(devices: Sequence[Device] = ()) -> Machine:
    """This machine, with the GPUs that the engine sees here (`kvwise.here.devices(engine)`)."""
    cards = tuple(
        DeviceSeen(each.name, each.kind, each.total_bytes, driver_of(each.kind)) for each in devices
    )
    system = f"{running_os()} {platform.machine()}"
    return Machine(platform.node(), system, cpu_name(), cores(), host().total_bytes, cards)


def engine_seen(engine: Engine, tool: str = "llama-server", path: str = "") -> EngineSeen:
    """The engine (`engine.find.find`) that measures with `tool`; `path` of the tool if another."""
    return EngineSeen(engine.kind, engine.build or "", tool, engine.version, path or engine.path)


def model_seen(model: Model) -> ModelSeen:
    """The model, wherever its header was read from."""
    header = model.header
    return ModelSeen(
        name=model.called,
        architecture=model.architecture,
        tensor_bytes=header.tensor_bytes,
        n_params=header.n_params,
        fingerprint=fingerprint(header),
        path=model.path,
    )


def settings_seen(launch: Launch) -> dict[str, object]:
    """The fields of a launch that decide bytes and speed: paths, tool and build stand elsewhere."""
    skipped = {"tool", "build", "build_from", "model", "model_draft", "mmproj"}
    return {name: value for name, value in launch.as_dict().items() if name not in skipped}


def fingerprint(header: Header) -> str:
    """Of what the header says: metadata (arrays by type and length), every tensor. The file's name
    and place are not in it, nor how much of the arrays was read."""
    metadata = {
        key: _value(value, header.value_types.get(key, ""))
        for key, value in header.metadata.items()
        if not key.startswith("split.")
    }
    tensors = [[each.name, each.shape, each.type.name] for each in header.tensors]
    text = canonical([metadata, sorted(tensors, key=str)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _value(value: Value, kind: str) -> object:
    if isinstance(value, tuple | ArrayInfo):
        return [kind, len(value)]
    return repr(value) if isinstance(value, float) else value
