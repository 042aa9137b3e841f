"""Which program wrote a log, and where that program keeps what the engine itself said.

For logs that say that it failed and not why: most programs around llama.cpp show one sentence and
keep the engine's own lines elsewhere. Where: their documentation and sources of August 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import Remedy
from kvwise.diagnose.rules.asking import remedy


class Program(NamedTuple):
    """A program: words of its logs, and how to see what its engine said."""

    name: str
    marks: re.Pattern[str]
    where: tuple[Remedy, ...]


def _row(name: str, marks: str, *where: Remedy) -> Program:
    return Program(name, re.compile(marks), where)


PROGRAMS: tuple[Program, ...] = (  # those that run another of these stand before it
    _row(
        "LM Studio",
        r"\[LMS\w+\]|\[LM ?Studio\]|LM.?Studio|lmstudio|\U0001f972|\.lmstudio|Channel Error",
        remedy(
            "LM Studio: its developer log has the engine's lines; stream it while the model loads",
            "lms log stream",
        ),
        remedy("LM Studio keeps them in ~/.lmstudio/server-logs, and its own in main.log"),
    ),
    _row(
        "Docker Model Runner",
        r"docker model |unable to load runner|model-runner|inference-engine-llama",
        remedy("Docker Model Runner: read the runner's log", "docker model logs"),
    ),
    _row(
        "Jan",
        r"app_lib::|LlamacppError|LLAMA_CPP_PROCESS_ERROR|MODEL_LOAD_FAILED|\bJan(?:Models)?\b|cortex",
        remedy("Jan: the engine's first error is in app.log (Settings, General, App Logs)"),
    ),
    _row(
        "LocalAI",
        r"BackendLoader|internal loader|GRPC\(|rpc error: code|local-?ai|"
        r"\[llama-cpp\w*\] (?:Fails|Attempting)",
        remedy(
            "LocalAI: start it with its debug log and read the lines marked stderr of the backend",
            "DEBUG=true",
        ),
    ),
    _row(
        "Lemonade",
        r"\((?:LlamaCpp|ProcessManager|WrappedServer|Process|Router)\)|lemonade",
        remedy(
            "Lemonade: start the server with its debug log and read what llama-server said",
            "lemonade-server serve --log-level debug",
        ),
    ),
    _row(
        "RamaLama",
        r"ramalama",
        remedy("RamaLama: show what runs in the container", "ramalama --debug serve MODEL"),
    ),
    _row(
        "llama-swap",
        r"\[llama-swap\]|llama-swap|upstream command|src'?: 'llama-swap",
        remedy(
            "llama-swap: the engine's lines are in its own log of the upstream",
            "curl http://HOST:PORT/logs",
        ),
    ),
    _row(
        "Ollama",
        r"\bsource=\w+\.go:\d+|ollama|\[GIN\]|runner process has terminated|model failed to load",
        remedy(
            "Ollama: the reason is in its server.log, lines before this one (Linux: journalctl; "
            "macOS: ~/.ollama/logs/server.log; Windows: %LOCALAPPDATA%\\Ollama\\server.log)",
            "journalctl -u ollama --no-pager",
        ),
        remedy("Ollama: start it so that it says more", "OLLAMA_DEBUG=1"),
    ),
    _row(
        "text-generation-webui",
        r"Error loading the model with llama\.cpp|text-generation-webui|textgen|"
        r"modules[/\\]models\.py",
        remedy(
            "text-generation-webui: the engine's lines are in the terminal that started it, above "
            "this one",
            "--verbose",
        ),
    ),
    _row(
        "KoboldCpp",
        r"[Kk]obold[Cc]pp|kcpp|Could not load text model",
        remedy("KoboldCpp: start it from a terminal and let it say more", "--debugmode"),
    ),
    _row(
        "LLamaSharp",
        r"LLama\.(?:Native|Exceptions|LLama)|LLamaSharp",
        remedy(
            "LLamaSharp: let it log what the library says before the first call",
            "NativeLibraryConfig.All.WithLogCallback(...)",
        ),
    ),
    _row(
        "node-llama-cpp",
        r"node-llama-cpp|InsufficientMemoryError|getLlama",
        remedy("node-llama-cpp: let it log what the library says", 'getLlama({logLevel: "debug"})'),
    ),
    _row(
        "a mobile app",
        r"llama\.rn|RNLLAMA|RNLlama|\bI/flutter\b|LlamaException|initLlama|"
        r"Context initialization failed",
        remedy(
            "on Android the engine's lines are in logcat, on iOS in the console of Xcode",
            "adb logcat",
        ),
    ),
    _row(
        "llama-cpp-python",
        r"\bllama_cpp[./\\]|llama-cpp-python|LlamaCpp\b|Failed to load model from file|"
        r"ValueError: Failed to create llama_context",
        remedy("llama-cpp-python: the engine says why when it may", "Llama(..., verbose=True)"),
    ),
    _row(
        "systemd",
        r"systemd\[\d+\]|\.service: ",
        remedy("systemd: read what the service wrote before it ended", "journalctl -e -u UNIT"),
    ),
    _row(
        "a container",
        r"docker|container|kubectl|CrashLoopBackOff|Exit Code:|exited with code",
        remedy("the container's own log has the engine's lines", "docker logs CONTAINER"),
    ),
)


def program_of(case: Case) -> Program | None:
    """The program that speaks in the lines that matter, or in the last ones of the log."""
    texts = [each.text for kept in case.seen.values() for each in kept[:4]]
    texts += [text for _, text in (*case.said.suspects, *case.said.tail)]
    return _first(texts)


def where_to_look(case: Case) -> tuple[Remedy, ...]:
    """How to see what the engine itself said; () if no program is known by its words."""
    program = program_of(case)
    return program.where if program else ()


def _first(texts: Iterable[str]) -> Program | None:
    whole = "\n".join(texts)
    return next((each for each in PROGRAMS if each.marks.search(whole)), None)
