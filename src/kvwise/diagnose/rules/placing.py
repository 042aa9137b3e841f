"""A single buffer above a limit, tensors on the wrong device: the memory as such is there."""

from __future__ import annotations

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import FAIR, LIKELY, POSSIBLE, VRAM, Hit, Rule
from kvwise.diagnose.rules.asking import (
    asked_bytes,
    device_index,
    device_named,
    failed,
    free_of,
    remedy,
    seen,
    taken_of,
    words,
)
from kvwise.diagnose.rules.parts import part
from kvwise.diagnose.rules.remedies import (
    FEWER_LAYERS,
    FLASH,
    SHORTER,
    SMALLER_UBATCH,
)
from kvwise.text import template
from kvwise.units import MIB

_NAMED_LIMITS = ("Vulkan", "SYCL", "OpenCL", "GPUOpenCL", "Metal", "MTL", "WebGPU", "RPC")
_MANY_EXPERTS = ("-cmoe", "-ncmoe", "n-cpu-moe", "cpu-moe", "override-tensor", "-ot ")
_FOUR_GIB = 4 << 30
_SURELY = 0.9
_A_LIMIT = 1 << 30
"""No driver in use limits a block to less than this."""


def _block_below_free(case: Case) -> Hit | None:
    """A compute buffer that failed although the log shows more free than it asked for."""
    name = device_named(case)
    if name is None or not name.startswith(_NAMED_LIMITS):
        return None
    lines = [each for each in failed(case) if each.fields.get("buffer") == name]
    free = free_of(case, name)
    if free is None:
        return None
    asked = max([size for each in lines if (size := asked_bytes(each))], default=None)
    if asked is None:
        return Hit(LIKELY, tuple(lines[:3]), cause=_UNSIZED) if _integrated(case) else None
    remote = name.startswith("RPC")  # one buffer per part, whatever its size
    known = remote or name in dict(case.loaded.model.weights if case.loaded.model else {})
    least = 0 if remote else _A_LIMIT
    if not known or asked < least or asked > _SURELY * (free - taken_of(case, name)):
        return None
    fields = {"asked": f"{asked / MIB:,.0f}", "free": f"{free / MIB:,.0f}", "device": name}
    return Hit(0.97, tuple(lines[:3]), fields, cause=_SIZED)


_SIZED = template(
    "one buffer of {asked} MiB was refused on {device} although {free} MiB were free before the "
    "load: the driver limits the size of a single allocation, memory is not what is missing"
)
_UNSIZED = template(
    "a buffer was refused on an integrated GPU that reports plenty of free memory: its driver "
    "limits the size of a single allocation, often to 4 GiB"
)
_INTEGRATED = (
    "Iris",
    "UHD Graphics",
    "HD Graphics",
    "Arc(TM) Graphics",
    "Radeon(TM) Graphics",
    "Radeon Graphics",
    "RENOIR",
    "Vega 8",
    "780M",
    "680M",
    "890M",
    "Adreno",
    "Mali",
)


def _level_zero(case: Case) -> Hit | None:
    """Intel's SYCL runtime refuses more than 4 GiB in one piece unless told otherwise."""
    lines = [each for each in failed(case) if "can't " in each.text and "on device" in each.text]
    asked = max([size for each in lines if (size := asked_bytes(each))], default=0)
    if asked < _FOUR_GIB:
        return None
    return Hit(0.7, tuple(lines[:3]))


def _integrated(case: Case) -> bool:
    names = [device.description for device in case.loaded.devices]
    return case.has("igpu") or any(
        word.lower() in name.lower() for name in names for word in _INTEGRATED
    )


def _integrated_excerpt(case: Case) -> Hit | None:
    """All there is to see is that an integrated GPU is used through Vulkan or the like."""
    used = [device for device in case.loaded.devices if device.name.startswith(_NAMED_LIMITS)]
    if case.complete or case.loaded.failures or not used or not _integrated(case):
        return None
    if case.loaded.models and any(model.weights for model in case.loaded.models):
        return None
    return Hit(POSSIBLE, tuple(case.all("device_line")[:1]), cause=_UNSEEN_LIMIT)


_UNSEEN_LIMIT = template(
    "an integrated GPU reports the system's memory as its own, but its driver limits the size of a "
    "single allocation, often to 4 GiB: a buffer above that is refused although memory is free"
)


def _moe(case: Case) -> Hit | None:
    """Experts or overrides put more on one card than it holds, while others have room."""
    if case.has("buffer_limit") or not failed(case):
        return None
    index = device_index(case)
    told = words(case)
    placed = case.has("overridden") or any(word in told for word in _MANY_EXPERTS)
    lines = part(case).get("weights", [])
    if not lines or not index:
        return Hit(POSSIBLE, tuple(lines[:3]), memory=True) if placed and lines else None
    fields = {"device": device_named(case) or index}
    return Hit(0.97 if placed else POSSIBLE, tuple(lines[:3]), fields, memory=True)


def _override_excerpt(case: Case) -> Hit | None:
    """Overrides are all that the lines are about."""
    lines = case.all("overridden")
    if not lines or case.complete or failed(case) or case.loaded.failures:
        return None
    return Hit(FAIR, tuple(lines[:3]), memory=False, cause=_OVERRIDE)


_OVERRIDE = template(
    "tensor overrides decide where these tensors go: a pattern that does not match what was meant, "
    "a comma that splits it, or a GPU that is not selected leaves them on another device"
)


def _reserve_never_ends(case: Case) -> Hit | None:
    """The cache went to the host and the log ends before a compute buffer appears."""
    lines = [each for each in case.all("kv_on") if each.fields.get("device") == "CPU"]
    main = case.loaded.main
    if not lines or case.complete or case.loaded.failures or (main and main.caches):
        return None
    return Hit(POSSIBLE, tuple(lines[:2]), memory=True, pool=VRAM, cause=_AFTER_CACHE)


_AFTER_CACHE = template(
    "the cache is in host memory and the log ends before a compute buffer appears: what did not "
    "fit "
    "is the compute buffer on the GPU, which grows with the context when the cache stays on the "
    "host"
)


RULES: tuple[Rule, ...] = (
    Rule(
        "block-limit",
        "single-allocation-limit",
        seen("buffer_limit", confidence=0.98),
        template(
            "a single buffer is larger than the device allows in one piece; the driver calls "
            "it out of memory, but memory is free"
        ),
        (
            FLASH,
            SMALLER_UBATCH,
            SHORTER,
            remedy(
                "if even -ngl 0 fails: keep large products off the GPU",
                "--no-op-offload",
                "--no-warmup",
            ),
        ),
        pool=VRAM,
    ),
    Rule(
        "block-below-free",
        "single-allocation-limit",
        _block_below_free,
        _SIZED,
        (FLASH, SMALLER_UBATCH, SHORTER),
        pool=VRAM,
    ),
    Rule(
        "four-gib",
        "single-allocation-limit",
        _level_zero,
        template(
            "more than 4 GiB were asked in one piece: Intel's runtime refuses that by default, "
            "whatever is free"
        ),
        (
            remedy("allow large allocations", "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1"),
            FLASH,
            SMALLER_UBATCH,
        ),
        pool=VRAM,
    ),
    Rule(
        "integrated-gpu",
        "single-allocation-limit",
        _integrated_excerpt,
        _UNSEEN_LIMIT,
        (FLASH, SMALLER_UBATCH, SHORTER),
        pool=VRAM,
    ),
    Rule(
        "experts-on-one-card",
        "moe-placement",
        _moe,
        template(
            "one card was given more weights than it holds while others may have room: "
            "--n-cpu-moe keeps the experts of the first layers on the host, so those of the "
            "last layers all land on the last card"
        ),
        (
            remedy("give the first cards a larger share", "-ts N,N"),
            remedy(
                "place the experts of each range of layers by hand",
                "-ot 'blk\\.(3[0-9])\\..*=CUDA0'",
            ),
            FEWER_LAYERS,
        ),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "overrides",
        "moe-placement",
        _override_excerpt,
        _OVERRIDE,
        (
            remedy(
                "write the pattern out and end it with a dot and a star",
                "-ot 'blk\\.(3[0-9])\\..*=CUDA0'",
            ),
            remedy("select every GPU that an override names", "-dev CUDA0,CUDA1"),
            remedy("-v shows where each tensor goes", "-v"),
        ),
    ),
    Rule(
        "compute-unseen",
        "compute-oom",
        _reserve_never_ends,
        _AFTER_CACHE,
        (FLASH, SMALLER_UBATCH, SHORTER),
        memory=True,
        pool=VRAM,
    ),
)
