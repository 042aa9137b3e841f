"""One running server, whatever the engine: ready, tokenize, complete, embed, props, stop.

The address comes from the engine's own output (the port is free, chosen by the kernel), and the
socket that listens there must belong to our child: a 200 from `/health` can come from somebody
else's server while ours died of a taken port.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2
import psutil

from kvwise.engine.find import Engine, find
from kvwise.engine.loaded import Loaded
from kvwise.engine.outcome import Ending, EngineEnded, Outcome
from kvwise.engine.process import Child, Limits
from kvwise.engine.settings import Run, embedded_spec, server_argv
from kvwise.errors import EngineError
from kvwise.launch import Launch
from kvwise.options import to_argv
from kvwise.oserrors import reason_of

SILENCE_S = 120.0
READY_S = 1800.0
_POLL_S = 0.05
_TRIES = 3
"""An engine that refuses may exit before its log thread has written why (1 in 10 on b10605)."""
_ANSWER_S = 3600.0  # one request may hold a whole long prompt


@dataclass(frozen=True, slots=True)
class Completion:
    """One generated answer. `raw` is the server's whole JSON."""

    text: str
    prompt_tokens: int
    tokens: int
    truncated: bool
    raw: dict[str, Any]

    @property
    def prompt_per_s(self) -> float | None:
        return self._timing("prompt_per_second")

    @property
    def decode_per_s(self) -> float | None:
        return self._timing("predicted_per_second")

    @property
    def drafted(self) -> tuple[int, int] | None:
        """(drafted, accepted), None when nothing was drafted."""
        timings = self.raw.get("timings") or {}
        if "draft_n" not in timings:
            return None
        return int(timings["draft_n"]), int(timings.get("draft_n_accepted", 0))

    def _timing(self, name: str) -> float | None:
        value = (self.raw.get("timings") or {}).get(name)
        return float(value) if isinstance(value, int | float) else None


class RequestRefused(EngineError):
    """The server answered a request with an error; `code` is the HTTP status."""

    def __init__(self, code: int, message: str, kind: str) -> None:
        super().__init__("the engine refused a request ({code}): {said}", code=code, said=message)
        self.code, self.message, self.type = code, message, kind


def command(model: str | Path, launch: Launch, engine: Engine, run: Run | None = None) -> list[str]:
    """The exact command that `Server.start` runs; raises UsageError."""
    run = run or Run()
    if engine.kind == "binary":
        return server_argv(engine, str(model), launch, run)
    spec = json.dumps(embedded_spec(str(model), launch, run))
    return [sys.executable, "-m", "kvwise.engine.embedded", spec]


def shown(model: str | Path, launch: Launch, engine: Engine, run: Run | None = None) -> list[str]:
    """The command for people: the embedded engine's is what a llama-server would be told."""
    argv = command(model, launch, engine, run)
    if engine.kind == "binary":
        return argv
    words = to_argv(replace(launch, tool="llama-server", model=str(model)))
    threads = run.threads if run and not {"-t", "--threads"}.intersection(words) else 0
    return ["llama-server", *words, *(["-t", str(threads)] if threads else [])]


class Server:
    """A loaded model that answers. Use as a context manager: leaving it ends the child."""

    def __init__(self, child: Child, engine: Engine, argv: Sequence[str], launch: Launch) -> None:
        self.child, self.engine, self.argv, self.launch = child, engine, tuple(argv), launch
        self.url = ""
        self._http = httpx2.Client(timeout=httpx2.Timeout(_ANSWER_S, connect=10.0), trust_env=False)

    @classmethod
    def start(
        cls,
        model: str | Path,
        launch: Launch,
        *,
        engine: Engine | None = None,
        run: Run | None = None,
        log: Path | None = None,
        limits: Limits | None = None,
        ready_s: float = READY_S,
    ) -> Self:
        """Start and wait until the model is loaded.

        Raises UsageError for settings the engine lacks, EngineEnded (with the outcome and the end
        of the log) when it does not come up, EngineError when it is not ready after `ready_s`.
        """
        engine = engine or find()
        argv = command(model, launch, engine, run)
        limits = limits or Limits(silence_s=SILENCE_S)
        deadline = time.monotonic() + ready_s
        for left in reversed(range(_TRIES)):
            child = Child(argv, log=log, limits=limits, ends_with_stdin=engine.kind == "embedded")
            server = cls(child, engine, argv, launch)
            try:
                server._come_up(deadline)
            except EngineEnded as error:
                server.close()
                if left and error.outcome.ending is Ending.REFUSED and not error.outcome.failures:
                    continue
                raise
            except BaseException:
                server.close()
                raise
            return server
        raise AssertionError  # the last try returned or raised

    def _come_up(self, deadline: float) -> None:
        child = self.child
        url = (
            self._embedded_url(deadline)
            if self.engine.kind == "embedded"
            else self._logged_url(deadline)
        )
        if url is None:
            self._raise_ended(deadline)
        self.url = str(url).rstrip("/")
        self._check_owner()
        while not self._healthy():
            if not child.alive or time.monotonic() > deadline:
                self._raise_ended(deadline)
            child.wait(_POLL_S)
        self._check_owner()
        child.mark_ready()

    def _embedded_url(self, deadline: float) -> str | None:
        answers = self.child.answers
        if not self.child.wait_until(lambda: not answers.empty(), deadline - time.monotonic()):
            return None
        try:
            line = answers.get_nowait()
            return str(json.loads(line)["url"]) if line else None
        except (ValueError, KeyError, TypeError):
            return None

    def _logged_url(self, deadline: float) -> str | None:
        loaded = self.child.loaded
        self.child.wait_until(lambda: loaded.listening is not None, deadline - time.monotonic())
        return loaded.listening

    def _raise_ended(self, deadline: float) -> None:
        late = self.child.alive and time.monotonic() > deadline
        outcome = self.child.wait(1.0)
        if outcome is not None:
            raise EngineEnded(outcome)
        self.child.kill()
        why = "the engine was not ready in time" if late else "the engine gave no address"
        raise EngineError(why)

    def _healthy(self) -> bool:
        try:
            return self._http.get(f"{self.url}/health", timeout=10.0).status_code == 200
        except httpx2.HTTPError:
            return False

    def _check_owner(self) -> None:
        """Raises EngineEnded when the address is another process's."""
        port = urlsplit(self.url).port
        if port is None or listens(self.child.pid, port) is not False:
            return
        self.child.kill(Ending.PORT_TAKEN, port=port)
        outcome = self.child.wait()
        assert outcome is not None  # noqa: S101 (waited for without a limit)
        raise EngineEnded(outcome, hint="use --port 0, or stop the other server")

    # -- requests -----------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        """JSON of a GET; raises RequestRefused, EngineEnded or EngineError."""
        return self._send("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """JSON of a POST; raises RequestRefused, EngineEnded or EngineError."""
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        try:
            answer = self._http.request(method, self.url + path, json=body)
        except httpx2.HTTPError as error:
            raise self._lost(error) from error
        return _json_of(answer)

    def stream(self, path: str, body: bytes) -> Iterator[bytes]:
        """The answer to a POST of JSON bytes, piece by piece; raises like `post`."""
        headers = {"content-type": "application/json"}
        try:
            with self._http.stream(
                "POST", self.url + path, content=body, headers=headers
            ) as answer:
                if answer.status_code != 200:
                    answer.read()
                    _json_of(answer)
                yield from answer.iter_bytes()
        except httpx2.HTTPError as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> EngineError:
        """What a broken connection means: mostly that the engine is gone."""
        outcome = self.child.wait(2.0)
        if outcome is not None:
            return EngineEnded(outcome)
        return EngineError("the engine does not answer: {why}", why=reason_of(error))

    def tokenize(
        self, text: str, *, add_special: bool = False, parse_special: bool = True
    ) -> list[int]:
        """Token ids of `text`, by the model's own tokenizer."""
        body = {"content": text, "add_special": add_special, "parse_special": parse_special}
        return [int(token) for token in self.post("/tokenize", body)["tokens"]]

    def complete(self, prompt: str | Sequence[int], n_predict: int = 16, **more: Any) -> Completion:
        """Generate at temperature 0 unless told otherwise, without reusing an earlier prompt.

        The engine always generates at least one token, and stops at the end of its context
        without an error: `truncated` tells.
        """
        body = {
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "n_predict": n_predict,
            "temperature": 0,
            "cache_prompt": False,
            **more,
        }
        raw = self.post("/completion", body)
        return Completion(
            text=str(raw.get("content", "")),
            prompt_tokens=int(raw.get("tokens_evaluated", 0)),
            tokens=int(raw.get("tokens_predicted", 0)),
            truncated=bool(raw.get("truncated", False)),
            raw=raw,
        )

    def embed(self, texts: Sequence[str] | Sequence[Sequence[int]]) -> list[list[float]]:
        """One pooled vector per text (or token list). Needs a launch with `embeddings`."""
        answer = self.post("/v1/embeddings", {"input": list(texts)})
        rows = sorted(answer["data"], key=lambda row: int(row["index"]))
        return [[float(value) for value in row["embedding"]] for row in rows]

    def props(self) -> dict[str, Any]:
        """`/props`: context per slot, slots, chat template, modalities."""
        return dict(self.get("/props"))

    def slots(self) -> list[dict[str, Any]]:
        """`/slots`: id, n_ctx, whether it speculates."""
        return list(self.get("/slots"))

    def missing_devices(self) -> tuple[str, ...]:
        """Devices and RPC servers that were asked for and that the engine does not use.

        It goes on without them, exits 0 and still says that all layers were offloaded.
        """
        used = [f"{device.name} {device.description}" for device in self.loaded.devices]
        return tuple(
            name for name in asked_devices(self.launch) if not any(name in text for text in used)
        )

    # -- the end ------------------------------------------------------------------------------

    @property
    def loaded(self) -> Loaded:
        """What its log says."""
        return self.child.loaded

    @property
    def log(self) -> Path | None:
        return self.child.log

    def stop(self) -> Outcome:
        """End it and return how it ended; its log then has the memory breakdown."""
        self._http.close()
        return self.child.stop()

    def close(self) -> None:
        """End it, whatever state it is in."""
        self._http.close()
        if self.child.alive:
            self.child.stop(grace_s=1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.close()


def asked_devices(launch: Launch) -> tuple[str, ...]:
    """Names of `-dev`, and endpoints of `--rpc`."""
    words = list(launch.extra)
    remote = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--rpc"]
    names = (name.strip() for name in (*launch.devices, *",".join(remote).split(",")))
    return tuple(name for name in names if name and name != "none")


def _json_of(answer: httpx2.Response) -> Any:
    try:
        body = answer.json()
    except ValueError as error:
        raise RequestRefused(answer.status_code, answer.text[:200], "not_json") from error
    if answer.status_code == 200:
        return body
    told = body.get("error", {}) if isinstance(body, dict) else {}
    message = told.get("message") if isinstance(told, dict) else None
    kind = told.get("type", "") if isinstance(told, dict) else ""
    raise RequestRefused(answer.status_code, str(message or body)[:500], str(kind))


def listens(pid: int, port: int) -> bool | None:
    """Does `pid`, or a process it started, listen on `port`? None if the system does not say."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            for member in family
            for connection in member.net_connections(kind="tcp")
        )
    except psutil.NoSuchProcess:
        return False
    except (psutil.Error, OSError):
        return None
