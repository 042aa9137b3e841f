"""Two ways to the divergence of a setting from its base: llama-perplexity, or a server.

Both score the same positions of the same text. A base is a file in the job's folder; there is one
at a time, it is made again when it is missing, and its size is checked against the disk before.
Perplexity comes from llama-perplexity alone: a server gives the likeliest tokens only, so the true
token is often not among them, and a perplexity made from that would be too low.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from kvwise.engine import perplexity
from kvwise.engine.find import Engine
from kvwise.engine.loaded import Loaded
from kvwise.engine.server import Server
from kvwise.engine.settings import Run
from kvwise.errors import EngineError
from kvwise.launch import Launch
from kvwise.quality.divergence import summary
from kvwise.quality.forced import TOP, Kept, compare, positions
from kvwise.quality.texts import Text, chunks_of
from kvwise.units import GIB, mib

FREE = GIB
"""Bytes of the disk that a base leaves free."""

Step = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Setup:
    """What all runs of a job share. `folder` holds its bases and logs."""

    model: str
    engine: Engine
    text: Text
    chunks: int
    chunk_tokens: int
    threads: int
    folder: Path
    top: int = TOP
    step: Step | None = None

    def log(self, name: str) -> Path:
        """Where a run's log goes."""
        return self.folder / f"{name}.log"

    def only(self, name: str) -> None:
        """Delete the bases of others: there is one at a time, whose files begin so."""
        for path in self.folder.glob("base-*"):
            if not path.name.startswith(name):
                path.unlink(missing_ok=True)


class Scorer(Protocol):
    """`base` makes (if need be) and describes the base of a launch, `score` compares another."""

    def base(self, name: str, launch: Launch) -> dict[str, Any]: ...

    def score(self, name: str, base: Launch, launch: Launch, log: str) -> dict[str, Any]: ...


def for_chunks(launch: Launch, chunk_tokens: int) -> Launch:
    """The launch as it is scored: one sequence of one chunk, in one batch; what decides numbers
    (types, flash attention, -ub, placement) stays."""
    return replace(
        launch, n_ctx=chunk_tokens, n_batch=chunk_tokens, n_seq_max=1, kv_unified=False,
        n_ubatch=min(launch.n_ubatch, chunk_tokens), n_outputs_max=0, fit=False, embeddings=False,
        pooling="", model_draft="", spec_types=(), mmproj="", mtp=False, load_mtp=False,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ByTool:
    """llama-perplexity of the same llama.cpp."""

    setup: Setup
    tool: Path

    def base(self, name: str, launch: Launch) -> dict[str, Any]:
        """See Scorer. Raises EngineEnded, EngineError."""
        place = self._place(name)
        kept = perplexity.read_base(place)
        seen: dict[str, Any] = {}
        if kept is None or not kept.complete:
            self.setup.only(place.name)
            text = self.setup.folder / "text.txt"
            text.write_text(self.setup.text.content, encoding="utf-8", newline="")
            scratch = place.with_suffix(".part")
            job = self._job(launch, scratch)
            kept, loaded = job.make_base(
                text, self.setup.chunks, log=self.setup.log(name), step=self.setup.step
            )
            scratch.replace(place)
            seen = seen_of(loaded)
        return {
            "chunks": kept.chunks, "positions": kept.positions,
            "base_bytes": place.stat().st_size, **seen,
        }  # fmt: skip

    def score(self, name: str, base: Launch, launch: Launch, log: str) -> dict[str, Any]:
        """See Scorer. Raises EngineEnded, EngineError."""
        known = self.base(name, base)
        job = self._job(launch, self._place(name))
        found, loaded = job.measure(known["chunks"], self.setup.log(log), self.setup.step)
        return {**asdict(found), "positions": known["positions"], **seen_of(loaded)}

    def _place(self, name: str) -> Path:
        return self.setup.folder / f"base-{name}.logits"

    def _job(self, launch: Launch, base: Path) -> perplexity.Job:
        return perplexity.Job(self.tool, self.setup.model, launch, base, self.setup.threads)


@dataclass(frozen=True, slots=True)
class ByServer:
    """Teacher forcing over HTTP, on a fresh server for each setting. Each chunk of a base and of a
    comparison is on the disk before the next one: a process that is killed loses one."""

    setup: Setup

    def base(self, name: str, launch: Launch) -> dict[str, Any]:
        """See Scorer. Raises EngineEnded, EngineError, UsageError."""
        about = self.setup.folder / f"base-{name}.json"
        known = _json(about)
        if known is None or not all(self._kept(name, at).read() for at in range(known["chunks"])):
            self.setup.only(f"base-{name}")
            with self._start(launch, name) as server:
                chunks, seen = self._chunks(server), seen_of(server.loaded)
                counted = _Counted(self.setup, len(chunks))
                for at, chunk in enumerate(chunks):
                    kept = self._kept(name, at)
                    if kept.read() is None:
                        kept.write(list(positions(server, chunk, self.setup.top, counted)))
                    counted.at((at + 1) * counted.each)
            sizes = [self._kept(name, at).path.stat().st_size for at in range(len(chunks))]
            known = {"chunks": len(chunks), "positions": len(chunks) * counted.each,
                     "base_bytes": sum(sizes), **seen}  # fmt: skip
            _write(about, known)
        return known

    def score(self, name: str, base: Launch, launch: Launch, log: str) -> dict[str, Any]:
        """See Scorer. Raises EngineEnded, EngineError, UsageError."""
        self.base(name, base)
        values: list[float] = []
        same = 0
        with self._start(launch, log) as server:
            chunks = self._chunks(server)
            counted = _Counted(self.setup, len(chunks))
            for at, chunk in enumerate(chunks):
                each = self._compared(server, name, at, chunk, log, counted)
                values += each["values"]
                same += each["same"]
                counted.at((at + 1) * counted.each)
            return {**asdict(summary(values, same)), **seen_of(server.loaded)}

    def _compared(  # noqa: PLR0917 (one place calls it)
        self, server: Server, name: str, at: int, chunk: Sequence[int], log: str, counted: _Counted
    ) -> dict[str, Any]:
        """One chunk, kept as soon as it is done."""
        place = self.setup.folder / f"score-{name}-{log.replace(' ', '-')}-{at}.json"
        known = _json(place)
        if known is None:
            found = self._kept(name, at).read()
            if found is None:
                raise EngineError("the base was taken away while it was used")
            values, same = compare(found, positions(server, chunk, self.setup.top, counted))
            known = {"values": values, "same": same}
            _write(place, known)
        return known

    def _kept(self, name: str, chunk: int) -> Kept:
        return Kept(self.setup.folder / f"base-{name}-{chunk}.positions")

    def _chunks(self, server: Server) -> list[list[int]]:
        return chunks_of(server, self.setup.text, self.setup.chunk_tokens, self.setup.chunks)

    def _start(self, launch: Launch, log: str) -> Server:
        run = Run(threads=self.setup.threads, warmup=False)
        return Server.start(
            self.setup.model, launch, engine=self.setup.engine, run=run, log=self.setup.log(log)
        )


@dataclass(slots=True)
class _Counted:
    """Tells how far a run is, counting positions."""

    setup: Setup
    chunks: int
    done: int = 0

    @property
    def each(self) -> int:
        """Positions of a chunk."""
        return perplexity.positions_of(self.setup.chunk_tokens)

    def at(self, done: int) -> None:
        self.done = done

    def __call__(self) -> None:
        self.done += 1
        if self.setup.step:
            self.setup.step(self.done, self.chunks * self.each)


def _json(path: Path) -> dict[str, Any] | None:
    """What `_write` wrote; None when it is not there."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, value: dict[str, Any]) -> None:
    """Whole or not at all."""
    scratch = path.with_suffix(f".{os.getpid()}.part")
    with scratch.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def seen_of(loaded: Loaded) -> dict[str, Any]:
    """What the log says that decides numbers: flash attention, rotation of quantized sides."""
    main = loaded.main
    if main is None:
        return {}
    seen: dict[str, Any] = {"rotation": dict(sorted(main.rotation.items()))}
    return seen if main.flash_attn is None else seen | {"flash_attn": main.flash_attn}


def affordable(folder: Path, n_vocab: int, chunk_tokens: int, chunks: int) -> int:
    """How many chunks the disk has room for, up to `chunks`; llama-perplexity's base is large.

    Raises EngineError when it has room for none.
    """
    chunks = min(chunks, perplexity.MOST_CHUNKS)
    room = shutil.disk_usage(folder).free - FREE
    each = max(perplexity.base_bytes(n_vocab, chunk_tokens, 1), 1)
    if room < each:
        raise EngineError(
            "the base of one chunk has {needed}, and {folder} has {room} to spare",
            needed=mib(each), folder=str(folder), room=mib(max(room, 0)),
            hint="make room, or set KVWISE_HOME to a folder on another disk",
        )  # fmt: skip
    return int(min(chunks, room // each))
