"""Whether what a request may try fits: launches that keep what the user fixed.

Everything is asked of `account`, so a candidate fits by the same figures that the ledger shows.
`hunt.py` walks through what is allowed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kvwise.errors import Refused
from kvwise.launch import Launch
from kvwise.memory import flash
from kvwise.memory.ledger import Ledger
from kvwise.options import change
from kvwise.plan.asking import Account, Ledgers
from kvwise.plan.candidate import CELLS, Candidate, missing, slack_of
from kvwise.plan.lend import lends, without_loans
from kvwise.plan.offload import Level, all_on_gpus
from kvwise.plan.quality import PAIRS, PAIRS_WITHOUT_FLASH, SOURCED, Grades, meets
from kvwise.plan.request import PROJECTOR_AWAY, Request
from kvwise.plan.speed.work import work
from kvwise.plan.split import Splits
from kvwise.units import MIB

_LAYERS_APART = 64 * MIB  # by so much the split that looks best may miss where another fits
_CLEARLY = 96 * MIB  # a guess after a launch that is alike is never so far off
_DRAFT_TYPES = frozenset({"draft_type_k", "draft_type_v"})


@dataclass
class Search(Request):
    """One request, and the ledgers that answer whether what it may try fits."""

    account: Account
    grades: Grades = field(default=SOURCED)
    asked: Ledgers | None = None  # what another request about the same machine found
    unified: bool = False  # slots share one cache because the engine refuses separate ones
    lends: bool = False  # a layer may be shared by two GPUs (`lend.py`)
    _read: dict[object, int] = field(default_factory=dict)
    found_any: bool = False  # a launch was taken by the engine, whether it fits or not
    closest: int | None = None  # fewest bytes by which a launch missed
    whole: Candidate | None = None  # the longest that fits with everything on the GPUs
    last_layers_pay: bool = True  # to have the experts of the last layers on the host, not first

    @cached_property
    def ledgers(self) -> Ledgers:
        if self.asked is not None:
            return self.asked
        return Ledgers(self.model, self.devices, self.host, self.account)

    @cached_property
    def splits(self) -> Splits:
        return Splits(self.ledgers, self.lends)

    @cached_property
    def lender(self) -> Search | None:
        """The same request where two GPUs may share a layer; None where nothing allows it."""
        placed = "override_tensor" in self.fixed or self.base.override_tensor
        remote = any(gpu.kind == "rpc" for gpu in self.devices)
        fewer = 0 < len(self.base.devices) < len(self.devices)  # what -ot calls them is not known
        if not self.splits_freely or placed or (remote and fewer):
            return None
        return replace(self, lends=True, asked=self.ledgers)

    def of(self, launch: Launch) -> Search:
        """The search that a launch came from."""
        return (self.lender or self) if lends(launch) else self

    @property
    def refusals(self) -> Sequence[Refused]:
        return self.ledgers.refusals

    @property
    def start(self) -> Launch:
        """The user's launch with slots and build settled, before anything is searched."""
        changes: dict[str, Any] = {"fit": False}
        if self.embeds and "embeddings" not in self.fixed:
            changes["embeddings"] = True
        if "n_seq_max" not in self.fixed or self.goal.slots is not None:
            changes["n_seq_max"] = self.slots
            if "kv_unified" not in self.fixed:
                changes["kv_unified"] = self.unified
        return change(self.base, **changes)

    # -- what may be tried -----------------------------------------------------

    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of cache types that the user's flags and the quality floor admit, best first."""
        k = self.base.type_k if "type_k" in self.fixed else None
        v = self.base.type_v if "type_v" in self.fixed else None
        alike = self.model.is_mla or self.model.architecture == "deepseek4"
        other = (k or v or "f16") if alike else "f16"  # it wants both alike
        alone = (k or other, v or other)
        if (k and v) or not self.has_cache:
            return [alone]
        known = PAIRS_WITHOUT_FLASH if self.base.flash_attn == "off" else PAIRS
        pairs = [pair for pair in known if k in (None, pair[0]) and v in (None, pair[1])] or [alone]
        if alike:
            pairs = [pair for pair in pairs if pair[0] == pair[1]] or [alone]
        good = [pair for pair in pairs if meets(self.grades.of(*pair), self.goal.floor)]
        return sorted(good, key=self.grades.rank) or pairs[:1]

    def launch_of(self, pair: tuple[str, str], ubatch: int) -> Launch:
        """The start with cache types and a micro-batch, before its context and its level."""
        changes: dict[str, Any] = {"type_k": pair[0], "type_v": pair[1], "n_ubatch": ubatch}
        if ubatch > self.start.n_batch and "n_batch" not in self.fixed:
            changes["n_batch"] = ubatch
        launch = change(self.start, **changes)
        if self.start.spec_types and not _DRAFT_TYPES & set(self.fixed):
            return self._with_draft(launch, pair)
        return launch

    def _with_draft(self, launch: Launch, pair: tuple[str, str]) -> Launch:
        """The draft's cache in the same types, if its heads allow: what that loses only costs a
        guess now and then, never the answer."""
        drafted = change(launch, draft_type_k=pair[0], draft_type_v=pair[1])
        taken = self.ledgers.bare(self.sized(drafted, self.least))
        return launch if taken is None else drafted

    # -- asking ----------------------------------------------------------------

    def sized(self, launch: Launch, tokens: int) -> Launch:
        """The launch with room for so many tokens per slot."""
        if "n_ctx" in self.fixed:
            return launch
        return change(launch, n_ctx=-(-tokens // CELLS) * self.unit)

    def settled(self, launch: Launch) -> Launch:
        """The launch with the best split over several GPUs."""
        if self.lends:
            launch = without_loans(launch)
        return self.splits.exact(launch) if self.splits_freely else launch

    def ledger(self, launch: Launch) -> Ledger | None:
        """The ledger of a launch, or None where the engine would refuse it."""
        return self.ledgers.whole(launch)

    def slack(self, launch: Launch, *, gpus: bool = False) -> int | None:
        """Bytes left on the tightest device, its reserve set aside; None where it is refused.

        What is missing may be a guess, and that something is missing may be one where a launch
        that is alike misses clearly; that nothing is missing never is.
        """
        guess = self._surely_misses(launch, gpus=gpus)
        if guess is not None:
            return guess
        if self._attends_elsewhere(launch):
            return None
        ledger = self.ledger(self.settled(launch))
        if ledger is None or self._attention_leaves_gpu(ledger):
            return None
        return slack_of(ledger, gpus=gpus)

    def rough_slack(self, launch: Launch, *, gpus: bool = False) -> int | None:
        """The same by the compute buffers seen so far."""
        if not self.splits_freely:
            return self.ledgers.rough_slack(launch, gpus=gpus)
        launch = self.splits.rough(without_loans(launch) if self.lends else launch)
        bare = self.ledgers.bare(launch)
        if bare is None:
            return None
        return self.splits.slack(bare, self.ledgers.guess(launch, bare.context.n_ctx), gpus=gpus)

    def _surely_misses(self, launch: Launch, *, gpus: bool = False) -> int | None:
        """A guess of what is missing where that something is needs no graph; None = it may fit."""
        bare = self.barest(launch)
        if bare is None:
            return None
        rough = self.rough_slack(launch, gpus=gpus)
        known = self.ledgers.known_near(launch, bare.context.n_ctx)
        missed = self.splits.slack(bare, gpus=gpus)
        if missed < (-_LAYERS_APART if self.splits_freely else 0):
            return min(missed, missed if rough is None else rough)
        if not known or rough is None or rough >= -_CLEARLY:
            return None
        return None if self.splits_freely and self.splits.known(launch) else rough

    def barest(self, launch: Launch) -> Ledger | None:
        """The ledger without compute buffers, split as is best without them."""
        if self.splits_freely:
            launch = without_loans(launch) if self.lends else launch
            launch = self.splits.rough(launch, computing=False)
        return self.ledgers.bare(launch)

    def missed(self, short: int) -> None:
        """Remember by how much a launch that llama.cpp takes does not fit."""
        self.found_any = True
        self.closest = min(short, self.closest or short)

    def fitting(self, launch: Launch, level: Level) -> Candidate | None:
        """The launch as a candidate if the engine takes it and it fits."""
        left = self._surely_misses(launch)
        if left is not None:
            self.missed(-left)
            return None
        if self._attends_elsewhere(launch):
            self.found_any = True
            return None
        launch = self.settled(launch)
        ledger = self.ledger(launch)
        if ledger is None:
            return None
        self.found_any = True
        if self._attention_leaves_gpu(ledger):
            return None
        short = missing(ledger)
        if short:
            self.missed(short)
            return None
        found = Candidate(
            launch=launch,
            ledger=ledger,
            full=bool(self.devices) and all_on_gpus(launch, self.model),
            host_read=self._host_read(ledger),
            limit=self.trained,
            quality=self.grades.of(launch.type_k, launch.type_v),
            level=level,
            aside=self._asides_of(launch),
            shared=launch.kv_unified and self.goal.slots is not None,
        )
        self.remember(found)
        return found

    def remember(self, found: Candidate) -> None:
        """Keep the longest candidate that reads nothing from the host."""
        longer = self.whole is None or found.slot_tokens > self.whole.slot_tokens
        if found.full and longer and found.slot_tokens >= self.least:
            self.whole = found

    def _host_read(self, ledger: Ledger) -> int:
        """Bytes that a token reads from the host at the least context, the same for all."""
        depth = min(self.least, ledger.context.n_ctx_seq)
        placed = replace(ledger.launch, n_ctx=0, n_batch=0, n_ubatch=0)
        key = placed, depth, ledger.placement
        if key not in self._read:
            drafts = [extra for extra in ledger.host.extras if extra.of == "draft"]
            guessing = sum(extra.weights_bytes for extra in drafts)  # about once for each token
            self._read[key] = work(ledger, depth)[-1].read_bytes + guessing
        return self._read[key]

    def _asides_of(self, launch: Launch) -> int:
        """How much of what stands beside the model was put on the host by us."""
        away = PROJECTOR_AWAY in launch.extra and PROJECTOR_AWAY not in self.base.extra
        draft = launch.draft_gpu_layers == 0 and "draft_gpu_layers" not in self.fixed
        return away + (draft and bool(launch.model_draft))

    def _attends_elsewhere(self, launch: Launch) -> bool:
        """The same where that needs no graph: whatever the split, if all GPUs are of one kind."""
        bare = self.barest(launch)
        alike = len({gpu.kind for gpu in self.devices}) == 1
        return alike and bare is not None and self._attention_leaves_gpu(bare)

    def _attention_leaves_gpu(self, ledger: Ledger) -> bool:
        """Whether a GPU lacks flash attention for cache types that nobody insists on.

        A quantized V cache forces it on; what a GPU cannot do then runs on the CPU.
        """
        types = ledger.context.type_k, ledger.context.type_v
        if {"type_k", "type_v"} <= set(self.fixed) or self.grades.of(*types) == "lossless":
            return False
        gpus = ledger.devices[: ledger.placement.n_gpu]
        return flash.attention_leaves(self.model, ledger.context, ledger.placement, gpus)

    def with_types(self, launch: Launch, type_k: str, type_v: str) -> Launch:
        return change(launch, type_k=type_k, type_v=type_v)

    def with_context(self, launch: Launch, n_ctx: int) -> Launch:
        return change(launch, n_ctx=n_ctx)

    def with_changes(
        self, launch: Launch, changes: dict[str, Any], level: Level
    ) -> Candidate | None:
        return self.fitting(change(launch, **changes), level)

    def candidates(self) -> list[Candidate]:
        """Fitting launches worth comparing; empty if nothing reaches the goal's least context."""
        from kvwise.plan.hunt import hunt  # noqa: PLC0415  (it walks through a search)

        found = list(hunt(self))
        if not found and not self.found_any and self.slots > 1 and "kv_unified" not in self.fixed:
            self.unified = True
            found = list(hunt(self))
        return [each for each in found if each.slot_tokens >= self.least]
