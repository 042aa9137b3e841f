"""One case asked of both sides; every answer is kept as soon as it is there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from grid import Case, header_of
from judge import judge, judged
from kept import Kept, Row
from sides import Said, engine_says, ours, theirs, timed
from verdict import room
from vocabulary import with_vocabulary

from kvwise.arch import describe
from kvwise.errors import EngineError, KvwiseError, Refused
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.gguf.writer import write_twin
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.placement import select
from kvwise.plan.choose import Plan

PLANS = ("same", "same context", "placed", "free", "placed free")
CHECKED = ("same", "free")
STEP = 256


@dataclass(frozen=True, slots=True)
class Asked:
    """Where answers come from: llama.cpp's tool, what is kept, and the version of our code."""

    tool: Path
    build: str
    kept: Kept
    version: str


def ask_ours(asked: Asked, case: Case) -> Row:
    """The plan that a user would get, and what the engine says to it and to one step more."""
    with twin_of(case.model) as twin:
        return {"case": asdict(case)} | _planned(asked, twin, case, "free", None, check=True)


def ask(asked: Asked, case: Case, *, only_theirs: bool = False, check: bool = True) -> Row:
    """The whole row of a case: `theirs`, one entry per plan, and what the engine says to ours;
    without `check` only what it said before, if anything."""
    about = json.dumps(asdict(case), sort_keys=True)
    kept, version = asked.kept, asked.version
    with twin_of(case.model) as twin:
        other = dict(
            kept.ask(f"theirs {asked.build} {about}", lambda: _theirs(asked.tool, twin(), case))
        )
        row: Row = {"case": asdict(case), "theirs": other}
        if only_theirs:
            return row
        chosen = Launch.from_dict(other["launch"]) if other["launch"] else None
        other |= kept.ask(f"judged {version} {about}", lambda: _judged(twin(), case, chosen))
        for kind in PLANS:
            if chosen is None and kind not in CHECKED:
                continue
            row |= _planned(asked, twin, case, kind, chosen, check=check)
    return row


def _planned(
    asked: Asked,
    twin: Callable[[], Path],
    case: Case,
    kind: str,
    other: Launch | None,
    *,
    check: bool,
) -> Row:
    """One of our plans, and what the engine says to it if it is one of those that are checked."""
    kept, about = asked.kept, json.dumps(asdict(case), sort_keys=True)
    ours = kept.ask(f"{kind} {asked.version} {about}", lambda: _ours(twin(), case, kind, other))
    row: Row = {kind: ours}
    if kind in CHECKED and ours["launch"]:
        launch = json.dumps(ours["launch"], sort_keys=True)
        key = f"said 3 {asked.build} {launch} {about}"
        if check or kept.known(key):
            row[kind + " said"] = kept.ask(key, lambda: _said(asked.tool, twin(), case, ours))
    return row


AGAIN = " again"
_OTHER_MARGIN = 32 << 20


def take_turns(asked: Asked, case: Case, run: str) -> Row:
    """Both sides, one after the other, anew in each `run`: only for the clock, about a file with
    the model's vocabulary. Ours is asked once more about the same opened model and cards with
    another margin: a next question."""
    about = json.dumps(asdict(case), sort_keys=True)
    key = f"turn with vocabulary {asked.version} {run} {about}"
    return asked.kept.ask(key, lambda: _turn(asked, case))


def _turn(asked: Asked, case: Case) -> Row:
    next_case = replace(case, margin=case.margin + _OTHER_MARGIN)
    with twin_of(case.model, vocabulary=True) as twin:
        other = _theirs(asked.tool, twin(), case)
        row: Row = {"theirs": other}
        for kind in CHECKED:
            row[kind] = _ours(twin(), case, kind, None)
            model = describe(open_header(str(twin())))
            ours(model, case, kind, None)
            _, took = timed(lambda kind=kind, model=model: ours(model, next_case, kind, None))
            row[kind + AGAIN] = {"took": asdict(took)}
    return row


@contextmanager
def twin_of(name: str, *, vocabulary: bool = False) -> Iterator[Callable[[], Path]]:
    """A sparse twin of a zoo model, made when it is first asked for."""
    with tempfile.TemporaryDirectory(prefix="kvwise-against-") as folder:
        place = Path(folder) / "twin.gguf"

        def made() -> Path:
            if not place.exists():
                header = header_of(name)
                write_twin(with_vocabulary(header) if vocabulary else header, place)
            return place

        yield made


def _theirs(tool: Path, twin: Path, case: Case) -> Row:
    launch, took = timed(lambda: theirs(tool, twin, case))
    return {"launch": launch.as_dict() if launch else None, "took": asdict(took)}


def _judged(twin: Path, case: Case, launch: Launch | None) -> Row:
    if launch is None:
        return {"judged": None, "why": "it found nothing that fits"}
    try:
        model = describe(open_header(str(twin)))
        return {"judged": judge(model, launch, case.devices).as_dict(), "why": None}
    except KvwiseError as error:
        return {"judged": None, "why": str(error)}


def _ours(twin: Path, case: Case, kind: str, other: Launch | None) -> Row:
    def work() -> tuple[Plan | None, str | None]:
        model = describe(open_header(str(twin)))
        try:
            return ours(model, case, kind, other), None
        except KvwiseError as error:
            return None, str(error)

    (found, why), took = timed(work)
    row: Row = {"launch": None, "judged": None, "why": why, "took": asdict(took)}
    if found is not None:
        row["launch"] = found.choice.launch.as_dict()
        row["judged"] = judged(found.choice.ledger).as_dict()
        binds = found.choice.binds
        row["binds"] = {} if binds is None else {"tokens": binds.context, "layer": binds.layers}
        row["reasons"] = [str(reason) for reason in found.choice.why]
        row["others"] = [judged(each.ledger).as_dict() for each in found.alternatives]
    return row


def _said(tool: Path, twin: Path, case: Case, row: Row) -> Row:
    """Whether our plan fits, and whether one step more would.

    By the engine's own pass where a virtual device can stand in for the card. It cannot for CUDA
    cards that share a model with each other or with the host, nor where CUDA has no flash attention
    for the model's heads: there our ledger is asked, with what is really reserved.
    """
    launch = Launch.from_dict(row["launch"])
    model = describe(open_header(str(twin)))
    alone = len(case.cards) == 1 and row["judged"]["layers"] == row["judged"]["of"]
    by_engine = case.kind == "generic" or (
        alone and launch.offload_kqv and _same_attention(model, case, launch)
    )

    def fits(one: Launch) -> str:
        return _fits(tool, twin, case, one) if by_engine else _computed(model, case, one)

    steps = _steps(model, launch, row["judged"])
    further = {name: fits(step) for name, step in steps}
    return {"by": "engine" if by_engine else "ledger", "fits": fits(launch), "further": further}


def _same_attention(model: Model, case: Case, launch: Launch) -> bool:
    """Whether flash attention is on as it is on a device that can do everything."""
    able = tuple(replace(device, kind="generic") for device in case.devices)
    here, there = (account(model, launch, each).context for each in (case.devices, able))
    return here.flash_attn == there.flash_attn


def _computed(model: Model, case: Case, launch: Launch) -> str:
    try:
        return "yes" if judge(model, launch, case.devices).keeps_margin else "no"
    except Refused as error:
        return f"refused: {error}"[:200]


def _steps(model: Model, launch: Launch, judged: Row) -> Iterator[tuple[str, Launch]]:
    if judged["n_ctx"] + STEP <= (model.n_ctx_train or 1 << 31):
        yield "tokens", replace(launch, n_ctx=judged["n_ctx"] + STEP)
    whole = launch.n_gpu_layers in (-1, model.n_layer_all + 1)
    if whole and any(buffer == "CPU" for _, buffer in launch.override_tensor):
        yield "layer", replace(launch, override_tensor=())
    elif whole and launch.n_cpu_moe > 0:
        yield "layer", replace(launch, n_cpu_moe=launch.n_cpu_moe - 1)
    elif 0 <= launch.n_gpu_layers <= model.n_layer_all:
        yield "layer", replace(launch, n_gpu_layers=launch.n_gpu_layers + 1)


def _fits(tool: Path, twin: Path, case: Case, launch: Launch) -> str:
    try:
        said = engine_says(tool, twin, case, launch)
    except (Refused, EngineError) as error:
        return f"refused: {error}"[:200]
    used = select(launch, case.devices)
    free = [device.free_bytes for device in used]
    answer = room(free, case.margin, list(said.low), list(said.high))
    if answer == "no" and _misjudged(describe(open_header(str(twin))), case, launch, said):
        return "misjudged"
    return answer


def _misjudged(model: Model, case: Case, launch: Launch, said: Said) -> bool:
    """The pass says what our ledger expects of a pass, and what is really reserved fits."""
    try:
        seen = account(model, launch, case.devices, compute_mode="no-alloc")
        real = judge(model, launch, case.devices)
    except KvwiseError:
        return False
    sizes = [line.total_bytes for line in seen.lines if not line.host]
    as_expected = all(
        low <= size <= high for size, low, high in zip(sizes, said.low, said.high, strict=True)
    )
    return as_expected and real.keeps_margin
