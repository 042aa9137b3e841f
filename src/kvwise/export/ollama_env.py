"""Variables of the Ollama service: what a Modelfile cannot say, for all its models.

Read off ollama v0.33 envconfig/config.go. That service starts llama-server and leaves it the
LLAMA_ARG_ variables; cache types among them act only while OLLAMA_KV_CACHE_TYPE is unset.
"""

from __future__ import annotations

import re

from kvwise.errors import SourceError
from kvwise.export import Written
from kvwise.export._words import lines_of
from kvwise.export.ollama import slots_of
from kvwise.export.settings import LeftOut, Settings, Told, experts_as_tensors, one_line
from kvwise.text import Phrase, phrase, template

ABOUT = template("variables of the Ollama service")
FILE = "ollama.env"
PLACE = template("Linux: `systemctl edit ollama.service` and EnvironmentFile=; macOS: launchctl "
                 "setenv; Windows: user variables. They hold for all models of the "
                 "service")  # fmt: skip

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)$")
_MODELFILE = (
    "model",
    "n_ctx",
    "n_gpu_layers",
    "n_batch",
    "n_ubatch",
    "load_mode",
)


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that holds no variables."""
    settings = experts_as_tensors(settings)
    told = Told(settings)
    launch = settings.launch
    told.say(*_MODELFILE)
    if launch.split_mode == "none":
        told.say("split_mode", "main_gpu")
    slots = slots_of(settings)
    pairs: dict[str, str | None] = {
        "OLLAMA_FLASH_ATTENTION": "1" if settings.flash else "0",
        "OLLAMA_NUM_PARALLEL": str(slots),
        "OLLAMA_CONTEXT_LENGTH": str(settings.n_ctx // slots),
    }
    notes: list[Phrase] = []
    told.say("flash_attn", "n_seq_max")
    if launch.type_k == launch.type_v:
        pairs |= {"OLLAMA_KV_CACHE_TYPE": launch.type_k,
                  "LLAMA_ARG_CACHE_TYPE_K": None, "LLAMA_ARG_CACHE_TYPE_V": None}  # fmt: skip
    else:
        pairs |= {"OLLAMA_KV_CACHE_TYPE": None, "LLAMA_ARG_CACHE_TYPE_K": launch.type_k,
                  "LLAMA_ARG_CACHE_TYPE_V": launch.type_v}  # fmt: skip
    told.say("type_k", "type_v")
    left: list[LeftOut] = []
    for each in told.rest():
        if each.option.env and each.option.memory:
            pairs[each.option.env] = each.words[-1] if each.words else str(int(each.positive))
        else:
            left.append(LeftOut(each.typed, phrase("the service has no variable for it")))
    if any(name.startswith("LLAMA_ARG_") and value for name, value in pairs.items()):
        notes.append(phrase("LLAMA_ARG_ variables reach the llama-server inside Ollama; its makers "
                            "do not document that"))  # fmt: skip
    return Written(_merged(old, pairs), tuple(left), tuple(notes))


def _merged(old: str | None, pairs: dict[str, str | None]) -> str:
    todo = {name: one_line(value, phrase("a file of variables"))
            for name, value in pairs.items() if value is not None}  # fmt: skip
    lines = []
    for number, line in enumerate(lines_of(old or ""), 1):
        match = _LINE.match(line)
        if line.strip() and not line.lstrip().startswith(("#", ";")) and not match:
            raise SourceError("line {number} is no NAME=value", number=number)
        if match is None or match[1] not in pairs:
            lines.append(line)
        elif match[1] in todo:
            lines.append(f"{match[1]}={todo.pop(match[1])}")
    return "\n".join([*lines, *(f"{name}={value}" for name, value in todo.items())]) + "\n"
