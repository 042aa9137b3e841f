"""Figures, parts of memory and settings by the names that people know them by."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from kvwise.errors import KvwiseError
from kvwise.launch import TOOLS, Launch
from kvwise.options import defaults, to_argv, unsayable
from kvwise.results.label import says_threads
from kvwise.results.record import Measurement
from kvwise.results.wording import listed, number, visible
from kvwise.text import Phrase, phrase
from kvwise.units import percent, show

PARTS: Mapping[str, Phrase] = {
    "weights_bytes": phrase("weights"),
    "context_bytes": phrase("cache"),
    "compute_bytes": phrase("compute"),
    "output_bytes": phrase("output"),
    "overhead_bytes": phrase("overhead"),
}
_FIGURES: Mapping[str, Phrase] = {
    "kl_mean": phrase("KL mean"),
    "kl_mean_error": phrase("standard error of the KL mean"),
    "kl_median": phrase("KL median"),
    "kl_p99": phrase("KL p99"),
    "kl_max": phrase("KL max"),
    "noise_kl_mean": phrase("KL mean of noise"),
    "noise_kl_p99": phrase("KL p99 of noise"),
    "noise_same_top": phrase("same top in noise"),
    "noise_by": phrase("noise measured by"),
    "noise_diverged_at": phrase("f16 diverges from itself at token"),
    "diverged_at": phrase("first divergence at token"),
    "same_top": phrase("same top"),
    "same_top_error": phrase("standard error of same top"),
    "ppl": phrase("perplexity"),
    "ppl_base": phrase("perplexity of f16"),
    "ppl_ratio": phrase("perplexity ratio"),
    "ppl_ratio_error": phrase("standard error of the perplexity ratio"),
    "positions": phrase("positions compared"),
    "reference": phrase("what others are compared with"),
    "base_bytes": phrase("disk space of the base"),
    "flash_attn": phrase("flash attention"),
    "verdict": phrase("verdict"),
    "why": phrase("why"),
    "error": phrase("error"),
    "chunks": phrase("chunks"),
    "drafted": phrase("tokens drafted"),
    "accepted": phrase("tokens accepted"),
    "accepted_length": phrase("tokens per pass"),
    "accepted_per_draft": phrase("tokens accepted per draft"),
    "passes_per_1000": phrase("passes per 1,000 tokens"),
    "whole_tokens_per_s": phrase("with the prompt, tokens/s"),
    "same_text": phrase("same text"),
    "model_bytes": phrase("memory of the model"),
    "draft_bytes": phrase("memory of the draft"),
    "peak_rss_bytes": phrase("most memory"),
}
_SHARES = {"same_top", "same_top_error", "noise_same_top"}
VERDICTS: Mapping[str, Phrase] = {
    "lossless": phrase("lossless"),
    "high": phrase("high"),
    "medium": phrase("medium"),
    "low": phrase("low"),
    "broken": phrase("broken"),
}
_TESTS: Mapping[str, Phrase] = {
    "n_prompt": phrase("{value} tokens read"),
    "n_gen": phrase("{value} tokens generated"),
    "depth": phrase("{value} tokens in the context before"),
    "method": phrase("by {value}"),
    "chunks": phrase("{value} chunks of the text"),
    "chunk_tokens": phrase("{value} tokens in a chunk"),
    "text": phrase("text {value}"),
    "top": phrase("{value} likeliest tokens of each position"),
    "prompts": phrase("fixed prompts {value}"),
    "prompt_ctx": phrase("a context of {value} tokens for the prompts"),
    "threads": phrase("{value} threads"),
    "variant": phrase("way to generate: {value}"),
    "draft": phrase("draft model {value}"),
    "chat": phrase("through the chat template: {value}"),
    "point": phrase("settings tried: {value}"),
}
"""What stands in a measurement's `test`, beside its metric."""
_BYTES = "_bytes"


def figure_name(name: str) -> Phrase | str:
    """What a figure is; its key where no words are known."""
    return _FIGURES.get(name) or visible(name)


def figure_text(name: str, value: object) -> Phrase | str:
    """A figure as people read it; empty where there is none, or where the result's own state says
    it."""
    if value is None or value == "" or name == "state":
        return ""
    if isinstance(value, bool):
        return phrase("yes") if value else phrase("no")
    if not isinstance(value, int | float):
        said = visible(str(value))
        return VERDICTS.get(said, said) if name == "verdict" else said
    if name.endswith(_BYTES):
        return show(int(value))
    return percent(value, ".1f") if name in _SHARES else number(value)


def settings_text(found: Measurement) -> Phrase | str:
    """The settings as flags of llama.cpp that are not its defaults; what is no flag behind them."""
    known = {each.name for each in fields(Launch)} - {"tool", "build", "model"}
    tool = found.engine.tool if found.engine.tool in TOOLS else TOOLS[0]
    given = dict(found.settings)
    if tool == "llama-bench":
        given.pop("n_ctx", None)  # it follows from the test
    if says_threads(given):
        given.pop("threads", None)
    own = {name: value for name, value in given.items() if name in known}
    try:
        base = defaults(tool, found.engine.build) if found.engine.build else defaults(tool)
        launch = replace(base, **{name: _tuples(value) for name, value in own.items()})
        said = shlex.join(map(str, to_argv(launch)))
        own = {} if unsayable(launch) and not said else own
    except (KvwiseError, TypeError, ValueError, LookupError, AttributeError):  # a stranger's file
        own, said = {}, ""
    rest = _pairs_text({name: value for name, value in given.items() if name not in own})
    text = " ".join(each for each in (visible(said), rest) if each)
    return text or phrase("all as by default")


def test_text(found: Measurement) -> Phrase:
    """What was done to measure it: lengths, texts, threads; what is empty or 0 is left out."""
    return listed([
        _told(name, value)
        for name, value in found.test.items()
        if name != "metric" and value not in (None, "", [], {}, 0)
    ])  # fmt: skip


def _told(name: str, value: object) -> Phrase:
    if isinstance(value, Mapping):
        value = _pairs_text(value)
    said = figure_text(name, value) if isinstance(value, bool) else visible(str(value))
    known = _TESTS.get(name)
    if known is None:
        return phrase("{name}: {text}", name=visible(name), text=said)
    return Phrase(known.template, {"value": said})


def _pairs_text(values: Mapping[str, Any]) -> str:
    """`depth=0 metric=decode`, without what is empty."""
    return visible(" ".join(
        f"{name}={value}" for name, value in values.items() if value not in (None, "", [])
    ))  # fmt: skip


def _tuples(value: Any) -> Any:
    """Lists of JSON as a `Launch` has them."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
