"""It works, but slowly: attention on the processor, pages in system memory, work done twice."""

from __future__ import annotations

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import FAIR, LIKELY, POSSIBLE, VRAM, Hit, Rule
from kvwise.diagnose.rules.asking import failed, no_failure, remedy, seen, words
from kvwise.diagnose.rules.remedies import (
    F16_CACHE,
    NEWER_BUILD,
    OWN_KERNELS,
    SHORTER_STILL,
)
from kvwise.text import template
from kvwise.units import MIB

_CUDA_PAIRS = frozenset({"f16", "bf16", "q8_0", "q4_0"})
"""What default CUDA builds have flash attention for, K and V alike (ggml-cuda/fattn.cu, b10605)."""
_GPU = ("CUDA", "ROCm", "MUSA")
_DEVICES = (*_GPU, "Vulkan", "SYCL", "Metal", "MTL", "OpenCL", "GPUOpenCL", "CANN")
_MANY_SPLITS = 20
"""Pieces of a graph on a few GPUs without a detour: their number and one or two more."""
_EMBEDDING_SHARE = 0.3
"""More of the weights on the host than the token embeddings: layers lie there on purpose."""


def _pairs(case: Case) -> tuple[str, str] | None:
    """Cache types for which a default CUDA build has no flash attention."""
    main = case.loaded.main
    if main is None:
        return None
    for cache in main.caches:
        total = cache.total
        k, v = getattr(total, "type_k", None), getattr(total, "type_v", None)
        on_gpu = any(name.startswith(_GPU) and size.bytes for name, size in cache.by_buffer.items())
        if not k or not v or not on_gpu or k == "f32":
            continue
        if k not in _CUDA_PAIRS or (k != v and "f32" not in (k, v)):
            return k, v
    return None


def _no_kernel(case: Case) -> Hit | None:
    pair = _pairs(case)
    main = case.loaded.main
    if pair is None or failed(case) or (main and main.flash_attn is False):
        return None
    if main and main.facts.get("flash_attn") in ("0", "disabled"):
        return None
    return Hit(FAIR, tuple(case.all("cache_line")[:2]), {"k": pair[0], "v": pair[1]})


def _switched_off(case: Case) -> Hit | None:
    """Not where the program that says so only warns, and the load went well."""
    lines = case.all("flash_off")
    if case.complete and not case.loaded.failures:
        lines = [each for each in lines if not no_failure(each.text)]
    return Hit(0.9, tuple(lines[:4]), dict(lines[0].fields)) if lines else None


def _on_cpu(case: Case) -> Hit | None:
    lines = case.all("flash_cpu")
    elsewhere = [each for each in case.all("layer_elsewhere") if "lash" in each.text]
    if elsewhere and not case.has("flash_off"):
        lines = elsewhere
    return Hit(LIKELY, tuple(lines[:3]), cause=_CPU) if lines else None


def _many_splits(case: Case) -> Hit | None:
    """The whole cache lies on GPUs, and the graph is cut at every layer: something is not there."""
    main, model = case.loaded.main, case.loaded.model
    if main is None or main.splits is None or main.splits.prompt < _MANY_SPLITS or failed(case):
        return None
    buffers = [
        name for cache in main.caches for name, size in cache.by_buffer.items() if size.bytes
    ]
    off = main.flash_attn is False or main.facts.get("flash_attn") in ("0", "disabled")
    if not buffers or off or not all(name.startswith(_DEVICES) for name in buffers):
        return None
    if model and model.weights:
        sizes = {name: size.bytes for name, size in model.weights.items()}
        host = sum(size for name, size in sizes.items() if not name.startswith(_DEVICES))
        if host > _EMBEDDING_SHARE * sum(sizes.values()):
            return None
    told = words(case)
    if case.has("overridden") or "cpu-moe" in told or "cmoe" in told or "-ot " in told:
        return None
    known = bool(model and model.weights)
    if not known and not _quantized(case):
        return None  # layers on the host cut the graph as well
    lines = [*case.all("splits_line")[:1], *case.all("cache_line")[:1]]
    return Hit(FAIR if known else POSSIBLE, tuple(lines), {"splits": main.splits.prompt})


def _quantized(case: Case) -> bool:
    kinds = [kind for each in case.caches() for kind in (each.type_k, each.type_v)]
    return any(kind not in (None, "f16", "bf16", "f32") for kind in kinds)


_CPU = template(
    "flash attention runs on the processor: the device has none for these heads or types"
)


def _spilled(case: Case) -> Hit | None:
    """More was put on a card than was free, and no allocation failed."""
    if failed(case) or not case.complete:
        return None
    loaded = case.loaded
    for device in loaded.devices:
        if not device.name.startswith(("CUDA", "ROCm")) or not device.free.mib:
            continue
        total = _on(case, device.name)
        if total > device.free.mib * 1.02 + 64:
            fields = {"device": device.name, "taken": f"{total:,.0f}",
                      "free": f"{device.free.mib:,.0f}"}  # fmt: skip
            lines = tuple(case.all("device_line")[:2])
            return Hit(LIKELY, lines, fields, memory=True, pool=VRAM)
    return None


def _on(case: Case, name: str) -> float:
    """MiB of the last model and context on a device."""
    main, model = case.loaded.main, case.loaded.model
    size = model.weights[name].bytes if model and name in model.weights else 0
    if main:
        size += main.compute[name].bytes if name in main.compute else 0
        size += sum(c.by_buffer[name].bytes for c in main.caches if name in c.by_buffer)
    return size / MIB


RULES: tuple[Rule, ...] = (
    Rule(
        "flash-off",
        "fa-auto-disabled",
        _switched_off,
        template(
            "flash attention switched itself off: a layer and its attention would be on "
            "different devices, or the device has none for it. The compute buffer grows with the "
            "context, and a quantized V is refused"
        ),
        (
            remedy(
                "put cache and layers on the same device: without -nkvo, with all layers", "-ngl 99"
            ),
            remedy("an f16 cache has more kernels", "-ctk f16", "-ctv f16"),
            NEWER_BUILD,
        ),
    ),
    Rule(
        "flash-elsewhere",
        "fa-kernel-fallback",
        _on_cpu,
        _CPU,
        (
            OWN_KERNELS,
            F16_CACHE,
            NEWER_BUILD,
        ),
    ),
    Rule(
        "flash-types",
        "fa-kernel-fallback",
        _no_kernel,
        template(
            "default CUDA builds have no flash attention for K {k} with V {v}: it moves to the "
            "processor without a word, and everything gets slow"
        ),
        (
            remedy("the same type for K and V, one with a kernel", "-ctk q8_0", "-ctv q8_0"),
            remedy("or build all kernels", "-DGGML_CUDA_FA_ALL_QUANTS=ON"),
        ),
    ),
    Rule(
        "splits",
        "fa-kernel-fallback",
        _many_splits,
        template(
            "the cache lies on the GPU, and the graph is cut into {splits} pieces: an operation of "
            "every layer runs on the processor, most often attention that has no kernel for these "
            "heads or cache types"
        ),
        (
            OWN_KERNELS,
            F16_CACHE,
            remedy("compare with attention in plain operations", "-fa off"),
            NEWER_BUILD,
        ),
    ),
    Rule(
        "reprocessed",
        "swa-reprocessing",
        seen("swa_reprocessed", "checkpoint_erased", confidence=0.9),
        template(
            "the whole prompt is read again: a sliding window or a recurrent state keeps only "
            "the latest tokens, and the new prompt differs before them"
        ),
        (
            remedy("keep the beginning of the prompt unchanged"),
            remedy("keep all cells of the window (more memory)", "--swa-full"),
            remedy("keep more checkpoints", "--ctx-checkpoints 32"),
        ),
    ),
    Rule(
        "unified-variable",
        "vram-spill-slow",
        seen("unified_env", confidence=LIKELY),
        template(
            "GGML_CUDA_ENABLE_UNIFIED_MEMORY is set: pages of the card lie in system memory. Any "
            "value counts, also 0"
        ),
        (remedy("unset the variable", "unset GGML_CUDA_ENABLE_UNIFIED_MEMORY"),),
    ),
    Rule(
        "spilled",
        "vram-spill-slow",
        _spilled,
        template(
            "{taken} MiB were put on {device}, which had {free} MiB free: the driver keeps the "
            "rest in system memory, and everything gets slow"
        ),
        (
            remedy("leave 1 to 2 GiB free", "-fitt 2048"),
            SHORTER_STILL,
            remedy("in the NVIDIA control panel: CUDA sysmem fallback policy, prefer no fallback"),
        ),
        memory=True,
        pool=VRAM,
    ),
)
