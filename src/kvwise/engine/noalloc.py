"""The engine's no-alloc pass, wherever it runs: start, read the log until it is said, stop.

llama-server and the embedded engine run the pass before they load (`--fit on`) and are stopped as
soon as it is over. The embedded one is also told to allocate nothing at all, so that not even the
moment after the pass costs memory; it would then die of using a context without memory.
Source: common/fit.cpp (common_get_device_memory_data), common/common.cpp (common_init), b10605.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvwise.engine import events as ev
from kvwise.engine.loaded import ContextLoad, Loaded
from kvwise.engine.outcome import Ending, EngineEnded, Outcome
from kvwise.engine.printed import Printed
from kvwise.engine.process import Child, Limits
from kvwise.engine.virtual import VirtualDevices
from kvwise.errors import EngineError, KvwiseError, Refused

HOST = "Host"

_REFUSALS = {
    "v_quant_needs_flash_attn": "v_quant_needs_flash_attn",
    "mla_k_v_types_differ": "mla_k_v_types_differ",
    "tensor_missing": "missing_tensor",
    "architecture_unknown": "other_model",
    "assert": "internal_abort",
}
"""Code of a log line's failure -> code of a refusal (zoo/README.md)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One device (`RPC0`, `CUDA1`, `Host`, `CPU_REPACK`): whole MiB, cut off."""

    device: str
    model: Printed
    context: Printed
    compute: Printed


@dataclass(frozen=True, slots=True)
class Pass:
    """What one no-alloc pass said: its table, devices in order, and its log.

    `draft` is the table of the draft that the pass measured beside the model (empty: of none).
    """

    rows: tuple[Row, ...]
    loaded: Loaded
    argv: tuple[str, ...]
    draft: tuple[Row, ...] = ()

    @property
    def context(self) -> ContextLoad | None:
        """The context of the pass itself; a later one belongs to what `--fit` changed."""
        used = (one for one in self.loaded.contexts if one.used and not one.draft)
        return next(used, None)

    @property
    def draft_context(self) -> ContextLoad | None:
        """The draft's context that the pass made."""
        used = (one for one in self.loaded.contexts if one.used and one.draft)
        return next(used, None)

    @property
    def projector(self) -> dict[str, Printed]:
        """What `--fit` sets aside for the projector, by device of the engine (`CPU`, `RPC0`)."""
        counted = (one for one in self.loaded.projector if one.part == "counted")
        return {one.buffer: one.size for one in counted}


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run of a tool: how it ended, its log, and what it answered on stdout."""

    outcome: Outcome
    loaded: Loaded
    stdout: str
    enough: bool


def run(
    argv: Sequence[str],
    *,
    limit_s: float,
    enough: Callable[[Loaded], bool] = lambda _: False,
) -> Run:
    """Run to the end, or until the log says `enough`; never leaves a child.

    Raises EngineError when it is not through after `limit_s` seconds or cannot be started.
    """
    with Child(argv, limits=Limits(silence_s=limit_s)) as child:
        done = child.wait_until(lambda: enough(child.loaded), limit_s)
        ended_itself = not child.alive
        child.kill()
        outcome = child.wait()
    assert outcome is not None  # noqa: S101 (waited for without a limit)
    if outcome.ending is Ending.CANNOT_START:
        raise EngineEnded(outcome)
    if not done and not ended_itself:
        raise EngineError(
            "{tool} said nothing about memory within {seconds} s",
            tool=Path(argv[0]).name,
            seconds=round(limit_s),
        )
    return Run(outcome, child.loaded, "\n".join(_drain(child.answers)), done)


def _drain(answers: queue.SimpleQueue[str | None]) -> list[str]:
    lines = []
    while (line := answers.get()) is not None:
        lines.append(line)
    return lines


def on_virtual(gpus: VirtualDevices | None) -> list[str]:
    """Flags that make a tool use these GPUs and no others."""
    return [] if gpus is None else ["--rpc", gpus.endpoint, "-dev", ",".join(gpus.names)]


def negotiated(gpus: VirtualDevices | None, attempt: Callable[[], Run]) -> Run:
    """Try until the client speaks a protocol that the virtual devices answer.

    Raises EngineError when none of the known ones will do, or the tool knows no RPC.
    """
    while True:
        before = gpus.hellos if gpus else 0
        got = attempt()
        if gpus is None or gpus.major is not None:
            return got
        gpus.wait_idle()
        argument = got.loaded.failure("argument")
        if argument and argument.fields.get("flag") == "--rpc":
            raise EngineError(
                "this build of llama.cpp has no RPC, so it cannot see virtual devices",
                hint="use one built with -DGGML_RPC=ON, or the embedded engine",
            )
        if gpus.hellos == before:  # it failed before it came to the devices
            return got
        if not gpus.tries_left:
            raise EngineError(
                "this build of llama.cpp speaks a version of RPC that kvwise does not know",
                hint="update kvwise, or use the embedded engine",
            )


def why(got: Run, tool: str) -> KvwiseError:
    """The error for a run that gave no table: the engine's reason when it said one."""
    for record in got.loaded.failures:
        failure = record.event
        if not isinstance(failure, ev.Failure):
            continue
        code = _REFUSALS.get(failure.code)
        if failure.code == "block_vs_head_size":
            code = f"{failure.fields.get('side', 'K').lower()}_block_vs_head_size"
        if code:
            return Refused(code, "llama.cpp refuses this setting: {said}", said=record.text.strip())
    if got.outcome.clean:
        return EngineError("{tool} ended without saying what it needs", tool=tool)
    return EngineEnded(got.outcome)


def whole(text: str) -> Printed:
    """Whole MiB, cut off, as the table has them."""
    return Printed.parse(text, cut=True)


def table(loaded: Loaded) -> tuple[Row, ...]:
    """The first memory table of a log; a later one belongs to a later load."""
    return next(_tables(loaded), ())


def draft_table(loaded: Loaded) -> tuple[Row, ...]:
    """The second table, where the log says that it is of the model measured beside the first."""
    first, second = (*_tables(loaded), (), ())[:2]
    return second if first and loaded.draft_measured else ()


def _tables(loaded: Loaded) -> Iterator[tuple[Row, ...]]:
    rows: list[Row] = []
    for row in loaded.breakdown:
        name = row.name.partition(" ")[0]
        if any(name == known.device for known in rows):
            yield tuple(rows)
            rows = []
        rows.append(Row(name, row.model, row.context, row.compute))
    if rows:
        yield tuple(rows)


def pass_over(loaded: Loaded) -> bool:
    """Has `--fit` said what it makes of its first measurement? The table is complete then."""
    later = loaded.fit_projection is not None or bool(loaded.fit_devices)
    return (bool(loaded.breakdown) and later) or loaded.failure("fit") is not None
