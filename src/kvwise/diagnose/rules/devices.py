"""Devices that get lost, have no code, or are not there; crashes."""

from __future__ import annotations

from kvwise.diagnose.case import Case, Seen
from kvwise.diagnose.finding import FAIR, LIKELY, POSSIBLE, SURE, WEAK, Hit, Rule, When
from kvwise.diagnose.rules.asking import at_run, failed, remedy, seen
from kvwise.diagnose.rules.remedies import (
    F16_CACHE,
    NEWER_BUILD,
    NEWER_DRIVER,
    NO_FLASH,
    OTHER_BUILD,
    SAY_MORE,
    SMALLER_PIECES,
)
from kvwise.text import template

_FAULTS = (
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "invalid argument",
    "invalid configuration",
    "unknown error",
    "illegal instruction was",
    "Page Fault",
    "HSA_STATUS_ERROR_MEMORY",
    "HSA_STATUS_ERROR_EXCEPTION",
    "HSA_STATUS_ERROR_ILLEGAL",
    "ErrorIllegalAddress",
    "ERROR_ILLEGAL_ADDRESS",
    "ErrorMisalignedAddress",
    "ErrorLaunchFailure",
    "ERROR_LAUNCH_FAILED",
    "failed to launch",
    "EXECUTION_FAILED",
    "Memory access fault",
)
_BROKEN = (
    "invalid device function",
    "kernel image",
    "toolchain",
    "not supported",
    "no device",
    "initialization error",
    "NOT_INITIALIZED",
    "context pointer null",
    "invalid device ordinal",
    "failed to initialize",
    "UR_RESULT_ERROR",
    "PI_ERROR",
)


def _cuda(words: tuple[str, ...], confidence: float) -> When:
    return seen("cuda", confidence=confidence, where=lambda each: _says(each, words))


def _says(each: Seen, words: tuple[str, ...]) -> bool:
    return any(word in each.fields.get("reason", "") for word in words)


_ASSERTED = 0.55
"""An assertion, or an error of a GPU, is the reason: words of lines around it are not asked."""


def _crash(case: Case) -> Hit | None:
    """The engine crashed, and nothing before it says why."""
    lines = [each for each in case.all("assert", "crashed") if "n_ubatch" not in each.text]
    unknown = [each for each in case.all("cuda") if not _says(each, (*_FAULTS, *_BROKEN))]
    lines += unknown
    if not lines:
        lines = [] if case.has("model_load", "server_exit") else case.all("exited")
    if not lines or case.has("device_lost", "no_kernel", "cpu_instructions", "library_missing"):
        return None
    if case.has("no_gpu") and not at_run(lines[0]):
        return None
    alone = not failed(case) and not case.has("gpu_oom", "v_quant_needs_flash_attn", "context_made")
    sure = _ASSERTED if unknown or case.has("assert") else POSSIBLE
    return Hit(sure if alone else 0.2, tuple(lines[:3]))


def _no_gpu(case: Case) -> Hit | None:
    lines = case.all("no_gpu")
    if not lines and case.opened and not case.loaded.devices:
        lines = case.all("gpu_dropped")  # no other backend took one either
    if not lines:
        return None
    if case.has("gpu_found"):  # another backend was asked in vain before
        return None
    later = any(at_run(each) for each in case.all("assert", "crashed"))
    return Hit(WEAK if later else LIKELY, tuple(lines[:3]))  # it went on, and served


def _none_loaded(case: Case) -> Hit | None:
    """Libraries were tried one after the other, and the last word is that none could be loaded."""
    tried, loaded = case.all("library_tried"), case.all("library_loaded")
    if not tried or case.complete or case.opened:
        return None
    if loaded and loaded[-1].line > tried[-1].line:
        return None
    return Hit(FAIR if loaded else LIKELY, tuple(tried[-3:]), dict(tried[-1].fields))


def _of_processor(each: Seen) -> bool:
    return "error: an illegal" not in each.text  # CUDA's: of its own card


def _lost_late(case: Case) -> Hit | None:
    lines = [each for each in case.all("metal_failed") if each.fields.get("status") != "5"]
    return Hit(FAIR, tuple(lines[:3])) if lines and at_run(lines[0]) else None


_LIBRARY = template("a library that the engine needs is missing or is not the right one: {library}")
_LIBRARIES = (
    remedy("keep the engine's own libraries beside the program", "LD_LIBRARY_PATH=FOLDER"),
    remedy("install what is missing: the CUDA or Visual C++ runtime, libgomp1"),
    remedy("take the package made for this system"),
)
_OTHER_BUILD = remedy("take the package made for this GPU and driver")

RULES: tuple[Rule, ...] = (
    Rule(
        "lost",
        "device-lost-timeout",
        seen("device_lost", confidence=SURE),
        template(
            "the driver reset the GPU: one piece of work took longer than its watchdog allows, "
            "or the card failed; memory is not the cause"
        ),
        (
            SMALLER_PIECES,
            remedy("without the model's own draft for long prompts", "--spec-type none"),
            remedy("raise the watchdog: amdgpu.lockup_timeout, or TdrDelay on Windows"),
            remedy("another driver version"),
        ),
    ),
    Rule(
        "metal-lost",
        "device-lost-timeout",
        _lost_late,
        template("a command buffer failed on the Apple GPU"),
        (SMALLER_PIECES,),
    ),
    Rule(
        "no-code",
        "wrong-kernel-build",
        seen("no_kernel", confidence=SURE),
        template("the build has no code that this GPU and driver can run; memory is not the cause"),
        (
            _OTHER_BUILD,
            remedy("build it for the card", "-DCMAKE_CUDA_ARCHITECTURES=native"),
            remedy("keep an integrated GPU out", "HIP_VISIBLE_DEVICES=0"),
            remedy("or use the Vulkan build"),
        ),
    ),
    Rule(
        "driver",
        "wrong-kernel-build",
        seen("driver_old", confidence=SURE),
        template("the GPU's driver is older than the build needs"),
        (NEWER_DRIVER, _OTHER_BUILD),
    ),
    Rule(
        "gpu-not-found",
        "wrong-kernel-build",
        _no_gpu,
        template("the build found no GPU it can use and goes on with the processor"),
        (
            remedy("see what it finds", "--list-devices"),
            _OTHER_BUILD,
            remedy("in a container: pass the GPU in", "--gpus all"),
        ),
    ),
    Rule(
        "instructions",
        "wrong-kernel-build",
        seen("cpu_instructions", confidence=LIKELY, where=_of_processor),
        template("the build uses instructions that this processor does not have"),
        (remedy("take a build for older processors", "-DGGML_NATIVE=OFF"),),
    ),
    Rule(
        "cuda-setup",
        "wrong-kernel-build",
        _cuda(_BROKEN, FAIR),
        template("the GPU could not be used: {reason}"),
        (_OTHER_BUILD, NEWER_DRIVER),
    ),
    Rule(
        "kernel-fault",
        "kernel-bug-garbage",
        _cuda(_FAULTS, FAIR),
        template(
            "a GPU kernel failed ({reason}): a bug of this build or driver, not a lack of memory"
        ),
        (
            OTHER_BUILD,
            NO_FLASH,
            F16_CACHE,
        ),
    ),
    Rule(
        "backend",
        "engine-incomplete",
        seen("no_backend", confidence=SURE),
        template("the engine found none of its own backends, not even the processor's"),
        (remedy("keep its libraries beside the program"),),
    ),
    Rule(
        "libraries",
        "engine-incomplete",
        seen("library_missing", confidence=LIKELY),
        _LIBRARY,
        _LIBRARIES,
    ),
    Rule(
        "none-loaded",
        "engine-incomplete",
        _none_loaded,
        _LIBRARY,
        _LIBRARIES,
    ),
    Rule(
        "rpc",
        "rpc-unreachable",
        seen("rpc_connect", confidence=0.9),
        template(
            "a remote server does not answer; the engine goes on without it and still says that "
            "all layers were offloaded"
        ),
        (remedy("start ggml-rpc-server there and check address and port", "--rpc HOST:PORT"),),
    ),
    Rule(
        "rpc-gone",
        "rpc-unreachable",
        seen("rpc_lost", confidence=SURE),
        template("a remote server went away in the middle of work"),
        (remedy("look at the log of the remote server: it may have run out of memory"),),
    ),
    Rule(
        "rpc-version",
        "rpc-unreachable",
        seen("rpc_version", confidence=SURE),
        template("client and remote server are of different builds"),
        (remedy("use the same build on both sides"),),
    ),
    Rule(
        "crash",
        "engine-crash",
        _crash,
        template("the engine stopped on an error of its own; nothing before it says why"),
        (
            SAY_MORE,
            NEWER_BUILD,
            NO_FLASH,
        ),
        tells_why=False,
    ),
)
