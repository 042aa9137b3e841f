"""Settings that the engine refuses or cannot honour."""

from __future__ import annotations

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import FAIR, LIKELY, SURE, Hit, Rule
from kvwise.diagnose.rules.asking import failed, remedy, seen
from kvwise.diagnose.rules.remedies import (
    DRAFT_FROM_TEXT,
)
from kvwise.text import template


def _spec_without_type(case: Case) -> Hit | None:
    """A draft was loaded and nothing drafts."""
    lines = case.all("speculation_line") if case.loaded.speculation == "" else []
    drafts = any(model.draft for model in case.loaded.models) or any(
        context.draft for context in case.loaded.contexts
    )
    told = case.has("draft_vocab", "draft_kind", "speculation_off", "draft_load", "mtp_missing",
                    "draft_context", "mtp_context")  # fmt: skip
    return Hit(LIKELY, tuple(lines[:2])) if lines and drafts and not told else None


def _draft_kind(case: Case) -> Hit | None:
    """Another draft is wanted; a context that got no memory is no such refusal."""
    codes = ["draft_kind", "mtp_missing", "speculation_unsupported"]
    if not failed(case):
        codes.append("mtp_context")
    return seen(*codes, confidence=0.9)(case)


_F16 = remedy("keep V in f16", "-ctv f16")

RULES: tuple[Rule, ...] = (
    Rule(
        "v-needs-flash",
        "fa-required",
        seen("v_quant_needs_flash_attn", confidence=SURE),
        template(
            "a quantized V cache needs flash attention, which is off or not available for this "
            "model on this device"
        ),
        (
            remedy(
                "turn flash attention on, with the same type for K and V",
                "-fa on",
                "-ctk q8_0",
                "-ctv q8_0",
            ),
            _F16,
            remedy("the Python package flash-attn has nothing to do with it"),
        ),
    ),
    Rule(
        "v-type-ignored",
        "fa-required",
        seen("kv_type_ignored", confidence=LIKELY),
        template(
            "a quantized cache was asked for, but flash attention is off: the cache stays f16"
        ),
        (remedy("turn flash attention on", "-fa on", "OLLAMA_FLASH_ATTENTION=1"),),
    ),
    Rule(
        "needs-flash",
        "fa-required",
        seen("flash_attn_needed", confidence=0.9),
        template("this way to split the model needs flash attention"),
        (remedy("turn flash attention on", "-fa on"),),
    ),
    Rule(
        "block",
        "cache-type-refused",
        seen("block_vs_head_size", confidence=SURE),
        template(
            "the {side} cache cannot be {type}: its blocks of {block} do not divide heads of {head}"
        ),
        (
            remedy(
                "take a type whose blocks divide the head size, or f16", "-ctk q8_0", "-ctv q8_0"
            ),
        ),
    ),
    Rule(
        "k-not-v",
        "cache-type-refused",
        seen("mla_k_v_types_differ", confidence=SURE),
        template("this model keeps K and V in one cache: their types must be the same"),
        (remedy("give both the same type", "-ctk f16", "-ctv f16"),),
    ),
    Rule(
        "cache-type",
        "cache-type-refused",
        seen("cache_type_unsupported", confidence=SURE),
        template("{type} is no type for a cache"),
        (remedy("f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl or f32", "-ctk q8_0"),),
    ),
    Rule(
        "argument",
        "option-refused",
        seen("argument", confidence=SURE),
        template("this build does not take the option {flag} as it was written"),
        (
            remedy("see what this build calls it", "--help"),
            remedy("kvwise plan and size write options for a build", "--engine-build bN"),
        ),
    ),
    Rule(
        "split-mode",
        "option-refused",
        seen("split_mode", confidence=SURE),
        template("the model cannot be split by tensors: {reason}"),
        (remedy("split by layers", "-sm layer"),),
    ),
    Rule(
        "regex",
        "option-refused",
        seen("regex_bad", confidence=SURE),
        template("a pattern of --override-tensor is no regular expression"),
        (remedy("write it like this", "-ot 'blk\\.[0-9]+\\.ffn_.*_exps.*=CPU'"),),
    ),
    Rule(
        "spec-type",
        "option-refused",
        seen("spec_type", confidence=SURE),
        template("this build knows no speculative decoding called {type}"),
        (remedy("with a draft model", "--spec-type draft-simple"),),
    ),
    Rule(
        "device",
        "device-missing",
        seen("device_name", confidence=SURE),
        template("the engine sees no device called {device}"),
        (remedy("see what it calls them", "--list-devices"),),
    ),
    Rule(
        "slots",
        "option-refused",
        seen("slots_above_limit", confidence=SURE),
        template("the number of slots does not go with this context"),
        (remedy("fewer slots", "-np N"), remedy("a longer context", "-c N")),
    ),
    Rule(
        "port",
        "port-taken",
        seen("port_taken", confidence=SURE),
        template("another program listens on that port, perhaps an older server"),
        (remedy("take any free port", "--port 0"), remedy("or end the other server")),
    ),
    Rule(
        "draft-unused",
        "speculation-off",
        _spec_without_type,
        template(
            "the draft model is loaded and paid for, but nothing drafts: the kind of speculation "
            "was not named"
        ),
        (remedy("name it", "--spec-type draft-simple"),),
    ),
    Rule(
        "vocab",
        "spec-vocab",
        seen("draft_vocab", confidence=SURE),
        template("draft and target have different tokenizers: the server runs without drafting"),
        (
            remedy("take a draft of the same family and generation", "-md FILE"),
            DRAFT_FROM_TEXT,
        ),
    ),
    Rule(
        "draft-file",
        "speculation-off",
        seen("draft_load", confidence=0.9),
        template("the draft model cannot be loaded"),
        (remedy("check the draft's path and file", "-md FILE"),),
    ),
    Rule(
        "draft-kind",
        "speculation-off",
        _draft_kind,
        template("this kind of speculation needs another draft, or a model that has MTP layers"),
        (
            remedy("an ordinary draft model", "--spec-type draft-simple"),
            DRAFT_FROM_TEXT,
        ),
    ),
    Rule(
        "speculation",
        "speculation-off",
        seen("speculation_off", "draft_context", confidence=FAIR),
        template("speculative decoding did not start; the server runs without it"),
        (remedy("show why", "--verbosity 4"),),
    ),
)
