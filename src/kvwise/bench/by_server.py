"""One start of a server, and every test a few times on it, by llama-bench's definitions.

llama-bench reads `p` random tokens behind `d`, or decodes `n` tokens one by one behind `d`, and
counts only these. A server does the same when the `d` tokens are in its cache already: the prompt
then goes on where the cache ends, and `timings` say what was read. Within a sliding window and with
a recurrent state it goes on from a checkpoint, which lies a few tokens before; those few are read
and counted. Where there is none, all is read again and the figure is none; that is noticed.
Its speed of decoding includes sampling and its own work for each token, which llama-bench has not.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvwise.bench.cases import Task
from kvwise.bench.visit import Taken, Visit
from kvwise.engine.find import Engine
from kvwise.engine.outcome import EngineEnded
from kvwise.engine.process import Limits
from kvwise.engine.server import SILENCE_S, Server
from kvwise.engine.settings import Run
from kvwise.engine.watch import Watch
from kvwise.errors import EngineError
from kvwise.gguf.model import Model
from kvwise.launch import Launch

_LIGHT = (32, 4)
"""Tokens read and decoded to warm up: weights, caches and kernels have been used once then."""
_QUICK = {
    "temperature": 0.0, "samplers": ["top_k"], "top_k": 1, "ignore_eos": True, "cache_prompt": True
}  # fmt: skip
"""As little beside decoding as a server allows: without a sampler it sorts the whole vocabulary."""
_BEHIND = 8
"""Tokens by which a checkpoint may lie before the depth: it is made 4 before the end of a prompt,
and one more is read again. Source: tools/server/server-context.cpp (checkpoint_offsets), b10605."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Where random tokens come from: any of the vocabulary, the first one as the model has it."""

    n_vocab: int
    first: int | None
    seed: int

    @classmethod
    def of(cls, model: Model, seed: int) -> Tokens:
        values = model.header.metadata
        bos = values.get("tokenizer.ggml.bos_token_id")
        adds = values.get("tokenizer.ggml.add_bos_token", False)
        return cls(max(model.n_vocab, 1), bos if adds and isinstance(bos, int) else None, seed)

    def make(self, count: int, salt: str, *, start: bool) -> list[int]:
        """`count` tokens, the same for the same seed and salt."""
        source = random.Random(f"{self.seed} {salt}")  # noqa: S311  (no secret)
        found = [source.randrange(self.n_vocab) for _ in range(count)]
        if start and found and self.first is not None:
            found[0] = self.first
        return found


def checkpoints(model: Model, launch: Launch, tests: Sequence[Task]) -> bool:
    """Whether a cache of this model goes on behind some depth only from a checkpoint.

    Elsewhere they are left out of a measured start: a batch ends wherever one is made, so that the
    last 4 tokens of a prompt are read by themselves, which llama-bench does not do. A window of
    which nothing was dropped yet counts as not to be gone on with. Source: as for _BEHIND.
    """
    behind = [test.depth for test in tests if test.kind == "prompt" and test.depth]
    window = 0 if model.swa_type == "none" or launch.swa_full else model.n_swa
    return any(model.is_recurrent or model.is_hybrid or depth <= window for depth in behind)


@dataclass(frozen=True, slots=True)
class ServerVisit:
    """What to do with one server: each test `times`, and up to `retries` more of a sample that
    was disturbed."""

    path: str
    launch: Launch
    engine: Engine
    run: Run
    tokens: Tokens
    tests: Sequence[Task]
    times: int
    retries: int
    free_cores: int
    warm: Sequence[Task] = ()  # tests to be run once unmeasured: a GPU's kernels load when used
    limits: Limits = field(default_factory=lambda: Limits(silence_s=SILENCE_S))
    most_s: float | None = None  # measuring that takes longer is ended: `Ending.STOPPED`

    def go(self, log: Path | None, started: Callable[[int], None] | None = None) -> Visit:
        """Start, warm up, measure, stop; a failure is part of the result."""
        began = time.monotonic()
        visit = Visit()
        server: Server | None = None
        with Watch() as watch:
            try:
                server = Server.start(
                    self.path, self.launch, engine=self.engine, run=self.run, log=log,
                    limits=self.limits,
                )  # fmt: skip
                visit = replace(visit, argv=server.argv, ready_s=time.monotonic() - began)
                watch.follow(server.child.pid)
                if started:
                    started(server.child.pid)
                with _ended_after(self.most_s, server):
                    visit = self._measure(server, watch, visit)
                missing = server.missing_devices()
                watch.follow(None)
                outcome = server.stop()
                error = None if outcome.clean else outcome.sentence
                visit = replace(visit, outcome=outcome, error=error, missing=missing)
            except EngineError as error:
                ended = error.outcome if isinstance(error, EngineEnded) else None
                visit = replace(visit, error=error.phrase, outcome=ended)
            finally:
                if server is not None:
                    server.close()
        loaded = server.loaded if server is not None else None
        tail = tuple(server.child.tail) if server is not None else ()
        if not tail and visit.outcome is not None:
            tail = visit.outcome.tail
        return replace(visit, seconds=time.monotonic() - began, loaded=loaded, tail=tail)

    def _measure(self, server: Server, watch: Watch, visit: Visit) -> Visit:
        read, decoded = _LIGHT
        warm = self.tokens.make(read, "warm", start=True)
        if self.launch.embeddings:
            server.post("/embeddings", {"input": [warm]})
        else:
            server.complete(warm, decoded, **_QUICK)
        for test in self.warm:
            self._one(server, test, "warm", Watch())
        samples: list[Taken] = []
        for depth in dict.fromkeys(test.depth for test in self.tests):  # its fill is kept meanwhile
            for number in range(self.times):
                for test in self.tests:
                    if test.depth == depth:
                        samples += self._settled(server, watch, test, number)
        return replace(visit, samples=tuple(samples))

    def _settled(self, server: Server, watch: Watch, test: Task, number: int) -> list[Taken]:
        """One sample, and before it those that were disturbed."""
        found: list[Taken] = []
        for again in range(1 + self.retries):
            taken = self._one(server, test, f"{number} {again}", watch)
            if not taken.flags or again == self.retries:
                return [*found, taken]
            found.append(replace(taken, discarded=True))
        raise AssertionError  # the last try returned

    def _one(self, server: Server, test: Task, salt: str, watch: Watch) -> Taken:
        before = self.tokens.make(test.depth, "depth", start=True)
        if before and test.kind == "prompt":  # what is decoded has its depth read with it
            server.complete(before, 1, **_QUICK)
        began = time.monotonic()
        ways = {"prompt": self._prompt, "decode": self._decode, "embedding": self._embedding}
        rate, spent = ways[test.kind](server, test, before, salt)
        return watched(
            test, rate, spent, watch, stretch=(began, time.monotonic()), free_cores=self.free_cores
        )

    def _prompt(
        self, server: Server, test: Task, before: list[int], salt: str
    ) -> tuple[float, float]:
        """(tokens per second, seconds)."""
        more = self.tokens.make(test.tokens, f"prompt {salt}", start=not test.depth)
        answer = server.complete([*before, *more], 1, **(_QUICK | {"cache_prompt": bool(before)}))
        timings = answer.raw.get("timings") or {}
        read, spent = int(timings.get("prompt_n", 0)), float(timings.get("prompt_ms", 0)) / 1000
        more_than_asked = _BEHIND if test.depth else 0
        if not test.tokens <= read <= test.tokens + more_than_asked or spent <= 0:
            raise EngineError(
                "the engine read {read} tokens at depth {depth} where {asked} were asked for",
                read=read, depth=test.depth, asked=test.tokens,
                hint="llama-bench measures at depth with every model",
            )  # fmt: skip
        return read / spent, spent

    def _embedding(
        self, server: Server, test: Task, _before: list[int], salt: str
    ) -> tuple[float, float]:
        """As long as the answer took: a server tells no time of its own here."""
        body = {"input": [self.tokens.make(test.tokens, f"embedding {salt}", start=True)],
                "encoding_format": "base64"}  # fmt: skip
        began = time.monotonic()
        answer = server.post("/embeddings", body)
        spent = time.monotonic() - began
        if not isinstance(answer, list) or len(answer) != 1 or not answer[0].get("embedding"):
            raise EngineError("the engine's answer holds no vectors")
        return test.tokens / spent, spent

    def _decode(
        self, server: Server, test: Task, before: list[int], salt: str
    ) -> tuple[float, float]:
        """The first token comes out of reading the prompt: one more is asked for."""
        prompt = before or self.tokens.make(1, f"decode {salt}", start=True)
        answer = server.complete(prompt, test.tokens + 1, **_QUICK)
        timings = answer.raw.get("timings") or {}
        made = int(timings.get("predicted_n", 0)) - 1
        spent = float(timings.get("predicted_ms", 0)) / 1000
        if made != test.tokens or spent <= 0:
            raise EngineError(
                "the engine decoded {made} tokens where {asked} were asked for",
                made=made, asked=test.tokens,
            )  # fmt: skip
        return made / spent, spent


@contextmanager
def _ended_after(most_s: float | None, server: Server) -> Iterator[None]:
    """The server is ended when what is inside takes longer."""
    if most_s is None:
        yield
        return
    timer = threading.Timer(most_s, server.child.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def watched(
    test: Task,
    rate: float,
    spent: float,
    watch: Watch,
    *,
    stretch: tuple[float, float],
    free_cores: int,
) -> Taken:
    """A sample with what the watch saw of its stretch."""
    share = watch.between(*stretch) if watch.watching else None
    return Taken(
        test=test.name,
        value=rate,
        seconds=spent,
        at=time.time(),
        flags=share.flags(free_cores) if share else (),
        others=round(share.others, 2) if share else 0.0,
        load=share.load if share else None,
    )
