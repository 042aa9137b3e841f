"""One step down: which flags change from one launch to the next, and what that gives back where.

A plan's ladder and a guarded run that steps down describe what they do by the same piece.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger, Line
from kvwise.options.kinds import DEVICES, OVERRIDES, SPLIT
from kvwise.text import Phrase, phrase
from kvwise.units import show

KNOBS: Mapping[str, frozenset[str]] = {
    "ubatch": frozenset({"n_ubatch", "n_batch"}),
    "types": frozenset({"type_k", "type_v"}),
    "context": frozenset({"n_ctx"}),
    "layers": frozenset({"n_gpu_layers", "n_cpu_moe"}),
}
"""Name of a knob -> the Launch fields that it moves."""

_PLACED = {"override_tensor", "offload_kqv"}
"""Fields beside those of `layers` that say what is on the GPUs."""

Write = Callable[[Any], object]


def _layers(count: int) -> object:
    return {-1: "auto", -2: "all"}.get(count, count)


FLAGS: tuple[tuple[str, str, Write], ...] = (
    ("n_ctx", "-c", int),
    ("n_seq_max", "-np", int),
    ("n_batch", "-b", int),
    ("n_ubatch", "-ub", int),
    ("type_k", "-ctk", str),
    ("type_v", "-ctv", str),
    ("n_gpu_layers", "-ngl", _layers),
    ("override_tensor", "-ot", OVERRIDES.write),
    ("n_cpu_moe", "-ncmoe", int),
    ("tensor_split", "-ts", SPLIT.write),
    ("devices", "-dev", DEVICES.write),
    ("draft_type_k", "-ctkd", str),
    ("draft_type_v", "-ctvd", str),
    ("draft_gpu_layers", "-ngld", _layers),
)
"""(Launch field, its flag, how its value is written) of what a plan or a step may set."""


def _on(value: bool) -> object:
    return "on" if value else "off"


_ALL: tuple[tuple[str, str, Write], ...] = (*FLAGS, ("offload_kqv", "--kv-offload", _on))


@dataclass(frozen=True, slots=True)
class Step:
    """The next launch to try. `changes`: flag -> (old, new); `frees_bytes` on the device in
    question, None = not known."""

    launch: Launch
    knobs: tuple[str, ...]
    changes: Mapping[str, tuple[object, object]]
    reason: Phrase
    frees_bytes: int | None = None


def step(
    before: Launch,
    after: Launch,
    knobs: tuple[str, ...],
    *,
    ledger: Ledger | None = None,
    line: Line | None = None,
    frees: int | None = None,
) -> Step:
    """The step from `before`, whose ledger this is, to `after`: it frees so much on `line`."""
    changes = changed(before, after, ledger)
    words = ", ".join(
        f"{flag} {_said(old)} -> {_said(new)}" for flag, (old, new) in changes.items()
    )
    if line is None or not frees or frees < 0:
        return Step(after, knobs, changes, phrase("{changes}", changes=words), frees)
    if line.host:
        reason = phrase(
            "{changes}: {size} less in the host's memory", changes=words, size=show(frees)
        )
    else:
        reason = phrase(
            "{changes}: {size} less on {device}",
            changes=words,
            size=show(frees),
            device=line.device or line.buffer,
        )
    return Step(after, knobs, changes, reason, frees)


def _said(value: object) -> object:
    return "(none)" if value == "" else value


def changed(
    before: Launch, after: Launch, ledger: Ledger | None = None
) -> dict[str, tuple[object, object]]:
    """Flag -> (old, new) of what a step changed; where the engine chose, what it came to."""
    settled: dict[str, object] = {}
    if ledger is not None:
        settled["n_ctx"] = ledger.context.n_ctx
        settled["n_gpu_layers"] = ledger.placement.gpu_layers
    found: dict[str, tuple[object, object]] = {}
    for field, flag, write in _ALL:
        old, new = getattr(before, field), getattr(after, field)
        if old == new:
            continue
        known = settled.get(field, old)
        if field == "n_ctx" and old:
            known = old
        if known != new:
            found[flag] = write(known), write(new)
    return found


def knobs_moved(before: Launch, after: Launch) -> tuple[str, ...]:
    """The knobs that lead from one launch to the other, in the order of KNOBS."""
    differ = {field for field, *_ in _ALL if getattr(before, field) != getattr(after, field)}
    if differ & _PLACED:
        differ |= KNOBS["layers"]
    return tuple(knob for knob, fields in KNOBS.items() if fields & differ)
