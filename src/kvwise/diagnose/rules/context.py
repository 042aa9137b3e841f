"""Requests against the context they got."""

from __future__ import annotations

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import FAIR, LIKELY, SURE, WEAK, Hit, Rule
from kvwise.diagnose.rules.asking import failed, remedy, seen
from kvwise.diagnose.rules.remedies import (
    NEWER_BUILD,
)
from kvwise.text import template

_PICKED = 15
"""Lines that somebody picked out to show something are no more than that."""


def _shares(case: Case) -> tuple[int, int, int] | None:
    """(tokens of the whole context, slots, tokens of a slot) when the context is divided."""
    total = case.fact("n_ctx")
    per = case.fact("n_ctx_seq")
    slots = case.fact("n_seq_max") or 0
    said = case.loaded.slots
    if said:
        slots = slots or said.n_slots
        per = per or said.n_ctx_slot
        if said.kv_unified:
            return None
    for each in case.all("slot", "new_prompt", "below_train"):
        if per is None and "n_ctx" in each.fields:
            per = int(each.fields["n_ctx"])
    if said and said.kv_unified is False and per and not total:
        total = slots * per
    if not slots:
        slots = len(case.seen.get("slot", ()))
    if slots > 1 and per and total and per < total:
        return total, slots, per
    if total and per and per < total and total // per > 1:
        return total, total // per, per
    streams = max([each.streams or 1 for each in case.caches()], default=1)
    if streams > 1:
        cells = case.caches()[0].cells or 0
        return cells * streams, streams, cells
    return None


def _split(case: Case) -> Hit | None:
    shares = _shares(case)
    if shares is None or failed(case):
        return None
    total, slots, per = shares
    fields = {"total": f"{total:,}", "slots": slots, "per": f"{per:,}"}
    lines = case.all("context_exceeded", "prompt_cut", "answer_cut", "no_cells")
    if lines:
        return Hit(0.97, (*case.all("setting_line")[:2], *lines[:3]), fields)
    alone = case.said.lines <= _PICKED if case.excerpt else _nothing_else(case)
    if alone and not case.loaded.failures and not case.caches():
        return Hit(FAIR, tuple(case.all("slot", "setting_line")[:4]), fields)
    return None


def _nothing_else(case: Case) -> bool:
    """Do the lines speak of slots, and of no model, no context and no request?"""
    return bool(case.loaded.slots) and not (case.opened or case.loaded.models or case.has("served"))


def _too_long(case: Case) -> Hit | None:
    lines = case.all("context_exceeded")
    if not lines:
        return _prompt_above_slot(case) or _seen_from_outside(case)
    fields: dict[str, object] = {}
    for each in (*lines, *case.all("new_prompt")):
        for name in ("tokens", "n_ctx"):
            if name not in fields and name in each.fields:
                fields[name] = f"{int(each.fields[name]):,}"
    return Hit(SURE, tuple(lines[:3]), fields)


def _prompt_above_slot(case: Case) -> Hit | None:
    for each in case.all("new_prompt"):
        tokens, n_ctx = int(each.fields["tokens"]), int(each.fields["n_ctx"])
        if tokens >= n_ctx:
            return Hit(LIKELY, (each,), {"tokens": f"{tokens:,}", "n_ctx": f"{n_ctx:,}"})
    return None


def _seen_from_outside(case: Case) -> Hit | None:
    """The server found no cell for one more token, and whoever asked was told of a context."""
    lines = [each for each in case.all("no_cells") if "what" in each.fields]
    return Hit(FAIR, tuple(lines[:2])) if lines else None


def _cut_answer(case: Case) -> Hit | None:
    """Generation ran into the end of the context."""
    lines = case.all("answer_cut")
    if not lines or case.has("context_exceeded", "prompt_cut"):
        return None
    crashed = case.has("crashed", "assert")  # what came after it matters more
    return Hit(WEAK if crashed else FAIR, tuple(lines[:3]), cause=_WALL)


_WALL = template(
    "prompt and answer together reached the end of the slot's context: the answer was cut off, or "
    "the oldest tokens were thrown away"
)


def _too_large(case: Case) -> Hit | None:
    lines = case.all("input_above_ubatch") or [
        each for each in case.all("assert") if "n_ubatch" in each.fields.get("what", "")
    ]
    if not lines:
        broken = case.all("embedding_broken")
        return Hit(FAIR, tuple(broken[:2])) if broken else None
    return Hit(SURE, tuple(lines[:3]), dict(lines[0].fields))


_MORE = remedy("give the slot more context, if memory allows", "-c N")
_SHARE = remedy("let all slots share the context", "-kvu")

RULES: tuple[Rule, ...] = (
    Rule(
        "divided",
        "slot-split",
        _split,
        template(
            "the context of {total} tokens is divided between {slots} slots: a request gets {per}"
        ),
        (
            remedy("one slot gets all of it", "-np 1"),
            _SHARE,
            remedy("or give slots times the wanted length", "-c N"),
        ),
    ),
    Rule(
        "cells",
        "kv-slot-exhaustion",
        seen("no_cells", confidence=SURE),
        template(
            "the cache that was made has no free cells for this batch: requests at the same "
            "time share it, and a sliding window keeps few cells"
        ),
        (
            _MORE,
            remedy("one slot, or fewer requests at the same time", "-np 1"),
            remedy("a smaller logical batch", "-b 512"),
            remedy("with a sliding window: keep all cells", "--swa-full"),
            NEWER_BUILD,
        ),
    ),
    Rule(
        "too-long",
        "context-overflow",
        _too_long,
        template("the request has {tokens} tokens, the slot holds {n_ctx}"),
        (
            _MORE,
            remedy("check that the wrapper passes the context on: see n_ctx_slot in the log"),
            remedy("send less: a shorter history or prompt"),
            remedy("let old tokens go (the model forgets them)", "--context-shift"),
        ),
    ),
    Rule(
        "wall",
        "context-overflow",
        _cut_answer,
        _WALL,
        (_MORE, remedy("ask for fewer tokens", "-n N")),
    ),
    Rule(
        "shortened",
        "prompt-truncation",
        seen("prompt_cut", confidence=SURE),
        template(
            "the program shortened the prompt to the context it was started with, silently for "
            "the caller"
        ),
        (
            remedy("raise num_ctx in the request, or for the server", "OLLAMA_CONTEXT_LENGTH=N"),
            remedy("set the variable where the server runs, not where the client does"),
            _MORE,
        ),
    ),
    Rule(
        "one-batch",
        "embed-ubatch",
        _too_large,
        template(
            "a model that reads its input at once (embeddings, reranking) must get it in one "
            "physical batch, and the input is longer; the context has nothing to do with it"
        ),
        (
            remedy("make both batches as large as the longest input", "-b N", "-ub N"),
            remedy("if the model was trained for less, only shorter pieces help"),
        ),
    ),
    Rule(
        "bad-request",
        "request-refused",
        seen("request_bad", "batch_bad", "batch_above", confidence=FAIR),
        template("the server refused what the request contained"),
        (remedy("look at the request: tokens of another model, a grammar that does not parse"),),
    ),
    Rule(
        "not-generating",
        "request-refused",
        seen("no_logits", confidence=SURE),
        template("this model only makes embeddings: it cannot generate text"),
        (remedy("ask /embedding, or load a model that generates"),),
    ),
    Rule(
        "endpoint",
        "request-refused",
        seen("endpoint_off", confidence=SURE),
        template("the server was not started for this kind of request"),
        (
            remedy("start it for embeddings", "--embeddings", "--pooling mean"),
            remedy("or for reranking", "--reranking"),
        ),
    ),
)
