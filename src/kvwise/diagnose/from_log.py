"""Model, settings and devices as far as a log tells them.

A log without the file still has the header's numbers: the dumped keys, and `print_info`. That is
enough for caches and states, whose sizes need no tensor; weights and compute buffers it is not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvwise.arch import describe
from kvwise.diagnose.case import Case
from kvwise.diagnose.useful import cache_types
from kvwise.engine.loaded import ModelLoad
from kvwise.errors import KvwiseError
from kvwise.gguf.header import Header, Value
from kvwise.gguf.model import Model
from kvwise.gguf.types import by_name
from kvwise.launch import Launch
from kvwise.options import read, split_argv

_PRINTED = {
    "n_ctx_train": "context_length", "n_embd": "embedding_length", "n_layer": "block_count",
    "n_head": "attention.head_count", "n_head_kv": "attention.head_count_kv",
    "n_embd_head_k": "attention.key_length", "n_embd_head_v": "attention.value_length",
    "n_swa": "attention.sliding_window", "n_ff": "feed_forward_length", "n_vocab": "vocab_size",
    "n_rot": "rope.dimension_count", "n_expert": "expert_count",
    "n_expert_used": "expert_used_count", "ssm_d_conv": "ssm.conv_kernel",
    "ssm_d_inner": "ssm.inner_size", "ssm_d_state": "ssm.state_size",
    "ssm_dt_rank": "ssm.time_step_rank", "ssm_n_group": "ssm.group_count",
    "n_lora_kv": "attention.kv_lora_rank", "n_lora_q": "attention.q_lora_rank",
    "n_embd_head_k_mla": "attention.key_length_mla",
    "n_embd_head_v_mla": "attention.value_length_mla", "n_ff_exp": "expert_feed_forward_length",
    "n_layer_dense_lead": "leading_dense_block_count",
}  # fmt: skip
"""print_info's names (src/llama-model.cpp, b10605) -> keys of the header."""
_NEEDED = ("block_count", "attention.head_count", "embedding_length")
_NO_BYTES = {"attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5}
_LIST = re.compile(r"\[([\d, ]{1,4000})\]\Z")
_ABSENT_IF_ZERO = ("sliding_window", "expert", "mla", "lora", "ssm")
_REST = frozenset({"-m", "--model", "--host", "--port"})


def model_of(load: ModelLoad | None) -> Model | None:
    """The model that a log describes, without tensors; None if it says too little."""
    if load is None:
        return None
    facts = load.facts
    arch = facts.get("arch") or facts.get("general.architecture")
    if not arch:
        return None
    metadata: dict[str, Value] = {
        key: value
        for key, text in facts.items()
        if "." in key and (value := _value(text)) is not None
    }
    metadata["general.architecture"] = arch
    if "general.name" in facts:
        metadata["general.name"] = facts["general.name"]
    metadata.setdefault("tokenizer.ggml.model", "no_vocab")
    for name, key in _PRINTED.items():
        value = _value(facts.get(name, ""))
        full = f"{arch}.{key}"
        absent = value == 0 and any(part in key for part in _ABSENT_IF_ZERO)
        if value is not None and full not in metadata and not absent:
            metadata[full] = value
    for key, value in _NO_BYTES.items():  # asked for by every loader, in no size
        metadata.setdefault(f"{arch}.{key}", value)
    if any(f"{arch}.{key}" not in metadata for key in _NEEDED):
        return None
    try:
        return describe(Header(version=3, metadata=metadata, tensors=(), path=load.path))
    except (KvwiseError, ValueError, TypeError, ArithmeticError, LookupError):
        return None


def _value(text: str) -> Value | None:
    text = text.strip()
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"-?\d{1,12}\.\d{1,12}(?:e[+-]?\d{1,3})?", text, re.ASCII):
        return float(text)
    if text in ("true", "false"):
        return text == "true"
    numbers = _LIST.match(text)
    if numbers:
        return tuple(int(each) for each in numbers[1].replace(" ", "").split(",") if each)
    return None


def launch_of(case: Case, build: str | None = None) -> Launch:
    """What the load was asked: a command line in the log, overruled by what the engine says."""
    launch = with_settings(_commanded(case) or Launch(n_outputs_max=0), case.settings)
    context = case.loaded.main
    facts = context.facts if context else {}
    changes: dict[str, object] = {}
    for name, field in (("n_ctx", "n_ctx"), ("n_batch", "n_batch"), ("n_ubatch", "n_ubatch"),
                        ("n_seq_max", "n_seq_max")):  # fmt: skip
        value = facts.get(name, "")
        if value.isdecimal() and int(value) > 0:
            changes[field] = int(value)
    if "kv_unified" in facts:
        changes["kv_unified"] = facts["kv_unified"] == "true"
    flash = {"enabled": "on", "1": "on", "disabled": "off", "0": "off", "auto": "auto"}
    if facts.get("flash_attn") in flash:
        changes["flash_attn"] = flash[facts["flash_attn"]]
    changes |= _types(case)
    model = case.loaded.model
    if model and model.offloaded:
        changes["n_gpu_layers"] = model.offloaded[0]
    if case.has("swa_full"):
        changes["swa_full"] = True
    if case.loaded.build and case.loaded.build.number > 0:
        changes["build"] = build or f"b{case.loaded.build.number}"
    made = replace(launch, **changes)  # type: ignore[arg-type]
    if not made.n_outputs_max:
        made = replace(made, n_outputs_max=max(1, made.n_seq_max))
    return made


def with_settings(launch: Launch, settings: Mapping[str, object]) -> Launch:
    """The launch with some of its fields named anew; rows of the output follow the slots."""
    made = replace(launch, **settings)  # type: ignore[arg-type]
    if made.n_seq_max != launch.n_seq_max and "n_outputs_max" not in settings:
        made = replace(made, n_outputs_max=max(1, made.n_seq_max))
    return made


def _types(case: Case) -> dict[str, object]:
    """The cache types that were printed, else those with which `kvwise run` began the load."""
    printed = [(cache.type_k, cache.type_v) for cache in case.caches()[:1]]
    types = printed[0] if printed else cache_types(case)
    return {
        side: kind
        for side, kind in zip(("type_k", "type_v"), types, strict=False)
        if kind and by_name(kind)
    }


def _commanded(case: Case) -> Launch | None:
    for each in reversed(case.all("command")):
        argv = _argv(each.fields.get("argv", ""))
        tool = each.fields.get("tool", "")
        try:
            reading = read(
                argv, tool=tool if tool in ("llama-server", "llama-cli") else "llama-server"
            )
        except KvwiseError:
            continue
        return reading.launch
    return None


def _argv(text: str) -> list[str]:
    """The words of a pasted command that are llama.cpp's own."""
    try:
        words = shlex.split(text.replace("\\\\", "\\"), posix=True)
    except ValueError:
        words = text.split()
    ours, _ = split_argv(words, {})
    return ours


def asked_in(case: Case) -> Sequence[str]:
    """Flags of the command line in the log, as written."""
    for each in reversed(case.all("command")):
        return _argv(each.fields.get("argv", ""))
    return ()
