"""Engines on a Ray cluster: an actor per GPU, or per node without one; units go to whoever is free.

An actor plans for its own device and starts its own engine, in a child as everywhere. Chunks and
vectors stay with the process that asked: an actor or a node that is lost costs what it had in hand,
and that goes to another. The model must lie at the same path on every node.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvwise.engine.server import RequestRefused
from kvwise.errors import EngineError, UsageError
from kvwise.launch import Launch

_START_S = 900.0
_PING_S = 10.0
_STARTS = 3


@dataclass(frozen=True, slots=True)
class Spec:
    """What an actor needs to know; it goes over the network."""

    model: str
    launch: dict[str, Any]
    chunk_tokens: int
    engine: str | None
    threads: int
    normalize: int


class Engine:
    """Lives on a node: one engine and what it answers."""

    def __init__(self, spec: Spec) -> None:
        from kvwise import here  # noqa: PLC0415
        from kvwise.digest.fitting import settings  # noqa: PLC0415
        from kvwise.engine.find import find  # noqa: PLC0415
        from kvwise.engine.process import Limits  # noqa: PLC0415
        from kvwise.engine.server import SILENCE_S, Server  # noqa: PLC0415
        from kvwise.engine.settings import Run  # noqa: PLC0415
        from kvwise.opening import open_model  # noqa: PLC0415
        from kvwise.probe.host import host  # noqa: PLC0415

        engine = find(spec.engine)
        model = open_model(spec.model)
        launch = Launch.from_dict(spec.launch)
        made = settings(model, launch, spec.chunk_tokens, here.devices(engine), host())
        self._normalize = spec.normalize
        self._server = Server.start(
            spec.model, made.launch, engine=engine, run=Run(threads=spec.threads),
            limits=Limits(silence_s=SILENCE_S),
        )  # fmt: skip

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Of its server; a refusal comes back as a value, because errors lose their type."""
        try:
            return self._server.post(path, body)
        except RequestRefused as error:
            return {"refused": [error.code, error.message, error.type]}

    def embed(self, batch: Sequence[Sequence[int]]) -> Any:
        """A vector per token list."""
        from kvwise.digest.engines import embed  # noqa: PLC0415

        try:
            return embed(self._server, batch, self._normalize)
        except RequestRefused as error:
            return {"refused": [error.code, error.message, error.type]}

    def process(self) -> int:
        """The actor's process."""
        return os.getpid()


class OnRay:
    """One actor, as a station. `server` is how the tokenizer reaches it."""

    def __init__(self, ray: Any, spec: Spec, node: str, gpus: int) -> None:
        self._ray, self._spec, self._node, self._gpus = ray, spec, node, gpus
        self._starts = 0
        self.name = f"ray node {node[:8]}"
        self._actor = self._start()
        self.server = self

    def _start(self) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

        self._starts += 1
        options = {
            "num_cpus": 0,  # actors that hold every CPU would block everything else
            "num_gpus": self._gpus,
            "max_concurrency": 4,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(self._node, soft=False),
        }
        actor = self._ray.remote(**options)(Engine).remote(self._spec)
        self._get(actor.process.remote(), _START_S)
        return actor

    def _get(self, promise: Any, seconds: float | None = None) -> Any:
        try:
            answer = self._ray.get(promise, timeout=seconds)
        except self._ray.exceptions.RayTaskError as error:
            raise EngineError(
                "the engine of {name} failed: {why}", name=self.name, why=_last_line(error)
            ) from error
        except self._ray.exceptions.RayError as error:
            raise EngineError(
                "{name} is lost: {why}", name=self.name, why=_last_line(error)
            ) from error
        if isinstance(answer, dict) and "refused" in answer:
            raise RequestRefused(*answer["refused"])
        return answer

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._get(self._actor.post.remote(path, body))

    def embed(self, batch: Sequence[Sequence[int]]) -> list[bytes]:
        vectors: list[bytes] = self._get(self._actor.embed.remote([list(ids) for ids in batch]))
        return vectors

    def revive(self) -> bool:
        """The same actor if it lives, else a new one on the same node while that lives."""
        try:
            self._get(self._actor.process.remote(), _PING_S)
        except EngineError:
            alive = any(
                node["Alive"] and node["NodeID"] == self._node for node in self._ray.nodes()
            )
            if not alive or self._starts >= _STARTS:
                return False
            self._actor = self._start()
        return True

    def close(self) -> None:
        self._ray.kill(self._actor)


def stations(address: str, spec: Spec) -> list[OnRay]:
    """One per GPU of the cluster, or per node where there is none. `address` empty = the cluster
    that runs here, else a new one of this machine alone. Raises UsageError, EngineError."""
    ray = _ray(address)
    found = []
    for node in sorted(ray.nodes(), key=lambda node: str(node["NodeID"])):
        if not node["Alive"]:
            continue
        gpus = int(node["Resources"].get("GPU", 0))
        found += [OnRay(ray, spec, str(node["NodeID"]), int(gpus > 0)) for _ in range(max(1, gpus))]
    if not found:
        raise EngineError("the Ray cluster has no node that lives")
    return found


def _ray(address: str) -> Any:
    """A connection. Its memory monitor is off: an engine fills memory on purpose."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
    try:
        import ray  # noqa: PLC0415
    except ImportError:
        raise UsageError("--on ray needs Ray", hint="pip install 'kvwise[cluster]'") from None
    if ray.is_initialized():
        return ray
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            try:
                ray.init(address="auto", **quiet)
            except ConnectionError:
                ray.init(include_dashboard=False, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(
            "no Ray cluster at {address}: {why}", address=address or "auto", why=_last_line(error)
        ) from error
    return ray


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
