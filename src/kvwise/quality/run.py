"""The whole measurement as a job: every unit is on the disk before the next one starts."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from kvwise import __version__
from kvwise.device import Device, Host
from kvwise.diagnose.failed_run import findings_json, why_failed
from kvwise.engine import perplexity
from kvwise.engine.find import Engine
from kvwise.engine.outcome import EngineEnded
from kvwise.engine.server import Server
from kvwise.engine.settings import Run
from kvwise.errors import EngineError, Interrupted, Refused, UsageError
from kvwise.gguf.model import Model
from kvwise.jobs import Job, Mode, Pace
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.paths import cache_dir
from kvwise.quality.plan import Setting, Unit, noise_of, other_noise_of, settings, units
from kvwise.quality.prompts import Prompt, answer, prompts
from kvwise.quality.rows import Context, measurement, why_of
from kvwise.quality.scorers import ByServer, ByTool, Scorer, Setup, affordable
from kvwise.quality.texts import Text, shipped
from kvwise.results import Measurement, save
from kvwise.results.record import canonical
from kvwise.store import Store
from kvwise.verify.attempt import free_cores
from kvwise.verify.codec import encode
from kvwise.verify.identity import fingerprint
from kvwise.verify.run import path_of

KIND = "quality"
Method = Literal["auto", "llama-perplexity", "http"]
CHUNKS, CHUNK_TOKENS, NEEDLE_TOKENS = 8, 512, 2048
_LEAST_CTX = 1024
_LITTLE = 5e-4
"""A mean divergence below which another batch hardly changes the way through the kernels: half of
what is still called lossless. A build for this very processor computed SmolLM2 135M with the same
roundings for both batches at 2,039 of 2,040 positions."""
_STALE_S = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure: `launches` of a model that lies on this machine, against f16/f16.

    `chunks` of `chunk_tokens` tokens of the `text`; the fixed prompts with `ask`, the needle in a
    context of at most `needle_tokens`; `threads` 0 = the cores that are free now. `method` auto is
    llama-perplexity where it lies beside a binary engine, else a server.
    """

    model: Model
    launches: tuple[Launch, ...]
    engine: Engine
    text: Text = field(default_factory=shipped)
    chunks: int = CHUNKS
    chunk_tokens: int = CHUNK_TOKENS
    method: Method = "auto"
    ask: bool = True
    needle_tokens: int = NEEDLE_TOKENS
    threads: int = 0
    devices: tuple[Device, ...] = ()
    host: Host | None = None

    def __post_init__(self) -> None:
        positions = self.chunks * perplexity.positions_of(max(self.chunk_tokens, 3))
        if self.chunks < 1 or self.chunk_tokens < 32 or positions < perplexity.LEAST_POSITIONS:
            raise UsageError(
                "{chunks} chunks of {tokens} tokens are too few to say anything",
                chunks=self.chunks, tokens=self.chunk_tokens, hint="take more chunks",
            )  # fmt: skip
        if not self.model.has_decoder or not self.model.n_vocab:
            raise UsageError("this model generates no text, so its cache cannot be judged")


def measure(
    request: Request,
    store: Store,
    *,
    mode: Mode = "auto",
    part_of: Job | None = None,
    progress: Callable[[Pace], None] | None = None,
    step: Callable[[int, int], None] | None = None,
    found: Callable[[Measurement], None] | None = None,
) -> list[Measurement]:
    """One Measurement of kind `fidelity` for each distinct setting among the launches, kept in the
    store as soon as it is complete (`found` hears of it then).

    `progress` is called before each unit, `step` within one. What was interrupted, also by
    `kill -9`, goes on where it was; what was finished for a job that it is `part_of` is kept. A
    setting that fails is a row. Raises UsageError (the model is no file here, the text is too
    short), EngineError (no room for a base), Interrupted, StoreError.
    """
    path = path_of(request.model)
    tool = tool_of(request)
    with Job.open(store, KIND, path, _about(request, path, tool), mode, part_of=part_of) as job:
        folder = _folder(job, fresh=mode == "fresh")
        try:
            setup = replace(_setup(request, path, folder, job, tool is not None), step=step)
            scorer: Scorer = ByTool(setup, tool) if tool else ByServer(setup)
            with contextlib.closing(_Work(request, setup, scorer, job, found, store)) as work:
                rows = work.all(progress)
            job.finish()
        except (Interrupted, KeyboardInterrupt):
            raise  # the base is needed when it goes on
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)
        return rows


def tool_of(request: Request) -> Path | None:
    """The llama-perplexity to use, None = a server. Raises UsageError when one is insisted on."""
    beside = request.engine.kind == "binary" and request.method != "http"
    tool = request.engine.tool(perplexity.TOOL) if beside else None
    if tool is None and request.method == perplexity.TOOL:
        raise UsageError(
            "there is no {tool} beside {engine}", tool=perplexity.TOOL, engine=request.engine.name,
            hint="measure over HTTP instead, or name the engine of a folder that has it",
        )  # fmt: skip
    return tool


def _about(request: Request, path: str, tool: Path | None) -> dict[str, Any]:
    engine = request.engine
    return {
        "model file": fingerprint(path),
        "engine": [engine.kind, engine.build, engine.version, engine.path],
        "method": str(tool) if tool else "http",
        "text": request.text.hash,
        "chunks": [request.chunks, request.chunk_tokens],
        "prompts": [request.ask, request.needle_tokens],
        "threads": request.threads,
        "settings": [launch.as_dict() for launch in request.launches],
        "kvwise": __version__,
    }


def _folder(job: Job, *, fresh: bool) -> Path:
    """Where the job keeps its base and its logs, emptied for a `fresh` one; those of jobs that
    nobody came back to go."""
    name = hashlib.sha256(canonical(job.about).encode()).hexdigest()[:16]
    parent = cache_dir() / KIND
    folder = parent / name
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for other in parent.iterdir():
        if other != folder and time.time() - other.stat().st_mtime > _STALE_S:
            shutil.rmtree(other, ignore_errors=True)
    return folder


def _setup(request: Request, path: str, folder: Path, job: Job, whole: bool) -> Setup:
    """`whole`: a base holds the whole vocabulary, so that the disk decides how many chunks."""
    threads = job.note("threads", request.threads or free_cores())
    chunks = request.chunks
    if whole and "chunks" not in job.notes:
        chunks = affordable(folder, request.model.n_vocab, request.chunk_tokens, chunks)
    return Setup(
        path, request.engine, request.text, int(job.note("chunks", chunks)), request.chunk_tokens,
        int(threads), folder,
    )  # fmt: skip


@dataclass(slots=True)
class _Work:
    """Does one unit after another; holds the server that answers the prompts of one setting."""

    request: Request
    setup: Setup
    scorer: Scorer
    job: Job
    found: Callable[[Measurement], None] | None
    store: Store
    _told: dict[str, Measurement] = field(default_factory=dict)
    _server: Server | None = None
    _serves: str = ""

    def all(self, progress: Callable[[Pace], None] | None) -> list[Measurement]:
        plan = settings(self.request.launches, self.request.chunk_tokens)
        asked = prompts() if self.request.ask else ()
        todo = {unit.key: unit for unit in units(plan, asked)}
        context = Context.of(
            self.request.model, self.request.devices, self.setup, tool_of(self.request), asked,
            prompt_context(self.request),
        )  # fmt: skip

        def tell(pace: Pace) -> None:
            for setting in plan:
                mine = [unit for unit in todo.values() if unit.setting == setting]
                ready = all(unit.key in self.job.results for unit in mine)
                if setting.asked and ready and setting.key not in self._told:
                    self._told[setting.key] = self._row(context, setting)
            if progress:
                progress(pace)

        self.job.run(list(todo), lambda key: self._done(todo[key]), tell, last=False)
        return [self._told[each.key] for each in plan if each.asked]

    def _row(self, context: Context, setting: Setting) -> Measurement:
        row = measurement(context, setting, self.job.results)
        save(self.store, row)
        if self.found:
            self.found(row)
        return row

    def _done(self, unit: Unit) -> dict[str, Any]:
        """The result of a unit, whatever it is: figures, or why there are none."""
        try:
            self._check(unit)
            result = self._one(unit)
        except Refused as error:
            result = {"skipped": encode(error.phrase)}
        except EngineError as error:
            result = self._failed(unit, error)
        return result | {"at": time.time()}

    def _check(self, unit: Unit) -> None:
        """Refuse what llama.cpp would, and what follows from a base that failed."""
        account(self.request.model, unit.setting.launch, self.request.devices,
                host=self.request.host)  # fmt: skip
        before = self.job.results.get(f"base {unit.setting.group}", {})
        if "failed" in before and unit.kind != "base":
            raise EngineError("its base failed: {why}", why=why_of(before))

    def _one(self, unit: Unit) -> dict[str, Any]:
        setting = unit.setting
        if unit.prompt is not None:
            return self._ask(unit, unit.prompt)
        self._leave()
        if unit.kind == "base":
            return self.scorer.base(setting.group, setting.base)
        if unit.kind == "noise":
            return self._noise(setting)
        return self.scorer.score(setting.group, setting.base, setting.launch, unit.key)

    def _noise(self, setting: Setting) -> dict[str, Any]:
        """f16 against f16 with other roundings: another batch, and where that changes little,
        attention computed the other way; the larger of the two."""
        launch, other = noise_of(setting.base), other_noise_of(setting.base)
        result = self.scorer.score(setting.group, setting.base, launch, "noise")
        result["by"] = f"-ub {launch.n_ubatch}"
        if result["kl_mean"] < _LITTLE:
            with contextlib.suppress(EngineError):
                more = self.scorer.score(setting.group, setting.base, other, "noise-fa")
                if more["kl_mean"] > result["kl_mean"]:
                    return more | {"by": f"-fa {other.flash_attn}"}
        return result

    def _ask(self, unit: Unit, prompt: Prompt) -> dict[str, Any]:
        context = prompt_context(self.request)
        try:
            server = self._serving(unit, context)
            return answer(server, prompt, shipped().content, context).as_dict()
        except EngineError:
            self._leave()  # the next prompt gets a new one
            raise

    def _serving(self, unit: Unit, context: int) -> Server:
        """The server of a setting; of the base asked `again` one with other roundings."""
        name = f"{unit.kind} {unit.setting.key}"
        if self._server is None or self._serves != name:
            self._leave()
            launch = unit.setting.launch
            if unit.kind == "again":
                launch = noise_of(launch)
            launch = replace(launch, n_ctx=context, n_batch=max(512, launch.n_ubatch))
            run = Run(threads=self.setup.threads, warmup=False)
            self._server = Server.start(
                self.setup.model, launch, engine=self.setup.engine, run=run,
                log=self.setup.log(name),
            )  # fmt: skip
            self._serves = name
        return self._server

    def _leave(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def close(self) -> None:
        """Leave no server behind."""
        self._leave()

    def _failed(self, unit: Unit, error: EngineError) -> dict[str, Any]:
        ended = error.outcome if isinstance(error, EngineEnded) else None
        name = f"{unit.kind} {unit.setting.key}" if unit.prompt else unit.key
        log = self.setup.log(unit.setting.group if unit.kind == "base" else name)
        findings = why_failed(
            log if ended else None, ended, model=self.request.model, launch=unit.setting.launch
        )
        return {"failed": encode(error.phrase), "findings": findings_json(findings)}


def prompt_context(request: Request) -> int:
    """Tokens of the context that all prompts get: the largest that was asked for, within the
    model's training length and `needle_tokens`; never less than the prompts need."""
    trained = request.model.n_ctx_train or request.needle_tokens
    asked = max((launch.n_ctx for launch in request.launches), default=0) or trained
    return max(min(request.needle_tokens, asked, trained), min(_LEAST_CTX, trained))
