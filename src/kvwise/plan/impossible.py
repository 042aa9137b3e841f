"""When nothing meets a request: what stands in the way, and what could be asked instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvwise.memory.lacking import LACKING, lacking_together
from kvwise.memory.ledger import Ledger
from kvwise.options import OPTIONS
from kvwise.plan.goal import Goal
from kvwise.plan.search import Search
from kvwise.text import Phrase, phrase, template
from kvwise.units import show


@dataclass(frozen=True, slots=True)
class Attempt:
    """A weaker request, and what was given up."""

    goal: Goal
    fixed: frozenset[str]
    gives_up: Phrase


def relaxed(search: Search) -> Iterator[Attempt]:
    """Weaker requests, the nearest first."""
    goal, fixed = search.goal, frozenset(search.fixed)
    free = fixed - {"n_ctx"}
    if "n_ctx" in fixed:
        yield Attempt(goal, free, phrase("another -c"))
        if goal.prompt_tokens is not None:
            shorter = replace(goal, predict_tokens=1)
            yield Attempt(shorter, fixed, phrase("a shorter answer"))
    if goal.never_offload:
        offloaded = replace(goal, never_offload=False)
        yield Attempt(offloaded, free, phrase("some layers in the host's memory"))
    if goal.floor != "any":
        lower = replace(goal, min_quality="any", never_offload=False)
        yield Attempt(lower, free, phrase("--min-quality any"))
    if goal.predict_tokens is not None and goal.prompt_tokens is not None:
        shorter = replace(goal, predict_tokens=1, never_offload=False)
        yield Attempt(shorter, free, phrase("a shorter answer"))
    if goal.conversation is not None:
        fewer = replace(goal, turns=1, never_offload=False)
        yield Attempt(fewer, free, phrase("fewer turns"))
    least = replace(
        goal,
        purpose="max-context",
        prompt_tokens=None,
        predict_tokens=None,
        turns=None,
        tokens_per_turn=None,
        min_quality="any",
        never_offload=False,
    )
    yield Attempt(least, free, phrase("a shorter context"))
    if free:
        yield Attempt(least, frozenset(), phrase("none of the fixed flags"))


def sentence(
    search: Search, attempt: Attempt | None, nearest_tokens: int | None
) -> tuple[str, str | None, dict[str, object]]:
    """(template, hint, fields) of the refusal."""
    goal = search.goal
    fields: dict[str, object] = {
        "prompt": goal.prompt_tokens,
        "answer": goal.predict_tokens,
        "least": max(search.least, _asked(search)) if "n_ctx" in search.fixed else search.least,
        "n_ctx": search.base.n_ctx,
        "trained": search.trained,
        "where": _where(search),
        "short": show(search.closest or 0),
        "lacking": _lacking(search),
        "tokens": nearest_tokens,
        "gives_up": attempt.gives_up if attempt else "",
        "left": _left(search),
        "flags": ", ".join([*sorted(flag_of(name) for name in search.fixed), *_stays(goal)]),
    }
    hint = None
    if nearest_tokens is not None:
        hint = _NEAREST
        if goal.prompt_tokens is not None and nearest_tokens > goal.prompt_tokens:
            fields["nearest_left"] = nearest_tokens - goal.prompt_tokens
            hint = _NEAREST_WITH_PROMPT
        elif goal.prompt_tokens is not None:
            longest = nearest_tokens - (search.least - goal.prompt_tokens)
            fields["longest"] = max(0, longest)
            hint = _SHORTER_PROMPT if longest > 0 else _NEAREST
    return _what(search), hint, fields


_NEAREST = template("with {gives_up} it can: {tokens:,} tokens per slot")
_NEAREST_WITH_PROMPT = template(
    "with {gives_up} it can: {tokens:,} tokens per slot, of which {nearest_left:,} for the answer"
)
_SHORTER_PROMPT = template(
    "the prompt is too long for any context that can be had: {tokens:,} tokens per slot are the "
    "most, enough for a prompt of {longest:,}"
)
_PROMPT_TOO_LONG = template("a prompt of {prompt:,} tokens does not fit a context of {n_ctx:,}")
_ANSWER_TOO_LONG = template(
    "a prompt of {prompt:,} tokens leaves {left:,} of {n_ctx:,} for the answer, not {answer:,}"
)
_LITTLE_LEFT = template(
    "a prompt of {prompt:,} tokens leaves only {left:,} of {n_ctx:,} for the answer"
)
_BEYOND_TRAINING = template(
    "{least:,} tokens per slot are more than the {trained:,} the model was trained for"
)
_TOO_LARGE = template(
    "{least:,} tokens per slot do not fit {where}: the nearest misses by {short}; {lacking}"
)
_TOO_LARGE_WITH_FLAGS = template(
    "{least:,} tokens per slot do not fit {where} with {flags} kept: the nearest misses by "
    "{short}; {lacking}"
)
_NO_PLACEMENT = template("no placement that was tried has room for all of it")


def _what(search: Search) -> str:
    goal = search.goal
    if goal.prompt_tokens is not None and "n_ctx" in search.fixed:
        room = _room(search)
        if goal.prompt_tokens >= room:
            return _PROMPT_TOO_LONG
        if search.least > room:
            return _ANSWER_TOO_LONG if goal.predict_tokens else _LITTLE_LEFT
    if search.least > search.trained:
        return _BEYOND_TRAINING
    return _TOO_LARGE_WITH_FLAGS if search.fixed or goal.never_offload else _TOO_LARGE


def _lacking(search: Search) -> Phrase:
    """What would not fit even if all memory were one, with the smallest cache and no graph."""
    ubatch = search.ubatches()[-1]
    launches = (search.sized(search.launch_of(pair, ubatch), search.least)
                for pair in search.pairs())  # fmt: skip
    ledgers = [ledger for launch in launches if (ledger := search.barest(launch))]
    smallest = min(ledgers, key=_context_bytes, default=None)
    cards = bool(search.goal.never_offload and search.devices)
    part = lacking_together(smallest, cards=cards) if smallest else None
    return phrase(LACKING[part] if part in ("weights", "context") else _NO_PLACEMENT)


def _context_bytes(ledger: Ledger) -> int:
    return sum(line.context_bytes for line in ledger.lines)


def _asked(search: Search) -> int:
    """Cells of one slot under the -c that the user fixed, as llama.cpp would pad it."""
    n_ctx = search.base.n_ctx or search.trained
    per_slot = n_ctx if search.start.kv_unified else n_ctx // search.slots
    return -(-per_slot // 256) * 256


def _room(search: Search) -> int:
    """Tokens of one slot that the model can use of these."""
    return min(_asked(search), search.trained)


def _left(search: Search) -> int:
    return _room(search) - (search.goal.prompt_tokens or 0)


def _where(search: Search) -> str:
    names = [device.name for device in search.devices]
    stays = search.devices and search.goal.never_offload
    if search.host and search.host.available_bytes and not stays:
        names.append(f"{show(search.host.available_bytes)} RAM")
    return " + ".join(names) or "RAM"


def _stays(goal: Goal) -> list[str]:
    return ["--never-offload"] if goal.never_offload else []


def flag_of(field: str) -> str:
    for option in OPTIONS:
        if option.field == field or any(name == field for name, _ in option.on):
            return option.flags[0] if option.flags else field
    return field
