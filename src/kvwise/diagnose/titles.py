"""The vocabulary: every kind of finding and its name for people.

The first 38 are those of public reports of llama.cpp; those after them name what has no kind there.
"""

from __future__ import annotations

from kvwise.text import template

TITLES: dict[str, str] = {
    "kv-alloc-oom": template("the KV cache does not fit"),
    "weights-oom": template("the weights do not fit"),
    "compute-oom": template("the compute buffer does not fit"),
    "recurrent-state-oom": template("the recurrent state does not fit"),
    "kv-oversize": template("the cache is larger than needed"),
    "single-allocation-limit": template("one buffer is above the device's limit"),
    "metal-working-set": template("the working set of the Apple GPU is exceeded"),
    "runtime-vram-growth": template("GPU memory ran out after the load"),
    "fit-gap-mtp": template("fitting did not count the built-in draft"),
    "fit-gap-mmproj": template("fitting did not count the vision projector"),
    "fit-abort": template("fitting declined"),
    "fit-crash": template("fitting itself failed"),
    "fit-after-leak": template("memory was still taken when the load began"),
    "benign-error-line": template("an error line that is not the failure"),
    "benign-warning": template("a warning that is not the failure"),
    "host-ram-growth": template("the system's memory ran out"),
    "slot-split": template("the context is divided between slots"),
    "context-overflow": template("the request is longer than the context"),
    "kv-slot-exhaustion": template("the cache has no free cells"),
    "prompt-truncation": template("the prompt was shortened"),
    "embed-ubatch": template("the input is longer than the physical batch"),
    "fa-required": template("a quantized V cache needs flash attention"),
    "fa-kernel-fallback": template("flash attention runs on the processor"),
    "fa-auto-disabled": template("flash attention switched itself off"),
    "kv-quant-quality": template("the cache is too coarse for this model"),
    "kernel-bug-garbage": template("a kernel computes wrongly"),
    "swa-reprocessing": template("the whole prompt is read again"),
    "vram-spill-slow": template("GPU memory spilled into system memory"),
    "moe-placement": template("tensors landed on the wrong device"),
    "device-lost-timeout": template("the GPU was reset"),
    "hang": template("no progress and no error"),
    "file-corrupt": template("the file is damaged or cut off"),
    "arch-unknown": template("the engine is older than the model"),
    "split-missing": template("a part of a split model is missing or wrong"),
    "missing-tensor": template("file and engine are of different ages"),
    "wrong-kernel-build": template("the build does not run on this device"),
    "spec-vocab": template("draft and target do not go together"),
    "mlock-warning": template("memory could not be locked; not fatal"),
    # -- beyond the vocabulary -------------------------------------------------------------------
    "file-missing": template("there is no such file"),
    "cache-type-refused": template("the cache type is refused"),
    "option-refused": template("an option is refused"),
    "request-refused": template("the request cannot be served"),
    "port-taken": template("the port is taken"),
    "device-missing": template("there is no such device"),
    "rpc-unreachable": template("a remote server is not there"),
    "speculation-off": template("nothing drafts"),
    "engine-incomplete": template("the engine misses its own parts"),
    "engine-crash": template("the engine crashed"),
    "model-refused": template("the engine refused the model"),
    "tokenizer-degraded": template("the tokenizer is not described in the file"),
}  # fmt: skip
VOCABULARY = tuple(TITLES)[:38]
