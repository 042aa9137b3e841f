"""Which device each layer, its cache and the output layer go to.

Device numbers: 0..n-1 are the GPUs in order, `HOST` is the machine's own memory.
Source: src/llama-model.cpp load_tensors (get_layer_buft_list, splits) and src/llama.cpp
llama_prepare_model_devices, b10605.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from kvwise import builds
from kvwise.device import Device, Host
from kvwise.errors import Refused, UsageError
from kvwise.gguf.model import Model
from kvwise.gguf.values import float32
from kvwise.launch import Launch
from kvwise.memory.backends import asynchronous, kind_of

HOST = -1

PIPELINE_COPIES = 4
"""Copies of the inputs under pipeline parallelism (GGML_SCHED_MAX_COPIES)."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Device number per layer (length n_layer_all), and of the output layer."""

    layers: tuple[int, ...]
    output: int
    n_gpu: int
    gpu_layers: int
    pipeline_parallel: bool = False
    sched_copies: int = 1

    def of(self, layer: int) -> int:
        return self.layers[layer]


def select(launch: Launch, devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices llama.cpp uses, in order: those of `-dev`, and one only under `-sm none`.

    Raises UsageError for a device that is not there, Refused for a main GPU out of range.
    """
    chosen = tuple(devices)
    if launch.devices:
        chosen = tuple(_named(name, devices) for name in launch.devices if name.lower() != "none")
    if launch.split_mode != "none" or not chosen:
        return chosen
    if launch.main_gpu < 0:
        return ()
    if launch.main_gpu >= len(chosen):
        raise Refused(
            "other_model",
            "invalid value for main_gpu: {main_gpu} (available devices: {count})",
            hint="-mg counts from 0 among the devices in use",
            main_gpu=launch.main_gpu,
            count=len(chosen),
        )
    return (chosen[launch.main_gpu],)


def buffer_name(device: Device) -> str:
    """The engine's name of a device and of its buffer: `CUDA0`, `Vulkan1`, `VGPU0`."""
    return f"{kind_of(device).prefix}{device.index}"


def override_names(devices: Sequence[Device]) -> tuple[str, ...]:
    """What `-ot` calls the buffers of the devices that an engine uses: as the devices are called,
    but a remote one by its number at its endpoint. Source: ggml-rpc.cpp, b10605."""
    found = []
    for device in devices:
        name = buffer_name(device)
        if device.kind == "rpc":
            there = sorted(each.index for each in devices if each.name == device.name)
            name = f"RPC{there.index(device.index)}[{device.name}]"
        found.append(name)
    return tuple(found)


def _named(name: str, devices: Sequence[Device]) -> Device:
    for device in devices:
        if name.lower() in {buffer_name(device).lower(), device.name.lower()}:
            return device
    raise UsageError(
        "no device is called {name!r}",
        hint="devices here: {known}",
        name=name,
        known=", ".join(buffer_name(device) for device in devices) or "none",
    )


def place(
    model: Model, launch: Launch, devices: Sequence[Device], host: Host | None = None
) -> Placement:
    """Place the layers of `model` on `devices`, which `select` has chosen."""
    n_all = model.n_layer_all
    asked = launch.n_gpu_layers if launch.n_gpu_layers >= 0 else n_all + 1
    active = min(asked, n_all + 1) if devices else 0
    first = max(n_all + 1 - asked, 0)
    points = split_points(launch.tensor_split, devices, host) if devices else ()
    where = [_device_of(layer, first, active, points) for layer in range(n_all + 1)]
    parallel = (
        len(devices) > 1
        and asked > n_all
        and launch.split_mode == "layer"
        and launch.offload_kqv
        and not launch.override_tensor
        and launch.n_cpu_moe <= 0
        and all(asynchronous(kind_of(device), builds.number(launch.build)) for device in devices)
    )
    return Placement(
        layers=tuple(where[:-1]),
        output=where[-1],
        n_gpu=len(devices),
        gpu_layers=active,
        pipeline_parallel=parallel,
        sched_copies=PIPELINE_COPIES if parallel else 1,
    )


def split_points(
    asked: Sequence[float], devices: Sequence[Device], host: Host | None = None
) -> tuple[float, ...]:
    """Where each device's share ends, from 0 to 1, in float32 as the engine computes it.

    All zero or nothing asked means by free memory; a device that reports none counts as the host.
    """
    shares = [float32(share) for share in (*asked, *[0.0] * len(devices))[: len(devices)]]
    if not any(shares):
        ram = host.available_bytes if host else 0
        shares = [float32(float(_free(device, ram))) for device in devices]
    ends = list(accumulate(shares, lambda total, share: float32(total + share)))
    if ends[-1] <= 0:
        ends = [float(number + 1) for number in range(len(devices))]
    return tuple(float32(end / ends[-1]) for end in ends)


def _free(device: Device, ram: int) -> int:
    reports = device.free_bytes or device.total_bytes
    return device.free_bytes if reports else ram


def _device_of(layer: int, first: int, active: int, points: Sequence[float]) -> int:
    if layer < first or layer - first >= active:
        return HOST
    position = float32((layer - first) / active)
    above = (number for number, end in enumerate(points) if end > position)
    return next(above, len(points) - 1)
