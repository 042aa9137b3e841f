"""A configuration of zoo/README.md -> (Launch, devices, compute mode), for `size --configs`.

Absent fields have the zoo's defaults; `engine_build` and `compute_mode` may be added. What stands
beside the model (`-md`, `--mmproj`, `--lora`, `-cram`...) is said once, for all lines, by the
command line: `beside` are its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from kvwise.device import Device
from kvwise.errors import UsageError
from kvwise.launch import ZOO_BUILD, Launch
from kvwise.memory.backends import ZOO
from kvwise.options.resolve import derived
from kvwise.units import MIB

ComputeMode = Literal["reserved", "no-alloc"]

DEFAULTS: Final[Mapping[str, Any]] = {
    "device": "generic", "n_gpu": 1, "ngl": 999, "n_cpu_moe": 0, "n_ctx": 8192, "n_batch": 2048,
    "n_ubatch": 512, "n_seq_max": 1, "kv_unified": False, "flash_attn": "auto", "type_k": "f16",
    "type_v": "f16", "swa_full": False, "offload_kqv": True, "op_offload": True,
    "n_outputs_max": 0, "embeddings": False, "n_rs_seq": 0, "load_mtp": False, "mtp": False,
    "extra_bufts": False, "tensor_split": None, "gpu_mem_mib": [24576] * 4,
    "split_mode": "layer", "mmap": False, "engine_build": ZOO_BUILD,
    "compute_mode": "reserved",
}  # fmt: skip
"""Field -> value when a line does not say (zoo/README.md, contract.md)."""

_SAME: Final = (
    "n_ctx", "n_batch", "n_ubatch", "n_seq_max", "kv_unified", "flash_attn", "type_k", "type_v",
    "swa_full", "offload_kqv", "op_offload", "n_outputs_max", "embeddings", "n_rs_seq",
    "load_mtp", "mtp", "split_mode", "mmap", "n_cpu_moe",
)  # fmt: skip
"""Fields that have the same name and meaning in `Launch`."""

MAX_GPUS: Final = 16
_CHOICES: Final = {
    "device": ("cpu", "generic", "cuda"),
    "flash_attn": ("auto", "on", "off"),
    "split_mode": ("layer", "none"),
    "compute_mode": ("reserved", "no-alloc"),
}


@dataclass(frozen=True, slots=True)
class ZooConfig:
    """One line of `--configs`, ready to be accounted."""

    launch: Launch
    devices: tuple[Device, ...]
    compute_mode: ComputeMode


BESIDE: Final = (
    "model_draft", "spec_types", "draft_n_max", "draft_type_k", "draft_type_v", "draft_gpu_layers",
    "draft_devices", "draft_n_cpu_moe", "mmproj", "extra",
)  # fmt: skip
"""Fields of `Launch` about what stands beside the model."""


def read_config(fields: Mapping[str, Any], beside: Launch | None = None) -> ZooConfig:
    """The launch and the virtual GPUs that a configuration describes; raises UsageError.

    Speculation adds snapshots of states and loads MTP layers, unless the line says otherwise.
    """
    for name, value in fields.items():
        if name not in DEFAULTS:
            raise UsageError("{name!r} is not a field of a configuration", name=str(name)[:80])
        _check(name, value)
    values = {**DEFAULTS, **fields}
    split = values["tensor_split"] or ()
    launch = Launch(
        tool="llama-cli",
        build=values["engine_build"],
        n_gpu_layers=values["ngl"],
        tensor_split=tuple(float(share) for share in split),
        repack=values["extra_bufts"],
        **{name: values[name] for name in _SAME},
    )
    if beside is not None:
        settings = {name: getattr(beside, name) for name in BESIDE}
        launch = replace(launch, tool=beside.tool, **settings)
        for name in ("n_rs_seq", "load_mtp"):
            if launch.spec_types and name not in fields:
                launch = replace(launch, **{name: derived(launch)[name]})
    return ZooConfig(launch, _devices(values), values["compute_mode"])


def _check(name: str, value: object) -> None:
    default = DEFAULTS[name]
    choices = _CHOICES.get(name)
    if choices and value not in choices:
        raise _bad(name, value)
    if isinstance(default, bool):
        sound = isinstance(value, bool)
    elif isinstance(default, int):
        least = -1 if name == "ngl" else 0  # the engine takes the others as unsigned
        sound = isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31
    elif isinstance(default, str):
        sound = isinstance(value, str)
    else:
        sound = _is_numbers(value) or (default is None and value is None)
    if not sound:
        raise _bad(name, value)


def _is_numbers(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share < 2**31
        for share in value
    )


def _bad(name: str, value: object) -> UsageError:
    return UsageError("{value!r} is no value of {name}", name=name, value=str(value)[:80])


def _devices(values: Mapping[str, Any]) -> tuple[Device, ...]:
    if values["device"] == "cpu":
        return ()
    count, sizes = values["n_gpu"], values["gpu_mem_mib"]
    if not 0 <= count <= MAX_GPUS:
        raise _bad("n_gpu", count)
    devices = []
    for index in range(count):
        size = int((sizes[index] if index < len(sizes) else DEFAULTS["gpu_mem_mib"][0]) * MIB)
        devices.append(
            Device(
                name=f"VGPU{index}",
                kind=values["device"],
                total_bytes=size,
                free_bytes=size,
                index=index,
                source=ZOO,
            )
        )
    return tuple(devices)
