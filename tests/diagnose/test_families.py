"""One line alone, as a program, a driver or the system says it: errors by name, number and word."""

# ruff: noqa: ISC004, E501 (one text is one line; two string pieces in one row are one text)

from __future__ import annotations

import re

import pytest

from kvwise.diagnose import diagnose
from kvwise.engine import failures
from kvwise.engine.wordings import noted, signals

FAMILIES: dict[str, tuple[str, ...]] = {
    "kernel-bug-garbage": (
        "cudaErrorIllegalAddress",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "hipErrorIllegalAddress",
        "hipErrorLaunchFailure",
        "CUDA error 700 at ggml-cuda.cu:7788: an illegal memory access was encountered",
        "CUDA error: the function failed to launch on the GPU",
        "CUBLAS_STATUS_EXECUTION_FAILED",
        "command buffer 0 failed with status 5\n"
        "error: Page Fault (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)",
        "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: access beyond the largest legal address",
        "answer: the the the the the the the the the",
        "[PAD151935][PAD151936][PAD151937][PAD151935]",
    ),
    "wrong-kernel-build": (
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!",
        "CUDA error 209 at ggml-cuda.cu:6301",
        "CUDA error: named symbol not found",
        "CUDA error: system not yet initialized",
        "CUDA error 35",
        "HSA_STATUS_ERROR_INVALID_ISA: The instruction set architecture is invalid.",
        "CUDA error 100",
        "cudaErrorInsufficientDriver",
        "level_zero backend failed with error: 42 (UR_RESULT_ERROR_INVALID_KERNEL_NAME)",
        "llama_init_from_model: failed to initialize the context: failed to initialize CANN0 backend",
        "ggml_vulkan: No suitable queue family index found.",
        "ggml_vulkan: Error: Vulkan 1.2 required.",
        "ggml_opencl: could find any OpenCL devices.",
        "ggml_sycl_init: failed to initialize: No device of requested type available",
        "Failed to create context virtual (0xc01e0009): There was an error while creating context",
    ),
    "device-lost-timeout": (
        "CUDA error: uncorrectable ECC error encountered",
        "CUDA error: GPU is lost",
        "amdgpu 0000:03:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE",
        "amdgpu 0000:03:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8)",
        "xe 0000:03:00.0: [drm] GT0: Timedout job: seqno=4294967169, guc_id=2",
        "error: Innocent victim of GPU error/recovery "
        "(00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)",
        "ggml_vulkan: device fault on AMD Radeon Graphics: page fault",
    ),
    "host-ram-growth": (
        "systemd-oomd[900]: Killed /user.slice/app.scope due to memory pressure for / being 60%",
        "lowmemorykiller: Kill 'com.example.app' (1234), oom_score_adj 0 to free 900000kB",
        "jetsam: killed by memory pressure",
        'earlyoom[800]: sending SIGTERM to process 4242 "llama-server": oom_score 900',
        "srv  alloc: failed to allocate memory for prompt cache state: std::bad_alloc",
    ),
    "runtime-vram-growth": (
        "CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation: out of memory",
        "HIP error 2",
        "HSA_STATUS_ERROR_OUT_OF_RESOURCES: no resources. Code: 0x1008 Available Free mem : 0 MB",
    ),
    "weights-oom": (
        "ggml_opencl: clCreateBuffer error -4 at ggml-opencl.cpp:4021",
        "No MoE tensors in model and required memory 30000 MiB greater than available memory 20000 MiB.",
    ),
    "kv-alloc-oom": ("ensure_dsv4_cache_tensors: failed to allocate DSV4 cache context",),
    "recurrent-state-oom": (
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for DSV4 compressor state",
        "checkpoint_alloc_shadows: failed to allocate buffer for shadow tensors",
        "llama_spec_ckpt_init: failed to preallocate per-step checkpoint buffers for max_tokens=8",
        "per_step_alloc: failed to allocate buffer for per-step checkpoints",
    ),
    "kv-slot-exhaustion": ("llama_kv_cache_find_slot: n_tokens=512 > cache.size=256",),
    "fit-abort": (
        "llama_model_load: error loading model: -ncmoe | --n-cpu-moe cannot be used with --fit",
    ),
    "option-refused": (
        "llama_model_load: error loading model: It is not possible to use split mode 'graph' with less than 2 devices",
    ),
    "compute-oom": ("decode: could not reserve space for batch with 512 outputs",),
    "single-allocation-limit": ("ggml_opencl: clCreateBuffer error -61 at ggml-opencl.cpp:4021",),
    "fit-gap-mtp": (
        "ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 521142272\n"
        "graph_reserve: failed to allocate compute buffers\n"
        "srv    load_model: failed to create MTP context",
    ),
    "speculation-off": (
        "srv    load_model: failed to create MTP context",
        "common_speculative_finalize_startup: Step MTP requires a Step companion",
    ),
    "file-corrupt": (
        "gguf_init_from_reader: bad GGUF version: 0",
        "gguf_init_from_reader: tensor 'a' of type 2 (q4_0) has 31 elements per row, not a "
        "multiple of block size (32)",
        "gguf_init_from_reader: total number of elements in tensor 'a' with shape (1, 2, 3, 4) "
        "is >= 9223372036854775807",
        "gguf_init_from_reader: memory size overflow while allocating ggml context",
    ),
    "arch-unknown": (
        "gguf_init_from_file_impl: tensor 'blk.0.attn_k.weight' of type 31 (TYPE_Q4_0_4_4 REMOVED, "
        "use Q4_0 with runtime repacking) has 2048 elements per row, not a multiple of block size "
        "(0)",
    ),
    "rpc-unreachable": (
        "[set_tensor] tensor data region (data=0x7f, offset=0, size=16) out of buffer bounds "
        "[0x1, 0x2)",
        "[get_tensor] error deserializing tensor",
        "recv failed (bytes_recv=0, size_to_recv=8)",
        "Expected HELLO command, update client",
    ),
    "request-refused": (
        "init: the tokens of sequence 0 in the input batch have inconsistent sequence positions:",
        "init: sequence 3 positions are not continuous",
        "find_slot: seq_id=4 >= n_seq_max=4 Try using a bigger --parallel value",
        "number of bitmaps (0) does not match number of markers (1)",
        "mtmd_helper_bitmap_init_from_buf: failed to decode image bytes",
    ),
    "slot-split": (
        "srv load_model: initializing, n_slots = 2, n_ctx_slot = 172544, kv_unified = 'false'",
    ),
    "embed-ubatch": (
        'do embedding request: Post "http://127.0.0.1:41231/embedding": EOF',
        "    self._batch.add_sequence(tokens, len(s_sizes), False)\nValueError: NULL pointer access",
    ),
    "hang": ("client connection closed before llama-server finished loading, aborting load",),
    "model-refused": (
        "llama_init_from_model: failed to initialize the context: wrong state of the memory module",
    ),
}
MEMORY = {"host-ram-growth", "fit-gap-mtp", "runtime-vram-growth"}
HARMLESS = (
    "llama_init_from_model: failed to initialize the context: Gemma4Assistant requires ctx_other "
    "to be set (this warning is normal during memory fitting)",
    "llama_model_loader: mmap is not supported on this platform",
    "warning: mlock not supported on this system",
    "load: missing pre-tokenizer type, using: 'default'",
    "load: Mask token is missing in vocab, please reconvert model!",
    "srv  load_model: the slot context (262144) exceeds the training context of the model (131072) "
    "- capping",
    "srv  llama_server: setting n_batch = n_ubatch = 512 to avoid assertion failure",
    "ggml_backend_cuda_device_get_memory: cudaMemGetInfo failed (unknown), returning 0/0",
    "WARNING: failed to allocate 512.00 MB of pinned memory",
    "load_backend: failed to find ggml_backend_init in /src/build/bin/libggml-cpu.so",
    "common_init_from_params: warming up the model with an empty run - please wait ...\nmain: llama threadpool init, n_threads = 4",
    "XXXXXXXXXXXXXXXXXXXXXXXXXXXXXX amb = 64 is too low. Changing to 128",
    "Attempting to use: Platform=0, Device=0 (If invalid, program will crash)",
    "data:image/png;base64,iVBORw0KGgoAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
)


@pytest.mark.parametrize(
    ("kind", "line"), [(kind, line) for kind, lines in FAMILIES.items() for line in lines]
)
def test_a_line_alone_is_named(kind: str, line: str) -> None:
    first = diagnose(line, numbers=False).findings[0]
    assert first.kind == kind
    assert not first.guessed
    assert first.memory_is_the_cause == (kind in MEMORY or kind.endswith("-oom"))


@pytest.mark.parametrize("line", HARMLESS)
def test_a_line_that_only_warns_is_not_blamed(line: str) -> None:
    assert diagnose(line, numbers=False).blamed == ()


@pytest.mark.parametrize("said", [row[1] for row in noted.ROWS])
def test_what_is_said_in_passing_is_neither_blamed_nor_guessed_about(said: str) -> None:
    line = f"ggml_backend: failed to open the device: error, {said} cannot allocate"
    found = diagnose(line, numbers=False)
    assert found.findings == ()
    assert found.unexplained == ()


@pytest.mark.parametrize("around", ["INFO [router stdout] [45979] ", "2026-05-17 10:44:43.466 | "])
def test_the_level_of_the_engine_counts_whatever_stands_before_it(around: str) -> None:
    said = "0.19.146.242 {} ggml_x: unsupported GPU, could not initialize the device"
    assert diagnose(around + said.format("W"), numbers=False).blamed == ()
    assert diagnose(around + said.format("E"), numbers=False).blamed


@pytest.mark.parametrize("end", ["n_embd", "n_ff", "max token length"])
def test_an_excerpt_that_ends_among_a_models_figures_is_no_hang(end: str) -> None:
    names = ("arch", "n_ctx_train", "n_embd", "n_layer", "n_head", "n_head_kv", "n_rot", "n_ff")
    facts = [f"print_info: {name} = 8" for name in names]
    log = "\n".join([*facts, f"print_info: {end} = 16"])
    assert bool(diagnose(log, numbers=False).blamed) == (end == "max token length")


def test_every_wording_and_signal_compiles() -> None:
    rows = [row for table, _ in failures.TABLES for row in table]
    assert all(row.pattern.groups >= 0 for row in rows)
    for signal in signals.SIGNALS:
        assert all(re.compile(cue, re.ASCII) for cue in (*signal.cues, signal.but))


def test_an_assertion_after_the_prompt_cache_grew_is_what_ended_it() -> None:
    log = (
        "srv        update:  - saving prompt with length 77712, total state size = 18821.469 MiB\n"
        "/src/llama.cpp:6171: GGML_ASSERT(total_size == size) failed\n"
    )
    assert diagnose(log, numbers=False).findings[0].kind == "engine-crash"


def test_a_warning_of_another_program_after_a_good_load_blames_no_attention() -> None:
    said = 'time=2026-03-27T00:19:25Z level=WARN msg="flash attention enabled but not supported by model"'
    started = 'time=2026-03-27T00:19:20Z level=INFO msg="llama runner started in 0.34 seconds"\n'
    assert diagnose(said, numbers=False).findings[0].kind == "fa-auto-disabled"
    assert diagnose(started + said, numbers=False).blamed == ()
