"""A Launch as an engine takes it: argv of a llama-server, or attributes of the embedded one.

A measured start says everything aloud: `--fit off`, slots, batches, types, so that no default of
some other build and no variable of the user's shell can change what is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kvwise.engine.find import Engine
from kvwise.errors import UsageError
from kvwise.gguf.types import CACHE_TYPES
from kvwise.launch import Launch
from kvwise.options import OPTIONS, to_argv

VERBOSITY = 4
"""Memory lines need it (3 prints none)."""
MAX_CTX = 100_000_000
"""A context of 2e9 takes 30 s and all memory of the host, then SIGKILL without a word; 1e8 is
refused cleanly. Source: per-cell bookkeeping of llama-kv-cache.cpp; measured on b10605, b11549."""

_ALOUD = (
    ("n_ctx", "-c"), ("n_batch", "-b"), ("n_ubatch", "-ub"), ("flash_attn", "-fa"),
    ("type_k", "-ctk"), ("type_v", "-ctv"), ("n_seq_max", "-np"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """How to run a launch: what is no setting of the model. `threads` 0 = the engine's choice."""

    port: int = 0
    host: str = "127.0.0.1"
    threads: int = 0
    warmup: bool = True
    exact: bool = True  # --fit off, no prompt cache in host memory
    checkpoints: bool = True  # False: no batch is cut so that a checkpoint can be made there
    special: tuple[str, ...] = ()  # more flags of a binary, before all others


def check(launch: Launch) -> None:
    """Refuse what an engine would answer with a crash instead of an error; raises UsageError."""
    for flag, kind in (
        ("-ctk", launch.type_k), ("-ctv", launch.type_v),
        ("-ctkd", launch.draft_type_k), ("-ctvd", launch.draft_type_v),
    ):  # fmt: skip
        if kind not in CACHE_TYPES:  # the embedded engine takes i32 and dies of SIGSEGV
            raise UsageError(
                "{flag} {type}: no cache type", flag=flag, type=kind, known=" ".join(CACHE_TYPES),
                hint="one of {known}",
            )  # fmt: skip
    if launch.n_ctx > MAX_CTX:
        raise UsageError(
            "-c {n_ctx}: no engine survives a context of more than {limit}",
            n_ctx=launch.n_ctx, limit=MAX_CTX,
        )  # fmt: skip
    if launch.n_ctx < 0 or launch.n_seq_max < 1 or launch.n_batch < 1 or launch.n_ubatch < 1:
        raise UsageError("-c, -np, -b and -ub must be positive")
    if launch.model_draft and not launch.spec_types:
        raise UsageError(
            "a draft model alone is loaded and never used",
            hint="add --spec-type draft-simple (or draft-eagle3, draft-mtp ...)",
        )


def server_argv(engine: Engine, model: str, launch: Launch, run: Run) -> list[str]:
    """The whole command line of a llama-server; raises UsageError for flags it does not know."""
    check(launch)
    launch = replace(launch, tool="llama-server", model=model, fit=launch.fit and not run.exact)
    words = to_argv(launch)
    said = _fields(words)
    for field, flag in _ALOUD:
        if field not in said and (field != "n_ctx" or launch.n_ctx):
            words += [flag, str(getattr(launch, field))]
    if launch.kv_unified and "kv_unified" not in said:
        words.append("-kvu")
    words += ["--host", run.host, "--port", str(run.port)]
    if "--verbosity" not in run.special:
        words += ["-lv", str(VERBOSITY)]
    if run.exact:
        words += _known(engine, ["--cache-ram", "0"])
    if not run.checkpoints:
        words += _known(engine, ["--ctx-checkpoints", "0"])
    if run.threads and not {"-t", "--threads"}.intersection(words):
        words += ["-t", str(run.threads)]
    if not run.warmup:
        words.append("--no-warmup")
    return [engine.path, *run.special, *for_build(engine, words)]  # -ot knows what --rpc named


def _fields(words: list[str]) -> set[str]:
    """Launch fields that some word of argv sets."""
    said = set(words)
    fields: set[str] = set()
    for option in OPTIONS:
        if said.intersection(option.spellings("llama-server")):
            fields.add(option.field)
            fields.update(name for name, _ in (*option.on, *option.off))
    return fields


def _known(engine: Engine, words: list[str]) -> list[str]:
    return words if engine.knows(words[0]) else []


def for_build(engine: Engine, words: list[str]) -> list[str]:
    """The words as this build spells them; leaves out what it cannot be told to switch off."""
    out: list[str] = []
    values = iter(words)
    for word in values:
        if engine.knows(word) or not word.startswith("-") or _number(word):
            out.append(word)
        elif word in ("-lm", "--load-mode"):  # since 2026; before, two flags
            out += _OLD_LOAD_MODES.get(next(values), [])
        elif word in ("-fit", "--fit", "-lv", "--verbosity"):
            next(values)  # builds without automatic fitting fit nothing
        elif word in ("-kvu", "--kv-unified"):
            continue  # builds before streams had only the unified cache
        else:
            raise UsageError(
                "{engine} does not know {flag}", engine=engine.name, flag=word,
                hint="leave it out, or use a newer llama.cpp",
            )  # fmt: skip
    return out


_OLD_LOAD_MODES = {"none": ["--no-mmap"], "mmap": [], "mlock": ["--no-mmap", "--mlock"],
                   "mmap+mlock": ["--mlock"]}  # fmt: skip


def _number(word: str) -> bool:
    return word[1:].replace(".", "", 1).isdigit()


_ATTRIBUTES = {
    "-tb": ("cpuparams_batch.n_threads",),
    "--threads-batch": ("cpuparams_batch.n_threads",),
    "--poll": ("cpuparams.poll", "cpuparams_batch.poll"),
    "--poll-batch": ("cpuparams_batch.poll",),
}
"""Flags of a server that change no byte -> attributes of the embedded engine."""


def embedded_spec(model: str, launch: Launch, run: Run) -> dict[str, Any]:
    """What the embedded engine's child is told (as JSON). Raises UsageError for what it lacks."""
    check(launch)
    if launch.devices:
        raise UsageError(
            "the embedded engine cannot be told which devices to use",
            hint="use a llama-server: --engine PATH",
        )
    threads, warmup = run.threads, run.warmup
    more: dict[str, Any] = {}
    words = iter(launch.extra)
    for word in words:
        if word in ("-t", "--threads"):
            threads = int(next(words, "0"))
        elif word == "--no-warmup":
            warmup = False
        elif word in _ATTRIBUTES:
            more |= dict.fromkeys(_ATTRIBUTES[word], int(next(words, "0")))
        else:
            raise UsageError(
                "the embedded engine cannot be given {flag}", flag=word,
                hint="use a llama-server: --engine PATH",
            )  # fmt: skip
    return {
        "model": model,
        "launch": replace(launch, model=model, extra=()).as_dict(),
        "port": run.port,
        "host": run.host,
        "threads": threads,
        "warmup": warmup,
        "exact": run.exact,
        "checkpoints": run.checkpoints,
        "verbosity": VERBOSITY,
        "more": more,
    }
