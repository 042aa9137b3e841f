"""Why a setting should change: what that alone moves in bytes, tokens and speed, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvwise.device import Host
from kvwise.errors import KvwiseError
from kvwise.gguf.types import by_name
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger, Line
from kvwise.options import change
from kvwise.plan.speed import Range, estimate
from kvwise.plan.speed.words import with_speed
from kvwise.text import Phrase, phrase
from kvwise.units import GIB, show

Accountant = Callable[[Launch], Ledger]

_PAIR = ("type_k", "type_v")
_KEPT_BY_FIT = GIB  # llama.cpp's own margin per device


@dataclass(frozen=True, slots=True)
class Moved:
    """What one setting alone does: from `before` to `after`, both as the engine would take them.

    `bytes_by_buffer` is added (negative: freed); `decode` and `prompt` are the speed afterwards
    relative to before at the same depth, None = not known.
    """

    before: Ledger
    after: Ledger
    bytes_by_buffer: Mapping[str, int]
    decode: float | None = None
    prompt: float | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What changes are judged with: both launches, who accounts, and the machine's host."""

    theirs: Launch
    advised: Launch
    account: Accountant
    host: Host | None = None


def moved(field: str, old: Any, new: Any, terms: Terms) -> Moved | None:
    """The change in their settings; where the engine would not take that, in the advised ones.

    None where it takes neither. Speeds are left out of one of two cache types that both change:
    kernels are made for pairs, and one of them alone would be judged by a pair nobody wants.
    """
    for base in (terms.theirs, terms.advised):
        try:
            before = terms.account(change(base, **{field: old}))
            after = terms.account(change(base, **{field: new}))
        except KvwiseError:
            continue
        sizes = {line.buffer: line.total_bytes for line in before.lines}
        added = {each.buffer: each.total_bytes - sizes.get(each.buffer, 0) for each in after.lines}
        if field in _PAIR and all(
            getattr(terms.theirs, each) != getattr(terms.advised, each) for each in _PAIR
        ):
            return Moved(before, after, added)
        return Moved(before, after, added, *_ratios(before, after, terms.host))
    return None


def _ratios(before: Ledger, after: Ledger, host: Host | None) -> tuple[float | None, float | None]:
    depth = min(before.context.n_ctx_seq, after.context.n_ctx_seq)
    one, two = (estimate(ledger, depth, host=host) for ledger in (before, after))
    return _ratio(one.decode, two.decode), _ratio(one.prompt, two.prompt)


def _ratio(one: Range | None, two: Range | None) -> float | None:
    return two.middle / one.middle if one and two and one.middle else None


def why(field: str, found: Moved | None, advised: Ledger, account: Accountant) -> Phrase:
    """The reason in words, with its numbers."""
    if field == "fit":
        return _of_fit(advised, account)
    if found is None:
        return _REASONS.get(field, phrase("what the plan counts with"))
    line, size = _where(found)
    if field == "n_seq_max" and found.after.context.n_seq_max == 1:
        said = phrase(
            "one request at a time has {tokens:,} tokens, now {now:,}; --slots plans for more",
            tokens=advised.context.n_ctx_seq, now=found.before.context.n_ctx_seq,
        )  # fmt: skip
        if line is None:
            return said
        return phrase("{said}; {more}", said=said, more=_bytes(line, size, advised, account))
    if field == "n_ctx":
        return _of_context(found, line, size)
    said = phrase("no byte changes") if line is None else _bytes(line, size, advised, account)
    if line is None and field in _REASONS:
        said = phrase("no byte changes: {why}", why=_REASONS[field])
    kind = by_name(advised.launch.type_v)
    if field == "flash_attn" and kind is not None and kind.quantized:
        said = phrase("a quantized V cache needs it; {said}", said=said)
    return with_speed(said, found.decode, found.prompt)


def _where(found: Moved) -> tuple[Line | None, int]:
    """Where most moves, GPUs first."""
    moves = [
        (line, found.bytes_by_buffer[line.buffer])
        for line in found.after.lines
        if found.bytes_by_buffer.get(line.buffer)
    ]
    if not moves:
        return None, 0
    return min(moves, key=lambda pair: (pair[0].host, -abs(pair[1])))


def _bytes(line: Line, size: int, advised: Ledger, account: Accountant) -> Phrase:
    """`frees 61.4 MiB on ... = 412 tokens`."""
    fields = {"size": show(abs(size)), "device": line.device or phrase("the host")}
    tokens = 0 if line.host else _tokens(abs(size), line.buffer, advised, account)
    if size < 0 and tokens:
        return phrase("frees {size} on {device} = {tokens:,} tokens", tokens=tokens, **fields)
    if size < 0:
        return phrase("frees {size} on {device}", **fields)
    if tokens:
        return phrase(
            "takes {size} more on {device}, which there is, = {tokens:,} tokens",
            tokens=tokens, **fields,
        )  # fmt: skip
    return phrase("takes {size} more on {device}, which there is", **fields)


def _of_context(found: Moved, line: Line | None, size: int) -> Phrase:
    more = found.after.context.n_ctx - found.before.context.n_ctx
    if line is None:
        return phrase("no byte changes")
    fields = {"size": show(abs(size)), "device": line.device or phrase("the host")}
    if more > 0:
        return phrase(
            "the longest that fits: {more:,} tokens more take {size} on {device}",
            more=more, **fields,
        )  # fmt: skip
    return phrase("the longest that fits: {less:,} tokens fewer free {size} on {device}",
                  less=-more, **fields)  # fmt: skip


def _of_fit(advised: Ledger, account: Accountant) -> Phrase:
    gpu = next((line for line in advised.lines if not line.host), None)
    tokens = _tokens(_KEPT_BY_FIT, gpu.buffer, advised, account) if gpu else 0
    if tokens:
        return phrase(
            "with everything set, --fit has nothing to lower and would keep 1 GiB free ="
            " {tokens:,} tokens", tokens=tokens,
        )  # fmt: skip
    return phrase("with everything set, --fit has nothing to lower and would keep 1 GiB free")


def _tokens(size: int, buffer: str, advised: Ledger, account: Accountant) -> int:
    """Tokens of one slot whose cache and buffers take so much there; 0 where no cache is there."""
    launch = advised.launch
    if not launch.offload_kqv:
        return 0
    try:
        half = account(change(launch, n_ctx=max(256, advised.context.n_ctx // 2)))
    except KvwiseError:
        return 0
    sizes = [
        next((line.total_bytes for line in ledger.lines if line.buffer == buffer), 0)
        for ledger in (half, advised)
    ]
    more = advised.context.n_ctx_seq - half.context.n_ctx_seq
    grown = sizes[1] - sizes[0]
    return size * more // grown if more > 0 and grown > 0 else 0


_REASONS = {
    "n_gpu_layers": phrase("said outright, nothing is left to --fit"),
    "flash_attn": phrase("a quantized V cache needs it"),
    "n_batch": phrase("what the plan counts with"),
}
