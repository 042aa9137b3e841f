"""The no-alloc pass inside a server: a llama-server, or the embedded engine in a child.

Both run it before they load (`--fit on`) with exactly what was asked for, and are stopped as soon
as its figures are out. For settings that llama-fit-params has no flag for, and without it.

    python -m kvwise.engine.noalloc_server SPEC     the embedded engine's child
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kvwise.engine.embedded import parameters
from kvwise.engine.find import Engine
from kvwise.engine.fit import EVERYTHING, rename_buffers
from kvwise.engine.noalloc import (
    Pass,
    Run,
    draft_table,
    negotiated,
    on_virtual,
    pass_over,
    run,
    table,
    why,
)
from kvwise.engine.settings import Run as Start
from kvwise.engine.settings import embedded_spec, server_argv
from kvwise.engine.virtual import VirtualDevices
from kvwise.launch import Launch

_TRIES = 4


def expressible(launch: Launch) -> bool:
    """Can a server be asked about this launch? It decides itself how many logits it keeps.

    Source: server_output_limits, tools/server/server-context.cpp, b10605.
    """
    rows = launch.n_outputs_max
    if launch.embeddings or launch.pooling not in ("", "none"):
        return rows in (0, launch.n_batch)
    return bool(launch.spec_types) or rows == min(launch.n_seq_max, launch.n_batch)


def in_server(
    engine: Engine,
    model: Path,
    launch: Launch,
    gpus: VirtualDevices | None = None,
    *,
    limit_s: float = 120.0,
) -> Pass:
    """What a llama-server's own pass says, on virtual GPUs or on its own devices.

    Raises Refused with the engine's reason, EngineError, UsageError for flags it does not know.
    """
    return _asked(server_command(engine, model, launch, gpus), gpus, limit_s)


def server_command(
    engine: Engine, model: Path, launch: Launch, gpus: VirtualDevices | None = None
) -> list[str]:
    """The command that `in_server` runs; raises UsageError."""
    wanted = replace(
        launch,
        fit=True,
        devices=launch.devices if gpus is None else (),
        override_tensor=rename_buffers(launch.override_tensor, gpus),
    )
    # Not "exact": that would switch the very pass off.
    start = Start(exact=False, warmup=_warm(launch), special=(*on_virtual(gpus), *EVERYTHING))
    return server_argv(engine, str(model), wanted, start)


def in_embedded(model: Path, launch: Launch, *, limit_s: float = 120.0) -> Pass:
    """What the embedded engine's own pass says, on the devices that it has itself.

    Raises Refused with the engine's reason, EngineError, UsageError for what it cannot be told.
    """
    return _asked(embedded_command(model, launch), None, limit_s)


def embedded_command(model: Path, launch: Launch) -> list[str]:
    """The command that `in_embedded` runs; raises UsageError."""
    spec = embedded_spec(str(model), launch, Start(exact=False, warmup=_warm(launch)))
    return [sys.executable, "-m", "kvwise.engine.noalloc_server", json.dumps(spec)]


def _warm(launch: Launch) -> bool:
    """Warming up would only come later; but without it a projector's estimate has no compute."""
    return bool(launch.mmproj) and "--no-warmup" not in launch.extra


def _asked(argv: list[str], gpus: VirtualDevices | None, limit_s: float) -> Pass:
    attempt: Callable[[], Run] = lambda: run(argv, limit_s=limit_s, enough=pass_over)  # noqa: E731
    got = negotiated(gpus, attempt)
    for _ in range(_TRIES):
        found = Pass(table(got.loaded), got.loaded, tuple(argv), draft_table(got.loaded))
        if found.rows and found.context is not None and found.context.compute:
            return found
        if got.loaded.failures:
            break
        # Its log is written by a thread of its own: now and then it dies with the last lines.
        got = negotiated(gpus, attempt)
    raise why(got, Path(argv[0]).name)


def main(arguments: list[str]) -> int:
    """The embedded engine: its pass, then a load that allocates nothing and is not survived."""
    import xllamacpp as x  # noqa: PLC0415  (only the child loads the engine)

    p = parameters(json.loads(arguments[0]))
    p.no_alloc = p.fit_params = True
    p.load_mode = x.llama_load_mode.LLAMA_LOAD_MODE_NONE  # with mmap it asserts instead
    p.verbosity = int(EVERYTHING[1])
    try:
        x.Server(p)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
