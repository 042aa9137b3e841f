"""A case against all rules: findings, surest first, the outcome, and what nobody can explain."""

from __future__ import annotations

import re
from dataclasses import replace

from kvwise.diagnose.case import Case, Seen
from kvwise.diagnose.finding import FAIR, POSSIBLE, Diagnosis, Evidence, Finding, Hit, Rule
from kvwise.diagnose.guesses import guesses
from kvwise.diagnose.programs import where_to_look
from kvwise.diagnose.rules import HINTS, RULES, TOLD, own
from kvwise.diagnose.stage import READY
from kvwise.diagnose.useful import useful
from kvwise.text import Phrase, phrase

_FIELD = re.compile(r"\{(\w+)\}", re.ASCII)
_LEAST = 0.2
_MOST_FINDINGS = 8
_SLOW = frozenset({"vram-spill-slow", "fa-kernel-fallback", "fa-auto-disabled", "swa-reprocessing",
                   "kv-oversize"})  # fmt: skip
_CRASHES = ("assert", "crashed", "gpu_oom", "device_lost", "no_kernel", "cpu_instructions", "cuda",
            "rpc_lost", "vk_oom")  # fmt: skip
_REFUSALS = (
    "server_exit", "model_load", "context_made", "context_init", "argument", "port_taken",
    "kv_alloc", "weights_alloc", "compute_alloc", "rs_alloc", "v_quant_needs_flash_attn",
    "block_vs_head_size", "cache_type_unsupported", "file_open", "not_gguf", "header_cut",
    "data_cut", "split_missing", "split_illegal", "architecture_unknown", "tensor_missing",
    "ram_short", "guard_stopped", "tokenizer_unknown", "tensor_type_unknown", "tensor_count",
    "tensor_shape", "key_missing", "mla_k_v_types_differ", "device_name", "spec_type",
    "regex_bad", "no_backend", "slots_above_limit", "clip_as_model", "buffer_alloc",
    "device_alloc", "buffer_limit", "exited",
)  # fmt: skip


def judge(case: Case) -> Diagnosis:
    """What a load comes to."""
    findings = _findings(case)
    guessed = [_finding(rule, hit, case) for rule, hit in guesses(case, findings)]
    loaded = case.loaded
    model = loaded.model
    blamed = [finding for finding in findings if finding.blames]
    unexplained = [] if blamed else [Evidence(*each) for each in case.said.suspects[:8]]
    if case.complete and not loaded.failures:
        unexplained = []
    return Diagnosis(
        outcome=_outcome(case, findings),
        findings=(*findings, *guessed),
        build=f"b{loaded.build.number}" if loaded.build and loaded.build.number > 0 else None,
        model=_model_name(case) if model else None,
        unexplained=tuple(unexplained),
        last=Evidence(*case.said.tail[-1]) if case.said.tail else None,
        first_line=case.first_line,
        last_line=case.last_line,
        case=case,
    )


def _findings(case: Case) -> list[Finding]:
    found: dict[str, Finding] = {}
    _ask((*RULES, *own.rules(case, RULES)), case, found)
    if not any(each.blames and each.confidence > POSSIBLE for each in found.values()):
        _ask((*HINTS, *TOLD), case, found)
    ordered = sorted(found.values(), key=lambda each: -each.confidence)
    return _alone(ordered)[:_MOST_FINDINGS]


def _alone(findings: list[Finding]) -> list[Finding]:
    """That it failed is certain where nothing else is said; only the reason is not known."""
    blamed = [each for each in findings if each.blames]
    if not blamed or any(each.reason_known for each in blamed):
        return findings
    sure = replace(blamed[0], confidence=max(blamed[0].confidence, FAIR))
    others = [each for each in findings if each is not blamed[0]]
    return sorted([sure, *others], key=lambda each: -each.confidence)


def _ask(rules: tuple[Rule, ...], case: Case, found: dict[str, Finding]) -> None:
    for rule in rules:
        hit = rule.when(case)
        if hit is None or hit.confidence < _LEAST - 1e-9:
            continue
        finding = _finding(rule, hit, case)
        known = found.get(rule.kind)
        if known is None or known.confidence < finding.confidence:
            found[rule.kind] = finding


def _finding(rule: Rule, hit: Hit, case: Case) -> Finding:
    memory = rule.memory if hit.memory is None else hit.memory
    pool = hit.pool or rule.pool
    return Finding(
        kind=rule.kind,
        confidence=round(min(hit.confidence, 0.99), 2),
        memory_is_the_cause=memory,
        memory_pool=pool,
        evidence=tuple(Evidence(each.line, each.text[:400]) for each in _apart(hit.lines)),
        cause=_cause(hit.cause or rule.cause, hit),
        remedies=(
            *(() if rule.tells_why else where_to_look(case)),
            *hit.remedies,
            *useful(rule.remedies, case, pool if memory else None),
        ),
        rule=rule.name,
        reason_known=rule.tells_why,
    )


def _cause(template: str, hit: Hit) -> Phrase:
    """The sentence; "?" for what no line says."""
    unknown = dict.fromkeys(_FIELD.findall(template), "?")
    return phrase(template, **(unknown | dict(hit.fields)))


def _apart(lines: tuple[Seen, ...]) -> list[Seen]:
    """Each wording once: `--fit` prints every error twice."""
    kept: dict[str, Seen] = {}
    for each in lines:
        kept.setdefault(each.text, each)
    return list(kept.values())


def _outcome(case: Case, findings: list[Finding]) -> str:  # noqa: PLR0911 (one per outcome)
    kinds = [finding.kind for finding in findings if finding.blames]
    if case.has("killed", "oom_killed"):
        return "killed"
    if kinds and kinds[0] == "hang":
        return "hung"
    if any(code in case.seen for code in _CRASHES):
        return "crashed"
    if case.has("server_exit", "context_made", "model_load", "argument") or (
        not case.complete and case.has(*_REFUSALS)
    ):
        return "refused"
    if kinds and kinds[0] == "runtime-vram-growth":
        return "refused"
    if kinds and kinds[0] in _SLOW:
        return "slow"
    if case.complete or case.stage == READY:
        return "ok"
    return "unknown"


def _model_name(case: Case) -> str | None:
    model = case.loaded.model
    if model is None:
        return None
    name = model.facts.get("general.name") or model.path.replace("\\", "/").rpartition("/")[2]
    return name or model.facts.get("arch")
