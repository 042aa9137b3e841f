"""Environment variables that change what an engine does, whatever its command line says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvwise.text import Phrase, phrase, template


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, or a family of them by its beginning: what it does, and whether it may harm."""

    name: str
    effect: str
    harms: bool = False
    family: bool = False
    if_set_to: str | None = None  # only this value counts; "" = set to nothing


_TABLE: tuple[Variable, ...] = (
    Variable("GGML_CUDA_ENABLE_UNIFIED_MEMORY",
             template("pages of the card go to system memory without an error; any value counts, "
                      "also 0"), harms=True),
    Variable("GGML_CUDA_DISABLE_GRAPHS", template("slower generation on CUDA"), harms=True),
    Variable("GGML_CUDA_FORCE_MMQ", template("other kernels for quantized weights")),
    Variable("GGML_CUDA_FORCE_CUBLAS", template("more memory and other kernels"), harms=True),
    Variable("GGML_CUDA_NO_PINNED", template("slower copies between host and GPU"), harms=True),
    Variable("GGML_CUDA_DEVICES", template("one card is shown as several that share its memory"),
             harms=True),
    Variable("CUDA_VISIBLE_DEVICES", template("no NVIDIA GPU is seen"), harms=True, if_set_to=""),
    Variable("CUDA_VISIBLE_DEVICES", template("only these NVIDIA GPUs are seen, in this order; a "
                                              "wrong entry hides all after it")),
    Variable("CUDA_DEVICE_ORDER", template("the order of NVIDIA GPUs")),
    Variable("CUDA_MODULE_LOADING", template("EAGER takes more memory at the start")),
    Variable("CUDA_LAUNCH_BLOCKING", template("everything is slower"), harms=True),
    Variable("HIP_VISIBLE_DEVICES", template("only these AMD GPUs are seen")),
    Variable("ROCR_VISIBLE_DEVICES", template("only these AMD GPUs are seen")),
    Variable("HSA_OVERRIDE_GFX_VERSION",
             template("kernels of another AMD GPU are used: they may crash or compute wrongly"),
             harms=True),
    Variable("GGML_VK_VISIBLE_DEVICES", template("only these Vulkan devices are seen")),
    Variable("GGML_VK_PREFER_HOST_MEMORY", template("Vulkan buffers lie in system memory"),
             harms=True),
    Variable("GGML_VK_DISABLE_", template("a Vulkan feature is switched off"), family=True),
    Variable("UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS",
             template("Intel GPUs may take more than 4 GiB in one piece")),
    Variable("LLAMA_ATTN_ROT_DISABLE",
             template("quantized caches lose precision: their rotation is off"), harms=True),
    Variable("GGML_SCHED_DEBUG", template("more output")),
    Variable("LLAMA_ARG_", template("an option of llama.cpp is set"), family=True),
    Variable("OLLAMA_", template("a setting of Ollama's server")  , family=True),
)  # fmt: skip


def changing(environ: Mapping[str, str]) -> Iterator[tuple[str, str, Phrase, bool]]:
    """(name, value, effect, may it harm) of those that are set, in the order of their names."""
    for name in sorted(environ):
        for row in _TABLE:
            same = name.startswith(row.name) if row.family else name == row.name
            if same and (row.if_set_to is None or environ[name] == row.if_set_to):
                yield name, environ[name], phrase(row.effect), row.harms
                break
