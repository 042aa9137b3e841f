"""What `kvwise bench` is asked: models, settings and tests -> a sweep."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvwise.cli._count import model_file, say_if_header
from kvwise.cli._request import (
    Machine,
    companions_of,
    machine,
    model_of,
    read_launch,
    with_model,
)
from kvwise.cli.output import Printer
from kvwise.errors import UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.parts.companions import Companions
from kvwise.options import asked as options_asked
from kvwise.options import asked_threads, change
from kvwise.text import phrase

if TYPE_CHECKING:
    from kvwise.bench.ruled import Means
    from kvwise.bench.run import Sweep

MATRICES = ("kv", "six")
_LENGTHS = {"-p": "prompt", "-n": "decode", "-d": "depth"}


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of the line. `lengths` are those of -p, -n and -d as written, None = not given."""

    models: tuple[str, ...]
    matrix: str | None
    vary: Sequence[str]
    lengths: Mapping[str, str | None]
    engine: str | None
    repetitions: int
    retries: int
    force: bool
    logs: Path | None
    dry_run: bool = False
    on: Mapping[str, Any] | None = None  # devices to plan for, as the line names them


def sweep_of(printer: Printer, words: list[str], asked: Asked) -> Sweep:
    """All settings with what becomes of each. Raises UsageError, SourceError, HeaderError,
    ModelError, EngineError."""
    from kvwise.bench.cases import Lengths, lengths_of, make_cases, parse_vary  # noqa: PLC0415
    from kvwise.bench.cases import matrix as matrix_of  # noqa: PLC0415
    from kvwise.bench.ruled import rule  # noqa: PLC0415
    from kvwise.bench.run import Sweep  # noqa: PLC0415

    lengths = {
        _LENGTHS[flag]: lengths_of(text, flag)
        for flag, text in asked.lengths.items()
        if text is not None
    }
    axes, given = parse_vary(asked.vary, Lengths(**lengths))
    if asked.matrix:
        _no_types_beside(axes)
        axes = (*matrix_of(asked.matrix), *axes)
    tests = given.all()
    opened, bases, fixed = _bases(printer, words, asked, max(given.prompt, default=0))
    means = replace(_means(bases, asked.engine, asked.on), fixed_ctx=fixed)
    cases = make_cases([means.engine.ruled(base) for base in bases], axes, tests, fixed)
    ruled = tuple(rule(case, opened[case.model], tests, means, force=asked.force) for case in cases)
    return Sweep(
        tuple(opened), ruled, means, asked.repetitions, asked.retries, asked.force, asked.logs
    )


def _no_types_beside(axes: Sequence[object]) -> None:
    names = {getattr(axis, "name", "") for axis in axes}
    for name in ("ctk", "ctv", "cache-type-k", "cache-type-v"):
        if name in names:
            raise UsageError("--matrix and --vary {name} exclude each other", name=name)


def _bases(
    printer: Printer, words: list[str], asked: Asked, longest: int
) -> tuple[list[Model], list[Launch], bool]:
    """The models, the launch that the settings of each start from, and whether -c was given;
    `longest` = tokens of the longest prompt."""
    from kvwise.bench.embedding import embeds, for_embedding  # noqa: PLC0415

    opened: list[Model] = []
    bases: list[Launch] = []
    fixed = False
    for name in asked.models or (None,):
        ref, reading = read_launch(words, name, asked.engine)
        model = model_of(ref)
        vectors = embeds(model)  # asked to generate it ends the engine's process by an assertion
        _check_file(printer, model, dry_run=asked.dry_run)
        launch = with_model(reading.launch, ref, model)
        if "n_seq_max" not in reading.origins:  # llama-bench has one sequence
            launch = change(launch, n_seq_max=1, kv_unified=False)
        if vectors or launch.embeddings:
            named = bool({"n_batch", "n_ubatch"} & reading.origins.keys())
            launch = for_embedding(launch, model, longest, fixed_batch=named)
            printer.remark(
                phrase("{name} makes vectors: how fast it reads is measured", name=model.called)
            )
        fixed = "n_ctx" in reading.origins
        if not opened:
            for note in reading.notes:
                printer.remark(note)
        opened.append(model)
        bases.append(replace(launch, fit=False))
    return opened, bases, fixed


def _check_file(printer: Printer, model: Model, *, dry_run: bool) -> None:
    """A plan needs no weights, a measurement does. Raises UsageError."""
    if dry_run:
        say_if_header(printer, model)
    else:
        model_file(model, hint="bench loads the real weights: give a .gguf file on this machine")


def _means(
    bases: Sequence[Launch], wanted: str | None, on: Mapping[str, Any] | None = None
) -> Means:
    """`on` = the devices that a plan is for, None = those of this machine."""
    from kvwise import here  # noqa: PLC0415
    from kvwise.bench.ruled import Means  # noqa: PLC0415
    from kvwise.engine.bench import find_for_bench, program  # noqa: PLC0415
    from kvwise.probe.cores import cores as physical_cores  # noqa: PLC0415
    from kvwise.probe.host import host  # noqa: PLC0415

    engine = find_for_bench(wanted)
    cores = os.cpu_count() or 1
    threads = asked_threads(bases[0], cores) or physical_cores() or cores
    there = machine(**on, engine=engine) if on else Machine(tuple(here.devices(engine)), host())
    return Means(
        engine, program(engine), there.devices, there.host, threads, cores,
        companions=_Opener(),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Opener:
    """Opens the files beside the model once, however many settings name them."""

    known: dict[tuple[str, ...], Companions] = field(default_factory=dict)

    def __call__(self, launch: Launch) -> Companions:
        names = (launch.model_draft, launch.mmproj, *options_asked.adapters(launch))
        if names not in self.known:
            self.known[names] = companions_of(launch)
        return self.known[names]
