"""One run of llama-perplexity: the file of a base's probabilities, or the divergence from it.

The base file holds 16-bit log probabilities of the whole vocabulary at the second half of every
chunk, and the tokens themselves. The statistics are tables on stdout; the log is on stderr.
Source: tools/perplexity/perplexity.cpp, b10605.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from kvwise.engine import fit
from kvwise.engine.find import Engine, binary
from kvwise.engine.loaded import Loaded
from kvwise.engine.outcome import EngineEnded
from kvwise.engine.process import Child, Limits
from kvwise.engine.settings import VERBOSITY, check, for_build
from kvwise.errors import EngineError
from kvwise.launch import Launch

TOOL = "llama-perplexity"
MOST_CHUNKS = 512
"""Each is a line of stdout, of which `process.py` keeps 1,000."""
LEAST_POSITIONS = 100
"""Below, the tool makes no statistics."""
_MAGIC = b"_logits_"
_HEAD = struct.Struct("<8s3i")
_SILENCE_S, _BUSY_S = 300.0, 4 * 3600.0
_MOST_VOCAB = 1 << 24

_NUMBER = r"(-?\d{1,12}(?:\.\d{1,9})?)"
_ERROR = r"(-?\d{1,12}(?:\.\d{1,9})?|-?nan|-?inf)\b"
"""Of two runs that are nearly equal the tool takes the root of a rounding below zero."""
_TABLE = {
    "ppl": rf"Mean PPL\(Q\)\s*:\s*{_NUMBER}",
    "ppl_base": rf"Mean PPL\(base\)\s*:\s*{_NUMBER}",
    "ppl_ratio": rf"Mean PPL\(Q\)/PPL\(base\)\s*:\s*{_NUMBER}",
    "ppl_ratio_error": rf"Mean PPL\(Q\)/PPL\(base\)\s*:\s*{_NUMBER} ±\s*{_ERROR}",
    "kl_mean": rf"Mean\s+KLD:\s*{_NUMBER}",
    "kl_mean_error": rf"Mean\s+KLD:\s*{_NUMBER} ±\s*{_ERROR}",
    "kl_max": rf"Maximum KLD:\s*{_NUMBER}",
    "kl_p99": rf"99\.0%\s+KLD:\s*{_NUMBER}",
    "kl_median": rf"Median\s+KLD:\s*{_NUMBER}",
    "same_top": rf"Same top p:\s*{_NUMBER}",
    "same_top_error": rf"Same top p:\s*{_NUMBER} ±\s*{_ERROR}",
}
_TABLE_RE = {name: re.compile(rf"^\s*{text}") for name, text in _TABLE.items()}
_CHUNK = re.compile(rb"(?:^|\n)\s*(\d{1,6}) {3,}|\[(\d{1,6})\]\d")

Step = Callable[[int, int], None]
"""Called with chunks done and all there are."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the tables say, against the base: KL divergence in nats, `same_top` as a share (0 to 1),
    `..._error` = one standard error (None = the tool could not tell); of values that should not be
    negative, none is."""

    ppl: float
    ppl_base: float
    ppl_ratio: float
    ppl_ratio_error: float | None
    kl_mean: float
    kl_mean_error: float | None
    kl_max: float
    kl_p99: float
    kl_median: float
    same_top: float
    same_top_error: float | None


def read_statistics(text: str) -> Statistics:
    """The tables of stdout. Raises EngineError when one of the values is missing or no number."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        for name, pattern in _TABLE_RE.items():
            match = pattern.match(line)
            if match:
                found[name] = float(match[match.re.groups])
    missing = [each.name for each in fields(Statistics) if each.name not in found]
    if missing:
        raise EngineError(
            "{tool} printed no {what}", tool=TOOL, what=", ".join(missing[:3]),
            hint="its log says why",
        )  # fmt: skip
    for name in ("same_top", "same_top_error"):
        found[name] /= 100
    return Statistics(**{name: _sound(value) for name, value in found.items()})  # type: ignore[arg-type]


def _sound(value: float) -> float | None:
    """None for no number, which only an error can be."""
    return max(0.0, value) if math.isfinite(value) else None


# -- the base file ------------------------------------------------------------------------------


def positions_of(chunk_tokens: int) -> int:
    """Positions of a chunk that are scored: its second half but the last."""
    return chunk_tokens - 1 - chunk_tokens // 2


def base_bytes(n_vocab: int, chunk_tokens: int, chunks: int) -> int:
    """Size of a base file."""
    row = 2 * (2 * ((n_vocab + 1) // 2) + 4)
    return _HEAD.size + chunks * (4 * chunk_tokens + positions_of(chunk_tokens) * row)


@dataclass(frozen=True, slots=True)
class Base:
    """A base file: `complete` when it is as long as its head says."""

    path: Path
    chunk_tokens: int
    n_vocab: int
    chunks: int
    complete: bool

    @property
    def positions(self) -> int:
        return self.chunks * positions_of(self.chunk_tokens)


def read_base(path: Path) -> Base | None:
    """The head of a base file; None when there is none, or it is no such file."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
        size = path.stat().st_size
    except OSError:
        return None
    if len(head) < _HEAD.size:
        return None
    magic, chunk_tokens, n_vocab, chunks = _HEAD.unpack(head)
    sound = 0 < n_vocab <= _MOST_VOCAB and 2 < chunk_tokens < 1 << 24 and 0 < chunks < 1 << 20
    if magic != _MAGIC or not sound:
        return None
    complete = size == base_bytes(n_vocab, chunk_tokens, chunks)
    return Base(path, chunk_tokens, n_vocab, chunks, complete)


# -- running it ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """One run: `tool` on `model` with `launch` (its `n_ctx` is the length of a chunk), against or
    into `base`; `threads` 0 = the engine's choice."""

    tool: Path
    model: str
    launch: Launch
    base: Path
    threads: int = 0

    def argv(self, *more: str) -> list[str]:
        """The command; raises UsageError for what this build cannot be told."""
        check(self.launch)
        engine: Engine = binary(self.tool)
        words = ["-m", self.model, *fit.settings(self.launch), "-fit", "off"]
        words += ["-lv", str(VERBOSITY), "--no-warmup"]
        words += ["-t", str(self.threads)] if self.threads else []
        words += ["--kl-divergence-base", str(self.base), *more, *self.launch.extra]
        return [str(self.tool), *for_build(engine, words)]

    def make_base(
        self, text: Path, chunks: int, *, log: Path | None = None, step: Step | None = None
    ) -> tuple[Base, Loaded]:
        """Write the base file of a text. Raises EngineEnded with the reason of a failure,
        EngineError when what was written is not whole."""
        argv = self.argv("-f", str(text), "--chunks", str(chunks))
        _, loaded = _run(argv, log, step, chunks)
        base = read_base(self.base)
        if base is None or not base.complete:
            raise EngineError(
                "{tool} wrote no whole file of probabilities", tool=TOOL,
                hint="is there room on the disk, and has the text at least two chunks?",
            )  # fmt: skip
        return base, loaded

    def measure(
        self, chunks: int, log: Path | None = None, step: Step | None = None
    ) -> tuple[Statistics, Loaded]:
        """How far this launch is from the base of `chunks` chunks. Raises EngineEnded,
        EngineError."""
        text, loaded = _run(self.argv("--kl-divergence"), log, step, chunks)
        return read_statistics(text), loaded


def _run(
    argv: Sequence[str], log: Path | None, step: Step | None, chunks: int
) -> tuple[str, Loaded]:
    """stdout and what the log says. Raises EngineEnded for any end but a good one."""

    def heard(stream: int, data: bytes) -> None:
        numbers = [int(a or b) for a, b in _CHUNK.findall(data)] if stream == 1 else []
        if step and numbers:
            step(min(max(numbers), chunks), chunks)

    limits = Limits(silence_s=_SILENCE_S, busy_s=_BUSY_S)
    with Child(argv, log=log, limits=limits, on_output=heard) as child:
        outcome = child.wait()
    assert outcome is not None  # noqa: S101 (waited for without a limit)
    if outcome.code != 0:
        raise EngineEnded(outcome)
    lines = []
    while (line := child.answers.get()) is not None:
        lines.append(line)
    return "\n".join(lines), child.loaded
