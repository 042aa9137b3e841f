"""What a tool makes of its options before it creates a context.

llama-server and llama-cli (which runs the server inside itself) share one start
(tools/server/server.cpp llama_server, server-context.cpp server_output_limits,
common/speculative.cpp common_speculative_n_max, common/common.h need_n_rs_seq);
llama-bench has its own (tools/llama-bench/llama-bench.cpp to_llama_cparams). All b10605.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvwise.errors import UsageError
from kvwise.launch import Launch
from kvwise.options.kinds import INT_MAX
from kvwise.options.row import BENCH, SERVER

FIT_LACKING = 7152  # the newest build known to have no --fit
MMAP_MODES = ("auto", "mmap", "mmap+mlock")
TOGETHER = {  # fields out of several options, the one that decides first
    "model": ("_hf", "_docker", "_url", "_path"),
    "model_draft": ("_draft_hf", "_draft_path"),
    "mmproj": ("_mmproj_url", "mmproj"),
    "n_ctx": ("n_ctx", "_per_slot", "_p", "_pg", "_n", "_d"),
}
_SNAPSHOT_TYPES = {"draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"}
_NGRAM_LENGTH = {  # kind of speculation -> the flag with its longest draft, and the default
    "ngram-simple": ("--spec-ngram-simple-size-m", 48),
    "ngram-map-k": ("--spec-ngram-map-k-size-m", 48),
    "ngram-map-k4v": ("--spec-ngram-map-k4v-size-m", 48),
    "ngram-mod": ("--spec-ngram-mod-n-max", 64),
}


def resolve(values: Mapping[str, Any], extra: tuple[str, ...]) -> Launch:
    """The launch out of collected values; those that start with `_` are put together here."""
    plain = {name: value for name, value in values.items() if not name.startswith("_")}
    mmproj = values.get("_mmproj_url") or values.get("mmproj", "")
    plain |= {"model": _model(values), "model_draft": _draft(values), "mmproj": mmproj}
    plain["mmap"] = plain.get("load_mode", "auto") in MMAP_MODES
    if int(values["build"].removeprefix("b")) <= FIT_LACKING:
        plain["fit"] = False
    if plain["model_draft"] and plain.get("spec_types") == ():
        extra = (*extra, "--spec-type", "none")  # else the draft's file would say
    if values["tool"] == BENCH:
        launch = Launch(**plain, extra=extra)
        return replace(launch, n_ctx=_bench_context(values), fit=_bench_fit(extra))
    slots = plain.get("n_seq_max", -1 if values["tool"] == SERVER else 1)
    if slots == 0:
        raise UsageError("-np: there is no server with 0 slots")
    if slots < 0:
        plain |= {"n_seq_max": 4, "kv_unified": True}
    if "n_ctx" not in plain and values.get("_per_slot", 0) > 0:
        plain["n_ctx"] = plain.get("n_seq_max", 1) * values["_per_slot"]
    launch = _whole_batch(Launch(**plain, extra=extra))
    return replace(launch, **{k: v for k, v in derived(launch).items() if k not in values})


def change(launch: Launch, **changes: Any) -> Launch:
    """`replace`, and what the tool derives from the changed fields follows them."""
    before = derived(launch)
    follows = [name for name, value in before.items() if getattr(launch, name) == value]
    changed = _whole_batch(replace(launch, **changes))
    after = derived(changed)
    return replace(changed, **{name: after[name] for name in follows if name not in changes})


def _whole_batch(launch: Launch) -> Launch:
    """A server for embeddings takes no batch larger than the micro-batch (server.cpp)."""
    if launch.tool != BENCH and launch.embeddings and launch.n_batch > launch.n_ubatch:
        return replace(launch, n_batch=launch.n_ubatch)
    return launch


def derived(launch: Launch) -> dict[str, Any]:
    """The fields that the tool sets by itself from the others."""
    if launch.tool == BENCH:
        return {"n_outputs_max": 0, "n_rs_seq": 0, "load_mtp": False}
    types = set(launch.spec_types)
    return {
        "n_outputs_max": _outputs(launch),
        "n_rs_seq": launch.draft_n_max if types & _SNAPSHOT_TYPES else 0,
        "load_mtp": "draft-mtp" in types,
    }


def _outputs(launch: Launch) -> int:
    if launch.embeddings or launch.pooling not in ("", "none"):
        return launch.n_batch
    return max(1, min(launch.n_batch, launch.n_seq_max * (1 + drafted(launch))))


def drafted(launch: Launch) -> int:
    """Most tokens that one round of speculation can propose."""
    longest = 0
    for kind in launch.spec_types:
        if kind.startswith("draft-"):
            longest = max(longest, launch.draft_n_max)
        elif kind == "ngram-cache":
            longest = max(longest, 8)
        elif kind in _NGRAM_LENGTH:
            flag, default = _NGRAM_LENGTH[kind]
            longest = max(longest, _number_after(launch.extra, flag, default))
    return longest


def _number_after(words: Sequence[str], flag: str, default: int) -> int:
    return int(words[words.index(flag) + 1]) if flag in words else default


def _model(values: Mapping[str, Any]) -> str:
    """Hub wins over address over Docker over path (common_models_handler_apply)."""
    if values.get("_hf"):
        return _hub(values["_hf"], values.get("_hf_file", ""))
    if values.get("_docker"):
        return f"docker:{values['_docker']}"
    return str(values.get("_url") or values.get("_path", ""))


def _draft(values: Mapping[str, Any]) -> str:
    path: str = values.get("_draft_path", "")
    return _hub(values["_draft_hf"], path) if values.get("_draft_hf") else path


def _hub(repo: str, file: str) -> str:
    return f"hf:{repo.partition(':')[0]}:{file}" if file else f"hf:{repo}"


def _bench_context(values: Mapping[str, Any]) -> int:
    """Each test has its own context; the largest is the one to account for."""
    longest = max(values.get("_p", 512), values.get("_n", 128), values.get("_pg", 0))
    if longest == 0:
        raise UsageError("-p 0 and -n 0 leave llama-bench nothing to run")
    total: int = longest + values.get("_d", 0)
    if total > INT_MAX:
        raise UsageError("a context of {total} tokens is beyond llama-bench", total=total)
    return total


def _bench_fit(extra: Sequence[str]) -> bool:
    """Fitting is off in llama-bench unless -fitt asks for a margin."""
    return "-fitt" in extra and extra[extra.index("-fitt") + 1] != "0"
