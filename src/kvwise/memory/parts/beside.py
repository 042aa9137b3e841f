"""Everything beside the model and its context, collected: lines, notes, doubts, devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvwise.device import Device, Host
from kvwise.gguf.model import Model
from kvwise.launch import ZOO_BUILD, Launch
from kvwise.memory.ledger import Extra, Note
from kvwise.memory.made import ComputeMode, Made
from kvwise.memory.parts import draft as drafts
from kvwise.memory.parts import draft_lines, held, lora, projector
from kvwise.memory.parts.companions import Companions
from kvwise.memory.parts.seats import Seats
from kvwise.options import asked
from kvwise.options.row import SERVER
from kvwise.options.words import uncounted
from kvwise.options.writing import REMOTE
from kvwise.text import Phrase, phrase

NOT_USED = "draft_not_used"
NOT_FOUND = "draft_not_found"


@dataclass(frozen=True, slots=True)
class Beside:
    """`devices` are those of the model and then those that only something here uses; `contexts`
    the model's own context and its draft's."""

    devices: tuple[Device, ...]
    contexts: tuple[Made, ...]
    extras: tuple[Extra, ...]
    notes: tuple[Note, ...]
    doubts: tuple[Phrase, ...]

    def on(self, number: int) -> tuple[Extra, ...]:
        """The lines on a device, or on the host."""
        return tuple(extra for extra in self.extras if extra.device == number)


def beside(
    target: Made,
    companions: Companions,
    devices: Sequence[Device],
    host: Host | None,
    mode: ComputeMode,
) -> Beside:
    """Raises what `account` raises."""
    seats = Seats(target.devices)
    draft = drafts.draft_of(target, companions.draft, devices, host, mode)
    found: list[Extra] = []
    if draft is not None:
        found += draft_lines.extras(draft, seats)
    found += draft_lines.speculation(target, draft)
    if companions.mmproj is not None:
        found += projector.extras(companions.mmproj, target.launch, devices, seats)
    found += lora.extras(target, companions.loras, seats)
    found += held.extras(target, draft)
    return Beside(
        devices=tuple(seats.devices),
        contexts=(target,) if draft is None else (target, draft.made),
        extras=tuple(found),
        notes=tuple(_notes(target.launch, companions, devices)),
        doubts=tuple(_doubts(draft)),
    )


def _notes(
    launch: Launch, companions: Companions, devices: Sequence[Device] = ()
) -> Iterator[Note]:
    if launch.model_draft and not launch.spec_types:
        yield from _unasked(launch, companions.draft)
    yield from _undrafted(launch)
    yield from _not_looked_up(launch)
    for text in _missing(launch, companions, devices):
        yield Note("not_counted", text)


def _undrafted(launch: Launch) -> Iterator[Note]:
    """Kinds that guess with a draft, without one: llama.cpp may find it beside a model of the Hub
    (common/arg.cpp common_models_handler_apply), and does not speculate otherwise."""
    kinds = [kind for kind in launch.spec_types if kind.startswith("draft-")]
    if launch.model_draft or not kinds or drafts.MTP in kinds:
        return
    message = phrase(
        "{kinds} guesses with a draft and none is named: one that is found beside the model on the "
        "Hub is not counted, name it with -md",
        kinds=", ".join(kinds),
    )
    yield Note("not_counted", message)


def _not_looked_up(launch: Launch) -> Iterator[Note]:
    """A draft of the Hub beside a model that is not: llama-server asks the Hub for the model's sake
    only, and then loads a draft without a name (tools/server/server.cpp, b10605 and b11549)."""
    hub = "hf:"
    if launch.tool != SERVER or not launch.model or launch.model.startswith(hub):
        return
    if launch.model_draft.startswith(hub):
        message = phrase(
            "{tool} looks for -hfd only beside -hf: with this model it does not find the draft, "
            "and stops; download it and name it with -md",
            tool=launch.tool,
        )
        yield Note(NOT_FOUND, message)


def _unasked(launch: Launch, draft: Model | None) -> Iterator[Note]:
    """What comes of a draft whose kind of speculation neither the launch says nor, for a build that
    is known to look there, its file (`by_its_file`)."""
    said_none = bool(asked.values(launch, "--spec-type"))
    kind = None if draft is None or said_none else drafts.kind_of_file(launch, draft)
    if kind is None:
        message = phrase(
            "-md loads a draft that nothing uses: add --spec-type, such as draft-simple, or leave "
            "-md out"
        )
        yield Note(NOT_USED, message)
    else:
        message = phrase(
            "{tool} {build} may take {kind} from the draft's file, which is not counted: add "
            "--spec-type {kind}, or none",
            tool=launch.tool, build=launch.build, kind=kind,
        )  # fmt: skip
        yield Note("not_counted", message)


def _missing(launch: Launch, companions: Companions, devices: Sequence[Device]) -> Iterator[Phrase]:
    """What the launch names and nobody opened. RPC servers count as soon as one is described."""
    files = (
        ("-md", launch.model_draft and companions.draft is None),
        ("--mmproj", launch.mmproj and companions.mmproj is None),
        ("--lora", len(asked.adapters(launch)) > len(companions.loras)),
    )
    for flag, missing in files:
        if missing:
            yield phrase("what {flag} takes is not counted", flag=flag)
    remote = any(device.kind == "rpc" for device in devices)
    yield from uncounted(launch, REMOTE if remote else ())


def _doubts(draft: drafts.Drafted | None) -> Iterator[Phrase]:
    if draft is None:
        return
    made = draft.made
    if not made.model.verified:
        yield phrase(
            "{arch} is not an architecture of build {build} that our rules were checked on",
            arch=made.model.architecture,
            build=ZOO_BUILD,
        )
    yield from made.compute.notes
