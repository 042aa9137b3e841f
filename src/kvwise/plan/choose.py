"""The plan: the best launch for a goal, what else is worth a look, and what to step down to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from kvwise.device import Device, Host
from kvwise.errors import DoesNotFit, Refused, UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import ComputeMode, account
from kvwise.memory.ledger import Ledger
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.memory.parts.draft import by_its_file
from kvwise.options import to_argv
from kvwise.plan import commands
from kvwise.plan.binds import Binds, binds
from kvwise.plan.candidate import Candidate
from kvwise.plan.costs import Cost, costs
from kvwise.plan.goal import Goal
from kvwise.plan.hunt import polished
from kvwise.plan.impossible import Attempt, flag_of, relaxed, sentence
from kvwise.plan.ladder import ladder
from kvwise.plan.offload import FIELDS, all_on_gpus
from kvwise.plan.order import alternatives, best, fewest
from kvwise.plan.quality import Grades
from kvwise.plan.search import Search
from kvwise.plan.speed import Measured, Speed, estimate
from kvwise.plan.trades import gains, outdoing, trades, undominated
from kvwise.plan.why import reasons
from kvwise.plan.workload import clearly_faster
from kvwise.text import Phrase

_ALTERNATIVES = 5


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a choice is here: sentences, what each decision cost, what keeps it from more."""

    why: tuple[Phrase, ...] = ()
    costs: tuple[Cost, ...] = ()
    binds: Binds | None = None


@dataclass(frozen=True)
class Choice:
    """A launch that fits, with what it costs, how fast it is at most, and why it is here.

    `binds` says what keeps the choice of a plan from holding more; `step` what a rung of the
    ladder gives up against the one before. `why`, `costs` and `binds` are worked out when they are
    first asked for.
    """

    launch: Launch
    ledger: Ledger
    slot_tokens: int  # prompt and answer of one slot
    quality: str
    speed: Speed
    quality_basis: str = "cache types"
    step: Phrase | None = None
    trades: Phrase | None = None  # what an alternative gives and takes against the choice
    explain: Callable[[], Explanation] = field(default=Explanation, repr=False, compare=False)

    @cached_property
    def _explained(self) -> Explanation:
        return self.explain()

    @property
    def why(self) -> tuple[Phrase, ...]:
        """The reasons, in sentences."""
        return self._explained.why

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What each decision cost or bought."""
        return self._explained.costs

    @property
    def pipeline(self) -> bool:
        """Whether several GPUs read a prompt in a pipeline."""
        return self.ledger.placement.pipeline_parallel

    @property
    def binds(self) -> Binds | None:
        """What keeps the choice of a plan from holding more."""
        return self._explained.binds


@dataclass(frozen=True)
class Plan:
    """The answer to a goal. `ladder` holds safer launches, in the order to try them; it is worked
    out when it is first asked for."""

    goal: Goal
    choice: Choice
    alternatives: tuple[Choice, ...]
    fixed: tuple[str, ...] = ()  # Launch fields that were kept as asked
    steps_down: Callable[[], tuple[Choice, ...]] = field(default=tuple, repr=False, compare=False)

    @cached_property
    def ladder(self) -> tuple[Choice, ...]:
        """Launches to step down to when the chosen one fails after all."""
        return self.steps_down()

    @property
    def predict_tokens_max(self) -> int | None:
        """Tokens that are left for the answer beside the prompt; None without a prompt."""
        prompt = self.goal.prompt_tokens
        return None if prompt is None else self.choice.slot_tokens - prompt

    @property
    def turns_max(self) -> int | None:
        """Turns that a slot holds behind the prompt; None without a conversation."""
        turn = self.goal.turn_tokens
        if turn is None:
            return None
        return (self.choice.slot_tokens - (self.goal.prompt_tokens or 0)) // turn

    @property
    def argv(self) -> list[str]:
        """The command line of the chosen launch."""
        return argv_of(self.choice.launch)


class Impossible(DoesNotFit):
    """The request cannot be met; `nearest` is the plan of the nearest one that can, if any."""

    nearest: Plan | None = None


def plan(
    model: Model,
    devices: Sequence[Device],
    goal: Goal | None = None,
    *,
    launch: Launch | None = None,
    fixed: Collection[str] = (),
    host: Host | None = None,
    companions: Companions = NONE,
    grades: Grades | None = None,
    results: Sequence[Measured] = (),
) -> Plan:
    """The best settings for `goal` on `devices` (none = the host alone).

    `launch` holds the user's settings; the Launch fields named in `fixed` are kept; `companions`
    are the opened files of its draft, projector and adapters; `grades` say what each pair of cache
    types costs this model, if that was measured; `results` are speeds measured on this machine.
    Raises Impossible (with the nearest plan that can be met), UsageError, ModelError.
    """
    goal = goal or Goal()
    slots = goal.slots or 1
    base = launch or Launch(model=model.path, n_seq_max=slots, n_outputs_max=slots)
    base = by_its_file(base, companions.draft)
    if goal.never_offload and devices:
        _check_nothing_is_off(model, base, fixed)
    ask = partial(_account, companions=companions)
    grades = grades or Grades(architecture=model.architecture)
    search = Search(model, devices, host, goal, base, frozenset(fixed), ask, grades)
    found = search.candidates()
    if not found:
        raise _impossible(search, results)
    return _made(search, found, results)


def _check_nothing_is_off(model: Model, base: Launch, fixed: Collection[str]) -> None:
    """Raises UsageError for a flag that keeps off the GPUs what --never-offload wants on them."""
    for name in (each for each in FIELDS if each in fixed):
        only = replace(Launch(), **{name: getattr(base, name)})
        if not all_on_gpus(only, model):
            raise UsageError(
                "--never-offload and {flag} contradict each other: {flag} keeps a part of the "
                "model off the GPUs",
                flag=flag_of(name), hint="leave one of them out",
            )  # fmt: skip


def _account(
    model: Model,
    launch: Launch,
    devices: Sequence[Device],
    host: Host | None,
    *,
    bare: bool = False,
    companions: Companions = NONE,
) -> Ledger:
    mode: ComputeMode = "none" if bare else "reserved"
    return account(model, launch, devices, host=host, compute_mode=mode, companions=companions)


def _made(search: Search, found: Sequence[Candidate], results: Sequence[Measured]) -> Plan:
    goal, sizes, grades = search.goal, search.ubatches(), search.grades
    first = best(found, goal, sizes, grades)
    made, shown = _around(search, found, first, results)
    if not goal.terms.grow:
        return made
    number = clearly_faster(goal, made.choice, made.alternatives)
    if number is None:
        number = outdoing(made.choice, made.alternatives)
    return made if number is None else _around(search, found, shown[number], results)[0]


def _around(
    search: Search, found: Sequence[Candidate], first: Candidate, results: Sequence[Measured]
) -> tuple[Plan, list[Candidate]]:
    """The plan that chooses `first`, and what its alternatives are made from.

    The order counts bytes from the host; a processor that is short of arithmetic can be faster
    with more of them, so an alternative may turn out to be better in everything.
    """
    goal, sizes, grades = search.goal, search.ubatches(), search.grades
    chosen = polished(search, first)
    others = alternatives([*found, chosen], chosen, goal, sizes, _ALTERNATIVES, grades)
    others = [each for each in others if each is not first]
    choice = _choice(search, chosen, results, first=True)
    shown = [_choice(search, each, results) for each in others]
    kept = undominated(choice, shown)
    shortlist = [chosen, *(others[number] for number in kept)]
    least = fewest([*shortlist, *others, *found], chosen)
    if least.host_read < fewest(shortlist, chosen).host_read:
        if least not in others:
            others.append(least)
            shown.append(_choice(search, least, results))
        kept.append(others.index(least))
    kept = [number for number in kept if gains(choice, shown[number])]
    made = Plan(
        goal=goal,
        choice=choice,
        alternatives=tuple(
            replace(each, trades=trades(choice, each))
            for each in (shown[number] for number in kept)
        ),
        fixed=tuple(sorted(search.fixed)),
        steps_down=partial(_steps_down, search, chosen, results),
    )
    return made, [others[number] for number in kept]


def _steps_down(
    search: Search, chosen: Candidate, results: Sequence[Measured]
) -> tuple[Choice, ...]:
    return tuple(
        replace(_choice(search, rung.candidate, results, silent=True), step=rung.step.reason)
        for rung in ladder(search.of(chosen.launch), chosen)
    )


def _choice(
    search: Search,
    candidate: Candidate,
    results: Sequence[Measured],
    *,
    first: bool = False,
    silent: bool = False,
) -> Choice:
    """`first`: it is the plan's own choice, whose decisions are counted; `silent`: no reasons."""
    depth = min(search.goal.prompt_tokens or search.goal.enough, candidate.slot_tokens)
    speed = estimate(candidate.ledger, depth, host=search.host, results=results)
    return Choice(
        launch=candidate.launch,
        ledger=candidate.ledger,
        slot_tokens=candidate.slot_tokens,
        quality=candidate.quality,
        speed=speed,
        quality_basis=search.grades.basis(*candidate.pair),
        explain=(
            Explanation
            if silent
            else partial(_explanation, search, candidate, speed, results, counted=first)
        ),
    )


def _explanation(
    search: Search,
    candidate: Candidate,
    speed: Speed,
    results: Sequence[Measured],
    *,
    counted: bool,
) -> Explanation:
    search = search.of(candidate.launch)
    found = costs(search, candidate, speed, results) if counted else ()
    return Explanation(
        why=reasons(search, candidate, speed, found),
        costs=found,
        binds=binds(search, candidate) if counted else None,
    )


def _impossible(search: Search, results: Sequence[Measured]) -> DoesNotFit | Refused:
    """What stands in the way, and the plan of the nearest request that can be met."""
    if search.refusals and search.closest is None and not search.found_any:
        return search.refusals[-1]
    for attempt in relaxed(search):
        nearer = Search(
            search.model,
            search.devices,
            search.host,
            attempt.goal,
            search.base,
            attempt.fixed,
            search.account,
            search.grades,
            search.ledgers,
        )
        found = nearer.candidates()
        if found:
            nearest = _made(nearer, found, results)
            # the nearest plan answers the user's own prompt where it can
            if search.goal.prompt_tokens is not None:
                nearest = replace(nearest, goal=_own_goal(search.goal, nearest))
            return _told(search, attempt, nearest)
    return _told(search, None, None)


def _own_goal(goal: Goal, nearest: Plan) -> Goal:
    prompt = goal.prompt_tokens or 0
    return replace(
        nearest.goal, prompt_tokens=prompt if prompt < nearest.choice.slot_tokens else None
    )


def _told(search: Search, attempt: Attempt | None, nearest: Plan | None) -> Impossible:
    reached = nearest.choice.slot_tokens if nearest else None
    template, hint, fields = sentence(search, attempt, reached)
    error = Impossible(template, hint=hint, **fields)
    error.nearest = nearest
    return error


def argv_of(launch: Launch) -> list[str]:
    """The whole command line of a launch, program first."""
    return [launch.tool, *to_argv(launch)]


def shell_commands(launch: Launch) -> dict[str, object]:
    """The `commands` object of kvwise/plan/1."""
    return commands.all_shells(argv_of(launch))
