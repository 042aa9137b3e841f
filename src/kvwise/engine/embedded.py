"""The child's main when the engine is xllamacpp: `python -m kvwise.engine.embedded SPEC`.

SPEC is the JSON of `settings.embedded_spec`. Once the model is loaded one JSON line with the
address goes to stdout; the engine's own log goes to stderr, from C++, so it is the descriptor that
counts. Closing stdin ends it. Every setting is given: what it does not set, the engine's struct
decides, and those defaults are not llama-server's (one slot, its own batch...).
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

_FLASH = {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"}
_LOAD = {"auto": "AUTO", "none": "NONE", "mmap": "MMAP", "mlock": "MLOCK",
         "mmap+mlock": "MMAP_MLOCK", "dio": "DIRECT_IO"}  # fmt: skip
ALL_LAYERS = 999


def parameters(spec: dict[str, Any]) -> Any:
    """CommonParams of xllamacpp from a spec."""
    import xllamacpp as x  # noqa: PLC0415  (only the child loads the engine)

    launch, p = spec["launch"], x.CommonParams()
    p.model.path = spec["model"]
    p.n_ctx, p.n_batch, p.n_ubatch = launch["n_ctx"], launch["n_batch"], launch["n_ubatch"]
    p.n_parallel, p.kv_unified = launch["n_seq_max"], launch["kv_unified"]
    p.cache_type_k = _kind(x, launch["type_k"])
    p.cache_type_v = _kind(x, launch["type_v"])
    p.flash_attn_type = _member(
        x.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_" + _FLASH[launch["flash_attn"]]
    )
    p.swa_full = launch["swa_full"]
    p.no_kv_offload, p.no_op_offload = not launch["offload_kqv"], not launch["op_offload"]
    p.no_extra_bufts = not launch["repack"]
    _place(x, p, launch)
    _load(x, p, launch)
    if launch["model_draft"] or launch["spec_types"]:
        _draft(x, p, launch)
    p.embedding = launch["embeddings"]
    if launch["pooling"]:
        p.pooling_type = _member(
            x.llama_pooling_type, "LLAMA_POOLING_TYPE_" + launch["pooling"].upper()
        )
    p.fit_params = launch["fit"] and not spec["exact"]
    if spec["exact"]:
        p.cache_ram_mib = 0
    if not spec["checkpoints"]:
        p.n_ctx_checkpoints = 0
    p.verbosity, p.warmup = spec["verbosity"], spec["warmup"]
    p.hostnames, p.port = [spec["host"]], spec["port"]
    if spec["threads"]:
        p.cpuparams.n_threads = spec["threads"]
        p.cpuparams_batch.n_threads = spec["threads"]
    for name, value in spec.get("more", {}).items():
        _set(p, name, value)
    return p


def _set(p: Any, name: str, value: Any) -> None:
    """One attribute; `sampling.temp` is the attribute of an attribute."""
    part, dot, inner = name.partition(".")
    if dot:
        _set(getattr(p, part), inner, value)
    else:
        setattr(p, name, set(value) if isinstance(getattr(p, name), set) else value)


def _kind(x: Any, name: str) -> Any:
    return _member(x.ggml_type, "GGML_TYPE_" + name.upper())


def _member(family: Any, name: str) -> Any:
    return getattr(family, name)


def _place(x: Any, p: Any, launch: dict[str, Any]) -> None:
    p.n_gpu_layers = launch["n_gpu_layers"] if launch["n_gpu_layers"] >= 0 else ALL_LAYERS
    p.split_mode = _member(x.llama_split_mode, "LLAMA_SPLIT_MODE_" + launch["split_mode"].upper())
    p.main_gpu = launch["main_gpu"]
    if launch["tensor_split"]:
        shares = list(launch["tensor_split"])
        p.tensor_split = shares + [0.0] * (len(p.tensor_split) - len(shares))
    overrides = [f"{pattern}={buffer}" for pattern, buffer in launch["override_tensor"]]
    overrides += [
        rf"blk\.{layer}\.ffn_\w+_(ch)?exps\.=CPU" for layer in range(min(launch["n_cpu_moe"], 512))
    ]
    if overrides:
        p.tensor_buft_overrides = ",".join(overrides)


def _load(x: Any, p: Any, launch: dict[str, Any]) -> None:
    mode = launch["load_mode"]
    if not launch["mmap"] and mode == "auto":
        mode = "none"
    p.load_mode = _member(x.llama_load_mode, "LLAMA_LOAD_MODE_" + _LOAD[mode])
    p.load_mtp = launch["load_mtp"]
    if launch["mmproj"]:
        p.mmproj.path = launch["mmproj"]


def _draft(x: Any, p: Any, launch: dict[str, Any]) -> None:
    draft = p.speculative.draft
    prefix = "COMMON_SPECULATIVE_TYPE_"
    p.speculative.types = [
        _member(x.common_speculative_type, prefix + name.upper().replace("-", "_"))
        for name in launch["spec_types"]
    ]
    if launch["model_draft"]:
        draft.mparams.path = launch["model_draft"]
    draft.n_max = launch["draft_n_max"]
    draft.n_gpu_layers = launch["draft_gpu_layers"]
    draft.cache_type_k = _kind(x, launch["draft_type_k"])
    draft.cache_type_v = _kind(x, launch["draft_type_v"])


def main(arguments: list[str]) -> int:
    """Serve until stdin closes. 1 = the engine refused; its reason is in the log above."""
    import xllamacpp  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own waits until the engine is done
    p = parameters(json.loads(arguments[0]))
    try:
        server = xllamacpp.Server(p)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps({"url": server.listening_address}) + "\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
