"""Settings that a person has, beside those that are better: each change with what it costs.

What changes bytes and was not asked to stay is planned anew, for no less context than now; then
every difference is taken alone, so that the bytes beside it are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvwise.device import Host
from kvwise.errors import KvwiseError, UsageError
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.options import OPTIONS, Option, change, defaults
from kvwise.options.reading import Reading
from kvwise.options.row import CLI, SERVER
from kvwise.plan.choose import Impossible, Plan
from kvwise.plan.goal import Goal
from kvwise.text import Phrase, phrase
from kvwise.theirs.reasons import Accountant, Terms, moved, why

Planner = Callable[[Launch, Collection[str], Goal], Plan]

FREE = ("n_ctx", "type_k", "type_v", "flash_attn", "n_batch", "n_ubatch", "n_gpu_layers",
        "n_cpu_moe", "offload_kqv", "fit")  # fmt: skip
"""Fields that are planned anew unless they are to stay; all others stay anyway."""

_SPELLINGS = ("n_gpu_layers", "n_cpu_moe", "flash_attn")
"""Fields that can say the same in several ways: theirs is kept."""

SHOWN = (*FREE[:1], "n_seq_max", "kv_unified", *FREE[1:])


@dataclass(frozen=True, slots=True)
class Change:
    """One flag: what it is now and what it should be; both texts are llama.cpp's words.

    `bytes_by_buffer` is what this change alone adds on each device (negative: frees), in the
    settings of today or, where the engine would not take those, in the advised ones; `decode` and
    `prompt` the speed with it relative to without at the same depth, None = not known.
    """

    field: str
    flag: str
    now: str
    advised: str
    why: Phrase
    kept: bool = False
    bytes_by_buffer: Mapping[str, int] | None = None
    decode: float | None = None
    prompt: float | None = None

    @property
    def changes(self) -> bool:
        return self.now != self.advised


@dataclass(frozen=True, slots=True)
class Comparison:
    """Theirs and ours. `problem` is why the engine would refuse theirs (then no ledger).

    `advised` is the plan's launch with their own words where these say the same.
    """

    launch: Launch
    advised: Launch
    ledger: Ledger | None
    problem: KvwiseError | None
    plan: Plan
    changes: tuple[Change, ...]


def fields_kept(words: Sequence[str], reading: Reading) -> frozenset[str]:
    """Launch fields that the user marked: spellings of flags, or `all`. Raises UsageError."""
    given = frozenset(reading.origins) - {"tool", "build"}
    kept: set[str] = set()
    for word in words:
        if word == "all":
            kept |= given
            continue
        names = {name for option in OPTIONS if word in (*option.flags, *option.negative)
                 for name in _fields(option)}  # fmt: skip
        if not names:
            raise UsageError(
                "--keep does not know {flag}",
                flag=word[:40],
                hint="give a flag that changes memory, like -c or -ctk, or all",
            )
        kept |= names
    return frozenset(kept)


def _fields(option: Option) -> set[str]:
    names = {name for name, _ in (*option.on, *option.off)} | {option.field}
    return {name for name in names if name and not name.startswith("_")}


def compare(
    reading: Reading,
    kept: Collection[str],
    goal: Goal,
    planner: Planner,
    account: Accountant,
    *,
    host: Host | None = None,
) -> Comparison:
    """What to change. Raises Impossible when nothing fits, and what planning raises.

    `reading` is theirs, its model named; a goal without lengths is raised to the context of today.
    `host` is whose memory and cores speeds are worked out with.
    """
    theirs = reading.launch
    if theirs.tool not in (SERVER, CLI):
        theirs = replace(theirs, tool=SERVER)
    ledger, problem = _accounted(theirs, account)
    fixed = (frozenset(reading.origins) - set(FREE) - {"model", "tool", "build"}) | set(kept)
    start = _freed(theirs, fixed)
    plan = _planned(planner, start, fixed, _raised(goal, reading, ledger))
    found = _Differences(
        theirs, plan, ledger, account, host, frozenset(kept), frozenset(reading.origins)
    )
    same = {name: getattr(theirs, name) for name in _SPELLINGS if found.alike(name)}
    advised = change(plan.choice.launch, **same)
    return Comparison(theirs, advised, ledger, problem, plan, found.changes())


def _accounted(launch: Launch, account: Accountant) -> tuple[Ledger | None, KvwiseError | None]:
    try:
        return account(launch), None
    except KvwiseError as error:
        return None, error


def _freed(launch: Launch, fixed: Collection[str]) -> Launch:
    base = defaults(launch.tool, launch.build)
    free: dict[str, Any] = {name: getattr(base, name) for name in FREE if name not in fixed}
    return change(launch, **free)


def _raised(goal: Goal, reading: Reading, ledger: Ledger | None) -> Goal:
    said = goal.prompt_tokens is not None or goal.predict_tokens is not None
    if said or ledger is None or "n_ctx" not in reading.origins or not reading.launch.n_ctx:
        return goal
    trained = ledger.model.n_ctx_train or ledger.context.n_ctx_seq
    return replace(goal, predict_tokens=min(ledger.context.n_ctx_seq, trained))


def _planned(planner: Planner, launch: Launch, fixed: Collection[str], goal: Goal) -> Plan:
    try:
        return planner(launch, fixed, goal)
    except Impossible:
        if goal.predict_tokens is None or goal.prompt_tokens is not None:
            raise
        return planner(launch, fixed, replace(goal, predict_tokens=None))


@dataclass(frozen=True, slots=True)
class _Differences:
    theirs: Launch
    plan: Plan
    ledger: Ledger | None
    account: Accountant
    host: Host | None
    kept: frozenset[str]
    given: frozenset[str]

    def changes(self) -> tuple[Change, ...]:
        """One per flag that differs, or that they gave and that is good."""
        shown = (name for name in SHOWN if name in self.given or not self.alike(name))
        return tuple(self._change(name) for name in shown)

    def alike(self, name: str) -> bool:
        """Whether both say the same: 99 layers and all 37 do, and so does `auto`."""
        if getattr(self.theirs, name) == getattr(self.plan.choice.launch, name):
            return True
        return self.ledger is not None and _same_effect(name, self.ledger, self.plan.choice.ledger)

    def _change(self, name: str) -> Change:
        alike = self.alike(name)
        now = getattr(self.theirs, name)
        new = now if alike else getattr(self.plan.choice.launch, name)
        found = None
        if not alike:
            terms = Terms(self.theirs, self.plan.choice.launch, self.account, self.host)
            found = moved(name, now, new, terms)
        if name in self.kept:
            reason = phrase("it is to stay")
        elif alike:
            reason = phrase("good as it is")
        else:
            reason = why(name, found, self.plan.choice.ledger, self.account)
        return Change(
            name, _flag(name), _text(name, now), _text(name, new), reason, kept=name in self.kept,
            bytes_by_buffer=None if alike else found.bytes_by_buffer if found else {},
            decode=found.decode if found else None, prompt=found.prompt if found else None,
        )  # fmt: skip


def _same_effect(name: str, theirs: Ledger, ours: Ledger) -> bool:
    most = theirs.model.n_layer_all
    same = {
        "n_gpu_layers": not theirs.launch.fit
        and theirs.placement.gpu_layers == ours.placement.gpu_layers,
        "flash_attn": theirs.context.flash_attn == ours.context.flash_attn,
        "kv_unified": ours.context.n_seq_max == 1,
        "n_cpu_moe": min(theirs.launch.n_cpu_moe, most) == min(ours.launch.n_cpu_moe, most),
    }
    return same.get(name, False)


def _flag(name: str) -> str:
    row = _option(name)
    return row.flags[0] if row else name


def _option(name: str) -> Option | None:
    return next((row for row in OPTIONS if row.field == name and SERVER in row.tools), None)


def _text(name: str, value: Any) -> str:
    row = _option(name)
    if row is None or isinstance(value, bool):
        return ("on" if value else "off") if isinstance(value, bool) else str(value)
    if name == "n_ctx" and value == 0:
        return "0"
    return row.kind.write(value)
