"""llama-server's flags as settings of the embedded engine's server: those that need no rule.

A flag of this table sets one attribute of the engine's parameters (`sampling.temp` is the
attribute `temp` of `sampling`). Attributes read off xllamacpp 2026.10.11549; what a flag means is
common/arg.cpp's (b11549).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvwise.errors import SourceError, UsageError
from kvwise.launch import Launch
from kvwise.options.reading import walk
from kvwise.oserrors import reason_of

_VALUES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--api-prefix": ("api_prefix", str),
    "--path": ("public_path", str),
    "--slot-save-path": ("slot_save_path", str),
    "--ssl-key-file": ("ssl_file_key", str),
    "--ssl-cert-file": ("ssl_file_cert", str),
    "--chat-template": ("chat_template", str),
    "-n": ("n_predict", int),
    "--keep": ("n_keep", int),
    "-cram": ("cache_ram_mib", int),
    "-ctxcp": ("n_ctx_checkpoints", int),
    "-cms": ("checkpoint_min_step", int),
    "--cache-reuse": ("n_cache_reuse", int),
    "--threads-http": ("n_threads_http", int),
    "--sleep-idle-seconds": ("sleep_idle_seconds", int),
    "--embd-normalize": ("embd_normalize", int),
    "-sps": ("slot_prompt_similarity", float),
    "--rope-freq-base": ("rope_freq_base", float),
    "--rope-freq-scale": ("rope_freq_scale", float),
    "--yarn-orig-ctx": ("yarn_orig_ctx", int),
    "--yarn-ext-factor": ("yarn_ext_factor", float),
    "--yarn-attn-factor": ("yarn_attn_factor", float),
    "--yarn-beta-slow": ("yarn_beta_slow", float),
    "--yarn-beta-fast": ("yarn_beta_fast", float),
    "--temp": ("sampling.temp", float),
    "--top-k": ("sampling.top_k", int),
    "--top-p": ("sampling.top_p", float),
    "--min-p": ("sampling.min_p", float),
    "--repeat-last-n": ("sampling.penalty_last_n", int),
    "--repeat-penalty": ("sampling.penalty_repeat", float),
    "--presence-penalty": ("sampling.penalty_present", float),
    "--frequency-penalty": ("sampling.penalty_freq", float),
    "-s": ("sampling.seed", int),
    "-tb": ("cpuparams_batch.n_threads", int),
    "-lv": ("verbosity", int),
}
_SWITCHES = {
    "--metrics": "endpoint_metrics",
    "--props": "endpoint_props",
    "--slots": "endpoint_slots",
    "--context-shift": "ctx_shift",
    "-cb": "cont_batching",
    "--jinja": "use_jinja",
    "--cache-prompt": "cache_prompt",
    "--cache-idle-slots": "cache_idle_slots",
    "--check-tensors": "check_tensors",
    "--reuse-port": "reuse_port",
    "--prefill-assistant": "prefill_assistant",
    "--mmproj-offload": "mmproj_use_gpu",
    "-sp": "special",
    "--ignore-eos": "sampling.ignore_eos",
}
_ELSEWHERE = {"--host", "--port", "--log-colors", "--log-prefix", "--log-timestamps", "-v"}
"""Set from the address, or how lines look, which the embedded engine decides itself."""
_KEPT = {"-t", "--warmup"}
"""What `embedded_spec` reads."""


def attributes(
    launch: Launch, strangers: Sequence[str] = ()
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(attribute -> value, words for `embedded_spec`) of the flags that set no field of a launch.

    Raises UsageError for a flag that the embedded engine cannot be given.
    """
    if strangers:
        raise _refused(strangers[0])
    found: dict[str, Any] = {}
    rest: list[str] = []
    for option, positive, words, flag in walk(launch.extra, launch.tool, launch.build):
        name = option.flags[0]
        if name in _KEPT:
            rest += [flag, *words]
        elif name in _ELSEWHERE:
            continue
        elif name in ("-to", "--timeout"):
            found |= {"timeout_read": int(words[0]), "timeout_write": int(words[0])}
        elif name in ("--api-key", "--api-key-file"):
            found["api_keys"] = [*found.get("api_keys", []), *_keys(name, words[0])]
        elif name == "-a":
            found["model_alias"] = [each.strip() for each in words[0].split(",")]
        elif name in _VALUES:
            attribute, kind = _VALUES[name]
            found[attribute] = kind(words[0])
        elif name in _SWITCHES:
            found[_SWITCHES[name]] = positive
        else:
            raise _refused(flag)
    return found, tuple(rest)


def _keys(name: str, text: str) -> list[str]:
    if name == "--api-key":
        return [key for key in text.split(",") if key]
    try:
        return [line.strip() for line in Path(text).read_text("utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise SourceError("{path}: {reason}", path=text, reason=reason_of(error)) from error


def _refused(flag: str) -> UsageError:
    return UsageError(
        "the embedded engine cannot be given {flag}", flag=flag,
        hint="use a llama-server: --engine PATH",
    )  # fmt: skip
