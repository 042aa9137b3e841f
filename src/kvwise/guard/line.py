"""The engine's command line: the user's words untouched, and after them what kvwise chose.

The last mention of a flag wins in llama.cpp, so a step down is a few words more at the end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kvwise.engine.find import Engine
from kvwise.engine.settings import VERBOSITY, Run, check, embedded_spec, for_build
from kvwise.guard.embedded_flags import attributes
from kvwise.launch import Launch
from kvwise.options import asked, defaults, to_argv
from kvwise.plan.step import FLAGS

SECRETS = frozenset({"--api-key", "-hft", "--hf-token", "--api-key-file"})
_LOUDNESS = {"-lv", "--verbosity", "--log-verbosity", "-v", "--verbose", "--log-verbose",
             "--log-disable"}  # fmt: skip

_HOST, _PORT = "127.0.0.1", 8080  # llama-server's own

_AS_THEY_ARE = frozenset(
    {"tensor_split", "devices", "override_tensor", "draft_type_k", "draft_type_v",
     "draft_gpu_layers"}
)  # fmt: skip
"""Fields whose default needs no word, and has none."""

_SWITCHES = (
    ("kv_unified", True, ("-kvu",)),
    ("offload_kqv", False, ("-nkvo",)),
    ("embeddings", True, ("--embedding",)),
    ("fit", False, ("-fit", "off")),
)
CHOSEN = frozenset({field for field, *_ in (*FLAGS, *_SWITCHES)})
"""Launch fields that a plan or a step may set."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the server is asked to listen. `chosen`: the port is ours to change."""

    host: str = _HOST
    port: int = _PORT
    chosen: bool = True
    prefix: str = ""
    secure: bool = False
    shares: bool = False  # --reuse-port

    @property
    def socket(self) -> bool:
        """Is it a Unix socket instead of a port?"""
        return self.host.endswith(".sock")


def listen_of(launch: Launch, words: Sequence[str]) -> Listen:
    """What the user's flags and variables say about the address."""

    def last(flag: str, default: str = "") -> str:
        found = asked.values(launch, flag)
        return found[-1] if found else default

    def behind(*flags: str) -> str:
        at = [number for number, word in enumerate(words[:-1]) if word in flags]
        return words[at[-1] + 1] if at else ""

    host, port = last("--host") or behind("--host"), last("--port") or behind("--port")
    return Listen(
        host=host or _HOST,
        port=int(port) if port.isdigit() else _PORT,
        chosen=not port.isdigit(),
        prefix=(last("--api-prefix") or os.environ.get("LLAMA_ARG_API_PREFIX", "")).rstrip("/"),
        secure=bool(last("--ssl-cert-file")) and bool(last("--ssl-key-file")),
        shares=asked.has(launch, "--reuse-port"),
    )


@dataclass(frozen=True, slots=True)
class Given:
    """What stands on the user's line. `words` are llama.cpp's options as typed, `strangers` what
    kvwise does not know and passes on, `place` the model file, `fixed` the fields that were set;
    `planned` = kvwise chose the rest; `named` = the model stands alone, without a flag."""

    engine: Engine
    words: tuple[str, ...]
    strangers: tuple[str, ...]
    place: str
    base: Launch
    fixed: Collection[str]
    planned: bool
    named: bool = False

    @property
    def loud(self) -> bool:
        """Did the user say how much the engine shall print?"""
        return bool(_LOUDNESS.intersection((*self.words, *self.strangers)))

    def argv(self, launch: Launch, listen: Listen) -> list[str]:
        """The whole command for a launch; raises UsageError for what the engine cannot be told."""
        if self.engine.kind == "embedded":
            return self._embedded(launch, listen)
        check(replace(launch, model_draft=""))
        words = list(self.words)
        if self.named:
            words = [*_model(launch), *words]
        words += for_build(self.engine, self._chosen(launch))
        if listen.chosen and not listen.socket:
            words += ["--port", str(listen.port)]
        if not self.loud:
            words += for_build(self.engine, ["-lv", str(VERBOSITY)])
        return [self.engine.path, *words, *self.strangers]

    def _chosen(self, launch: Launch) -> list[str]:
        """Words for what differs from the user's own settings, or was never set by them."""
        words: list[str] = []
        for field, flag, write in FLAGS:
            value = getattr(launch, field)
            if self._must_say(field, launch):
                words += [flag, str(write(value))]
        for field, when, said in _SWITCHES:
            if getattr(launch, field) == when and self._must_say(field, launch):
                words += said
        if "-ncmoe" in words and not launch.n_cpu_moe:
            at = words.index("-ncmoe")
            del words[at : at + 2]
        mine = len(self.base.extra)  # a plan adds its own words behind the user's
        return [*words, *launch.extra[mine:]] if launch.extra[:mine] == self.base.extra else words

    def _must_say(self, field: str, launch: Launch) -> bool:
        value = getattr(launch, field)
        differs: bool = value != getattr(self.base, field)
        if field in _AS_THEY_ARE:
            return differs and bool(value or value == 0)
        return differs or (self.planned and field not in self.fixed)

    def _embedded(self, launch: Launch, listen: Listen) -> list[str]:
        more, rest = attributes(launch, self.strangers)
        run = Run(port=listen.port, host=listen.host, exact=False)
        spec = embedded_spec(self.place, replace(launch, extra=rest), run)
        spec["more"] |= more
        return [sys.executable, "-m", "kvwise.engine.embedded", json.dumps(spec)]


def _model(launch: Launch) -> list[str]:
    return to_argv(replace(defaults(launch.tool, launch.build), model=launch.model))


def without_secrets(argv: Sequence[str]) -> list[str]:
    """The same line for logs and messages, keys and tokens left out."""
    out: list[str] = []
    hide = False
    for word in argv:
        out.append("..." if hide else word)
        hide = word in SECRETS
    if len(out) == 4 and out[-1].startswith("{"):  # the embedded engine's spec
        spec = json.loads(out[-1])
        for name in ("api_keys", "hf_token"):
            if name in spec.get("more", {}):
                spec["more"][name] = "..."
        out[-1] = json.dumps(spec)
    return out
