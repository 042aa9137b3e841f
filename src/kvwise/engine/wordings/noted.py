"""What llama.cpp says in passing with words of a failure: debug lines, notices, warnings.

Asked before all failures: nothing went wrong. Source: what b10605 and b11549 print below the level
of an error, as far as its words would be taken for one.
"""

from __future__ import annotations

import re

from kvwise.engine.wordings import Wording

_SAID = (
    # -- the library ------------------------------------------------------------------------------
    "cannot be offloaded to the backend", "cannot reuse graph", "for async uploads",
    "unknown KV override type", "running DENSE attention", "different number of nodes",
    "different number of leafs", "failed to allocate graph, reserving", "internal unsupported: ",
    "unknown GGML_CUDA_ALLREDUCE", "CUDA graph update failed", "register_host_buffer: failed to ",
    "ggml_backend_score in", "posix_stat(", "is not supported on this system",
    "precompiled Metal library", "kernel cache disabled", "transient compile failure",
    "Bilinear upscale will not", "large buffer requested but not", "does not support subgroups",
    "will use builtin kernels", "getMemoryHostPointerProperties", "Failed ggml_vk_create_buffer",
    "OpenVINO backend does not support", "SYCL_ENABLE_FLASH_ATTN", "KLEIDIAI_SME",
    "model cache import failed", "model cache export failed", "create model cache dir",
    "CPU comparison", "using host memory fallback", "extension VK_EXT", "extension VK_KHR",
    # -- what is common to the tools --------------------------------------------------------------
    "Template application failed", "comparison failed", "aborting detection",
    "unknown template variant", "triggering error:", "unable to match sampler",
    "invalid Content-Length header", "HEAD failed", "HEAD invalid http status",
    "failed to remove blob", "missing 'branches'", "skip invalid ", "failed to resolve commit",
    "unable to delete temporary file", "unable to rename file", "cannot meet free memory targets",
    "did not find weights for", "failed to fetch model metadata",
    # -- the tools --------------------------------------------------------------------------------
    "session file does not exist, will create", "session file is empty", "Not using system message",
    "chat template is not available", "requested, but not found. deactivating", "MCP warmup:",
    "get server executable path", "on unknown completion id", "static assets path not found",
    "using GGUF format with a different suffix", "generation may skip words",
)  # fmt: skip

ROWS: tuple[Wording, ...] = tuple(("noted", said, re.escape(said)) for said in _SAID)
