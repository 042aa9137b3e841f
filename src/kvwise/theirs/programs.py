"""Programs that start llama.cpp, by the command lines that people have for them.

Each turns its words and variables into llama-server's. Their own defaults are written out, because
they are not llama.cpp's (sources: `export/koboldcpp.py`, `export/ollama.py`, `export/...`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from kvwise.errors import SourceError
from kvwise.export import koboldcpp, llama_cpp_python, ollama
from kvwise.export.found import Found, flags
from kvwise.options.row import BENCH, CLI, SERVER
from kvwise.text import phrase
from kvwise.theirs import docker

_LLAMA = {"llama-server": SERVER, "server": SERVER, "llama-cli": CLI, "llama": CLI, "main": CLI,
          "llama-bench": BENCH, "llama-run": CLI, "llama-mtmd-cli": CLI,
          "llama-completion": CLI}  # fmt: skip
_WRAPPERS = {"sudo", "nohup", "time", "env", "exec", "nice", "ionice", "stdbuf", "setsid", "start",
             "call", "chrt", "taskset", "numactl", "systemd-run", "caffeinate", "prime-run",
             "gamemoderun"}  # fmt: skip
_VALUED = {"nice": ("-n",), "sudo": ("-u", "-g"), "ionice": ("-c", "-n"), "taskset": ("-c",)}
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def understand(words: Sequence[str], environ: Mapping[str, str]) -> Found | None:
    """What a command asks llama.cpp for; None for a command that starts none of these programs."""
    for at in range(len(words)):
        if at and not _still_before(words, at):
            return None
        name = base(words[at])
        reader = _reader(name, words[at + 1 :])
        if reader:
            set_before = [match for each in words[:at] if (match := _ASSIGNED.fullmatch(each))]
            own = {match[1]: match[2] for match in set_before}
            found = reader(words[at], words[at + 1 :], {**environ, **own})
            return replace(found, wrapper=(*words[:at], *found.wrapper))
    return None


def base(word: str) -> str:
    """`C:\\llama\\llama-server.exe` -> `llama-server`."""
    name = re.split(r"[\\/]", word)[-1].lower()
    return re.sub(r"\.(exe|py|sh|appimage)$", "", name)


def _still_before(words: Sequence[str], at: int) -> bool:
    """Whether all words before this one only wrap the program that comes."""
    wrapper = ""
    skip = False
    for word in words[:at]:
        if skip:
            skip = False
        elif word in _VALUED.get(wrapper, ()):
            skip = True
        elif base(word) in _WRAPPERS or re.fullmatch(r"python[\d.]*|py", base(word)):
            wrapper = base(word)
        elif not (word.startswith(("-", "/")) or _ASSIGNED.fullmatch(word) or word.isdecimal()
                  or re.fullmatch("0x[0-9a-f]+", word) or word == ""):  # fmt: skip
            return False
    return True


Reader = Callable[[str, Sequence[str], Mapping[str, str]], Found]


def _reader(name: str, rest: Sequence[str]) -> Reader | None:
    if name in _LLAMA:
        return _llama
    if name.startswith("koboldcpp"):
        return _koboldcpp
    if name == "ollama":
        return _ollama
    if name in ("docker", "podman") and "run" in rest[:2]:
        return _docker
    if re.fullmatch(r"python[\d.]*|py", name) and list(rest[:2]) == ["-m", "llama_cpp.server"]:
        return _llama_cpp_python
    return None


def _llama(program: str, words: Sequence[str], environ: Mapping[str, str]) -> Found:
    tool = _LLAMA[base(program)]
    return Found(tuple(words), program=program, tool=tool, environ=_of_llama(environ),
                 wrapper=(program,))  # fmt: skip


def _of_llama(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith("LLAMA_ARG_")}


# -- KoboldCpp ----------------------------------------------------------------

_KOBOLD_ALIASES = {
    "ctx-size": "contextsize", "c": "contextsize", "gpu-layers": "gpulayers", "ngl": "gpulayers",
    "n-gpu-layers": "gpulayers", "blasbatchsize": "batchsize", "batch-size": "batchsize",
    "b": "batchsize", "continuous-batching": "parallelrequests", "contbatch": "parallelrequests",
    "model": "model_param", "m": "model_param", "t": "threads", "usecublas": "usecuda",
    "usehipblas": "usecuda", "ts": "tensor_split", "tensorsplit": "tensor_split",
}  # fmt: skip
_KOBOLD_LISTS = {"usecuda", "usevulkan", "tensor_split", "lora", "useclblast"}
_KOBOLD_VALUES = {"contextsize", "gpulayers", "batchsize", "quantkv", "parallelrequests",
                  "model_param", "threads", "moecpu", "overridetensors", "splitmode", "draftmodel",
                  "draftamount", "mmproj", "port", "host", "config"}  # fmt: skip


def _koboldcpp(program: str, words: Sequence[str], _: Mapping[str, str]) -> Found:
    values: dict[str, Any] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-"):
            values.setdefault("model_param", word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = _KOBOLD_ALIASES.get(name.lower(), name.lower())
        given = [value] if equals else []
        while not equals and at < len(words) and _belongs(name, given, words[at]):
            given.append(words[at])
            at += 1
        if name in _KOBOLD_LISTS:
            values[name] = given
        else:
            values[name] = given[0] if given else True
    if "config" in values:
        raise SourceError("the settings stand in {file}", file=str(values["config"]),
                          hint="give that file to --from")  # fmt: skip
    used = values.get("usecuda")
    if isinstance(used, list) and "lowvram" in used:
        values["lowvram"] = True
    return replace(koboldcpp.found_of(values), program=program)


def _belongs(name: str, given: Sequence[str], word: str) -> bool:
    if word.startswith("-") and not re.fullmatch(r"-\d+", word):
        return False
    if name in _KOBOLD_LISTS:
        return bool(re.fullmatch(r"[\d.]+|all|mmq|nommq|normal|lowvram|rowsplit", word))
    return not given and (name in _KOBOLD_VALUES or bool(re.fullmatch(r"-?[\d.]+", word)))


# -- Ollama -------------------------------------------------------------------


def _ollama(program: str, words: Sequence[str], environ: Mapping[str, str]) -> Found:
    """`ollama run NAME`, `ollama serve`: all in variables; `ollama runner` has flags."""
    if words[:1] and words[0] == "runner":
        inside = [word for word in words[1:] if word != "--ollama-engine"]
        batch = [value for word, value in pairwise(inside) if word == "--batch-size"]
        return Found((*inside, *flags(("-ub", batch[-1] if batch else None))), program=program)
    names = [word for word in words if not word.startswith("-")]
    model = names[1] if len(names) > 1 and names[0] in ("run", "show", "pull", "create") else ""
    values = {}
    if environ.get("OLLAMA_CONTEXT_LENGTH"):
        values["num_ctx"] = environ["OLLAMA_CONTEXT_LENGTH"]
    slots = environ.get("OLLAMA_NUM_PARALLEL", "1")
    count = int(slots) if slots.isdecimal() and len(slots) < 4 else 1
    found = ollama.found_of(model, values, slots=max(1, count))
    flash = {"1": "on", "true": "on", "0": "off", "false": "off"}.get(
        environ.get("OLLAMA_FLASH_ATTENTION", "").lower()
    )
    cache = environ.get("OLLAMA_KV_CACHE_TYPE")
    more = flags(("-fa", flash), ("-ctk", cache), ("-ctv", cache))
    words_ = found.words if model else found.words[2:]
    return replace(found, words=words_ + more, program=program, environ=_of_llama(environ))


# -- containers and Python ----------------------------------------------------


def _docker(program: str, words: Sequence[str], environ: Mapping[str, str]) -> Found:
    run = docker.parse(words[list(words).index("run") + 1 :])
    if "koboldcpp" in run.image or "ollama" in run.image:
        kind = _koboldcpp if "koboldcpp" in run.image else _ollama
        return replace(kind(program, run.words, {**environ, **run.environ}), program=program)
    flags_ = run.words
    if flags_ and (not flags_[0].startswith("-") or flags_[0] in ("--server", "--run")):
        # the full image names its tool first (llama.cpp .devops/tools.sh)
        flags_ = flags_[1:]
    moved = tuple(run.here(word) if word.startswith("/") else word for word in flags_)
    inside = {name: run.here(value) if value.startswith("/") else value
              for name, value in run.environ.items()}  # fmt: skip
    unread = () if run.image else (phrase("the image's name is missing"),)
    named = [value for word, value in pairwise(flags_) if word in ("-m", "--model")]
    tool = run.words[: len(run.words) - len(flags_)]
    return Found(moved, program=program, environ=_of_llama(inside), unread=unread,
                 wrapper=(program, "run", *run.before, *tool),
                 model_there=named[-1] if named else "")  # fmt: skip


def _llama_cpp_python(program: str, words: Sequence[str], environ: Mapping[str, str]) -> Found:
    values: dict[str, Any] = {}
    for at, word in enumerate(words[2:], 2):
        if word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            values[name] = value if equals else words[at + 1] if at + 1 < len(words) else ""
    for name, value in environ.items():
        values.setdefault(name.lower(), value)
    return replace(llama_cpp_python.found_of(values), program=program)
