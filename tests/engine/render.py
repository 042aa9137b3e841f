"""Writes the lines that a build of llama.cpp would have printed for a measured allocation.

The formats are those of the sources named beside them; the values come from public reports.
"""

# ruff: noqa: ISC004 (two string pieces in a row are one line)

from __future__ import annotations

from typing import Any


def _mib(value: float, width: int = 8) -> str:
    return f"{value:{width}.2f}"


def kv_total(cache: dict[str, Any], style: str) -> list[str]:
    """`new` (llama-kv-cache.cpp since mid-2025), `unified` (mid-2025), `self` (early 2025)."""
    sides = ""
    if cache["k_mib"] is not None:
        sides = (
            f", K ({cache['type_k']}): {_mib(cache['k_mib'], 7)} MiB,"
            f" V ({cache['type_v']}): {_mib(cache['v_mib'], 7)} MiB"
        )
    size = _mib(cache["size_mib"], 7)
    if style == "self":
        return [f"llama_context: KV self size  = {size} MiB{sides}"]
    name = {"new": "llama_kv_cache", "unified": "llama_kv_cache_unified"}[style]
    seqs = f"{cache['n_seq_max']:2d}"
    if style == "new":
        seqs += f"/{cache['n_stream']}"
    return [
        f"{name}: size = {size} MiB ({cache['cells']:6d} cells, {cache['layers']:3d} layers, "
        f"{seqs} seqs){sides}"
    ]


def kv_lines(cache: dict[str, Any], style: str) -> list[str]:
    name = {"new": "llama_kv_cache", "unified": "llama_kv_cache_unified", "self": "init"}[style]
    lines = []
    if cache["cache"] in ("SWA", "non-SWA"):
        lines.append(
            f"{name}_iswa: creating {cache['cache']:>7s} KV cache, size = {cache['cells']} cells"
        )
    if style == "self":
        lines.append(
            f"init: kv_size = {cache['cells']}, offload = 1, type_k = '{cache['type_k']}', "
            f"type_v = '{cache['type_v']}', n_layer = {cache['layers']}, can_shift = 1"
        )
    lines += [
        f"{name}: {device:>10s} KV buffer size = {_mib(size)} MiB"
        for device, size in cache["per_device_mib"].items()
    ]
    return lines + kv_total(cache, style)


def rs_lines(state: dict[str, Any]) -> list[str]:
    lines = [
        f"llama_memory_recurrent: {device:>10s} RS buffer size = {_mib(size)} MiB"
        for device, size in state["per_device_mib"].items()
    ]
    sides = ""
    if state["r_mib"] is not None:
        sides = f", R (f32): {_mib(state['r_mib'], 7)} MiB, S (f32): {_mib(state['s_mib'], 7)} MiB"
    return [
        *lines,
        f"llama_memory_recurrent: size = {_mib(state['size_mib'], 7)} MiB "
        f"({state['cells']:6d} cells, {state['layers_printed']:3d} layers, "
        f"{state['n_seq_max']:2d} seqs {state['rs_seq']:2d} rs_seq){sides}",
    ]


def context_lines(params: dict[str, Any], style: str) -> list[str]:
    lines = [] if style == "self" else ["llama_context: constructing llama_context"]
    for name in ("n_seq_max", "n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "flash_attn"):
        if name in params:
            printed = "n_ctx_per_seq" if name == "n_ctx_seq" and style != "new" else name
            lines.append(f"llama_context: {printed:<13s} = {str(params[name]).split()[0]}")
    rest = [name for name in ("kv_unified", "n_rs_seq", "n_outputs_max") if name in params]
    return lines + [f"llama_context: {name:<13s} = {str(params[name]).lower()}" for name in rest]


def weights_lines(measured: dict[str, Any]) -> list[str]:
    return [
        f"load_tensors: {name:>12s} model buffer size = {_mib(size)} MiB"
        for name, size in measured["model_mib"].items()
    ]


def reserve_lines(measured: dict[str, Any], style: str) -> list[str]:
    function = "sched_reserve" if style == "new" else "llama_context"
    lines = [f"{function}: reserving ..."] if style == "new" else []
    for name, size in measured["compute_mib"].items():
        digits = 4 if round(size, 2) != size else 2  # one report has the debug line's 4 decimals
        if digits == 4:
            lines.append(
                f"~llama_context: {name:>10s} compute buffer size is {size:8.4f} MiB, "
                f"matches expectation of {size:8.4f} MiB"
            )
        else:
            lines.append(f"{function}: {name:>10s} compute buffer size = {_mib(size)} MiB")
    splits = measured.get("graph_splits")
    if isinstance(splits, dict):
        batch = next(key for key in splits if key != "bs1")[2:]
        lines.append(
            f"{function}: graph splits = {splits['bs' + batch]} (with bs={batch}), "
            f"{splits['bs1']} (with bs=1)"
        )
    elif splits is not None:
        lines.append(f"{function}: graph splits = {splits}")
    return lines


def output_lines(measured: dict[str, Any]) -> list[str]:
    return [
        f"llama_context: {name:>10s}  output buffer size = {_mib(size)} MiB"
        for name, size in measured.get("output_mib", {}).items()
    ]


def breakdown_lines(measured: dict[str, Any]) -> list[str]:
    lines = []
    for name, row in measured.get("breakdown", {}).items():
        own, model = row["self"], row["model"]
        context, compute = row.get("context", 0), row.get("compute", 0)
        head = f"llama_memory_breakdown_print: |   - {name:<20s} | "
        if "total" in row:
            lines.append(
                f"{head}{row['total']:5d} = {row['free']} + ({own:5d} = {model:5d} + "
                f"{context:7d} + {compute:7d}) + {row['unaccounted']:11d} |"
            )
        else:
            lines.append(
                f"{head}                {own:5d} = {model:5d} + {context:7d} + {compute:7d} "
                "               |"
            )
    return lines


def fit_lines(measured: dict[str, Any]) -> list[str]:
    fit = measured.get("fit")
    if not fit:
        return []
    name = "llama_params_fit_impl"
    lines = [
        f"{name}:   - {device} (Some GPU): {row['total']:6d} total, {row['used']:6d} used, "
        f"{row['margin']:6d} free vs. target of {fit['target_mib']:6d}"
        for device, row in fit.get("per_device", {}).items()
    ]
    lines.append(
        f"{name}: projected to use {fit['projected_mib']} MiB of device memory vs. "
        f"{fit['free_mib']} MiB of free device memory"
    )
    lines.append(
        f"{name}: cannot meet free memory target of {fit['target_mib']} MiB, need to reduce device "
        "memory by 1 MiB"
    )
    if "verdict" in fit:
        reason = fit["verdict"].removeprefix("failed to fit params: ")
        lines.append(f"llama_params_fit: failed to fit params to free device memory: {reason}")
    return lines


def extra_lines(measured: dict[str, Any]) -> list[str]:
    lines = []
    for what, size in measured.get("mmproj_mib", {}).items():
        if what.endswith("compute"):
            buffer = what.split()[0]
            lines.append(
                f"reserve_compute_meta: {buffer:>10s} compute buffer size = {_mib(size)} MiB"
            )
        else:
            lines.append(f"load_hparams: model size:         {size:.2f} MiB")
    if "checkpoint_mib" in measured:
        lines.append(
            "slot create_check: id  3 | task 0 | created context checkpoint 1 of 32 "
            f"(pos_min = 5, pos_max = 5, n_tokens = 6, size = {measured['checkpoint_mib']:.3f} MiB)"
        )
    if "prompt_cache" in measured:
        cache = measured["prompt_cache"]
        lines += [
            f"srv    load_model: prompt cache is enabled, size limit: {cache['limit_mib']} MiB",
            f"srv   prompt_save:  - saving prompt with length {cache['saved_prompt_tokens']}, "
            f"total state size = {cache['saved_mib']:.3f} MiB",
        ]
    if "mtp_estimate_mib" in measured:
        lines.append(
            "srv load_model: [spec] estimated memory usage of MTP context is "
            f"{measured['mtp_estimate_mib']:.2f} MiB"
        )
    return lines


def log_of(report: dict[str, Any], style: str) -> list[str]:
    """A whole log of the report, without prefixes."""
    measured, params = report["measured"], report["params"]
    lines = [
        f"using device {d['backend']} ({d['name']}) (unknown id) - {d['free_mib']} MiB free"
        for d in report["devices"]
        if isinstance(d["free_mib"], int)
    ]
    lines += fit_lines(measured)
    if "/" in params.get("offloaded", ""):
        lines.append(f"load_tensors: offloaded {params['offloaded'].split()[0]} layers to GPU")
    lines += weights_lines(measured) + context_lines(params, style) + output_lines(measured)
    for cache in measured["kv"]:
        if cache["cache"] == "mtp-draft":
            lines.append("creating MTP draft context against the target model 'MODEL.gguf'")
            lines.append("llama_context: constructing llama_context")
        lines += kv_lines(cache, style)
        if cache["cache"] == "target":
            lines += [line for state in measured.get("rs", []) for line in rs_lines(state)]
    if not any(cache["cache"] == "target" for cache in measured["kv"]):
        lines += [line for state in measured.get("rs", []) for line in rs_lines(state)]
    if any(cache["cache"] == "mtp-draft" for cache in measured["kv"]):
        return lines + extra_lines(measured)
    return (
        lines + reserve_lines(measured, style) + extra_lines(measured) + breakdown_lines(measured)
    )
