"""An Ollama Modelfile (`ollama create NAME -f Modelfile`).

Grammar read off ollama v0.33 parser/parser.go: a command, a blank, a value to the line's end; a
value that begins with `"` or `\"""` goes on until it is closed. Ollama starts llama-server with
num_ctx for each slot and num_batch for both batches (llm/llama_server.go).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvwise.errors import SourceError, UsageError
from kvwise.export import Written
from kvwise.export._words import lines_of
from kvwise.export.found import Found, flags, number
from kvwise.export.settings import Settings, Told, one_line
from kvwise.text import Phrase, phrase, template

ABOUT = template("a Modelfile of Ollama")
FILE = "Modelfile"
PLACE = template("run `ollama create {name} -f {file}`; cache types, flash attention and slots are "
                 "the service's: `kvwise export ollama-env`")  # fmt: skip

_DEFAULT_CONTEXT = 4096  # below 23 GiB of GPU memory
_NAMES = {"from", "license", "template", "system", "adapter", "renderer", "parser", "parameter",
          "message", "requires", "draft"}  # fmt: skip


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that is no Modelfile, UsageError for a model that Ollama cannot
    name."""
    told = Told(settings)
    launch = settings.launch
    told.say("model", "fit")
    slots = slots_of(settings)
    parameters = {"num_ctx": str(settings.n_ctx // slots)}
    told.say("n_ctx")
    if not settings.auto:
        parameters["num_gpu"] = str(settings.gpu_layers)
    told.say("n_gpu_layers")
    parameters["num_batch"] = str(launch.n_ubatch)
    told.say("n_ubatch")
    if launch.n_batch == launch.n_ubatch:
        told.say("n_batch")
    else:
        told.lacks("n_batch", phrase("num_batch is one value for -b and -ub; {ubatch} is written",
                                     ubatch=launch.n_ubatch))  # fmt: skip
    if not launch.mmap:
        parameters["use_mmap"] = "false"
        told.say("load_mode")
    if launch.split_mode == "none":  # what main_gpu makes of it
        parameters["main_gpu"] = str(launch.main_gpu)
        told.say("split_mode", "main_gpu")
    for flag, name in (("--threads", "num_thread"), ("--predict", "num_predict")):
        value = told.value(flag)
        if value is not None:
            parameters[name] = value
    service = phrase("it is the service's: kvwise export ollama-env writes it")
    for name in ("type_k", "type_v", "flash_attn", "n_seq_max"):
        if told.mentions(name) or (name == "n_seq_max" and slots > 1):
            told.lacks(name, service)
    left = told.left_out(phrase("a Modelfile has no word for it"))
    return Written(_merged(old, _from(settings), parameters), left, tuple(_service(settings)))


def _service(settings: Settings) -> Iterator[Phrase]:
    """That the numbers of a Modelfile rest on variables of the service, which it cannot set."""
    launch = settings.launch
    wanted = []
    if launch.type_k == launch.type_v != "f16":
        wanted.append(f"OLLAMA_KV_CACHE_TYPE={launch.type_k}")
    elif launch.type_k != launch.type_v:
        wanted += [f"LLAMA_ARG_CACHE_TYPE_K={launch.type_k}",
                   f"LLAMA_ARG_CACHE_TYPE_V={launch.type_v}"]  # fmt: skip
    if settings.flash and (wanted or launch.flash_attn != "auto"):
        wanted.append("OLLAMA_FLASH_ATTENTION=1")
    if wanted:
        yield phrase(
            "num_ctx {tokens:,} was planned with {variables}: it may not fit while the Ollama "
            "service runs without them (`kvwise export ollama-env` writes them)",
            tokens=settings.n_ctx // slots_of(settings), variables=" ".join(wanted),
        )  # fmt: skip


def slots_of(settings: Settings) -> int:
    """Slots of the service: one where llama-server's four are only its own default."""
    automatic = settings.launch.n_seq_max == 4 and settings.launch.kv_unified
    return 1 if automatic else max(1, settings.launch.n_seq_max)


def _from(settings: Settings) -> str:
    kind, _, rest = settings.source.partition(":")
    if kind == "ollama" and rest:
        return rest
    model = settings.launch.model
    if model.startswith("hf:"):
        repo, _, file = model.removeprefix("hf:").partition(":")
        if file.lower().endswith(".gguf"):
            raise UsageError("Ollama names a model on the Hub by its quantization, not by its file",
                             hint="give it as hf:{repo}:Q4_K_M", repo=repo)  # fmt: skip
        return f"hf.co/{repo}" + (f":{file}" if file else "")
    path = one_line(settings.file, phrase("a Modelfile"))
    if path != path.strip() or path.startswith('"'):
        raise UsageError("a Modelfile cannot name the file {path!r}", path=path)
    return path if re.match(r"[/~.\\]|[A-Za-z]:", path) else f"./{path}"


def _statements(text: str) -> Iterator[tuple[int, int, str, str]]:
    """(first line, line after it, command, value) of a Modelfile. Raises SourceError."""
    lines = lines_of(text)
    at = 0
    while at < len(lines):
        begin, line = at, lines[at].strip()
        at += 1
        if not line or line.startswith("#"):
            continue
        name, _, value = line.replace("\t", " ").partition(" ")
        if name.lower() not in _NAMES or not value.strip():
            raise SourceError("line {number} is no command of a Modelfile", number=begin + 1)
        command, value = name.lower(), value.strip()
        first = ""
        if command in ("message", "parameter"):
            first, _, value = value.partition(" ")
        parts = [value]
        quote = '"""' if value.startswith('"""') else '"' if value.startswith('"') else ""
        closed = not _open(value)
        while not closed and at < len(lines):
            parts.append(lines[at])
            closed = lines[at].rstrip().endswith(quote)
            at += 1
        if not closed:
            raise SourceError("line {number} begins a quotation that never ends", number=begin + 1)
        value = "\n".join(parts)
        yield begin, at, command, f"{first} {value.strip()}".strip()


def _open(value: str) -> bool:
    value = value.strip()
    if value.startswith('"""'):
        return not (len(value) >= 6 and value.endswith('"""'))
    return value.startswith('"') and not (len(value) >= 2 and value.endswith('"'))


def _unquoted(value: str) -> str:
    for quote in ('"""', '"'):
        if len(value) >= 2 * len(quote) and value.startswith(quote) and value.endswith(quote):
            return value[len(quote) : -len(quote)]
    return value


def _merged(old: str | None, model: str, parameters: dict[str, str]) -> str:
    lines = lines_of(old or "")
    replaced: dict[int, list[str]] = {}
    last = 0
    todo = dict(parameters)
    has_from = False
    for begin, end, command, value in _statements(old or ""):
        if command == "from":
            replaced |= {at: [] for at in range(begin, end)}
            replaced[begin] = [] if has_from else [f"FROM {model}"]
            has_from, last = True, end
        elif command == "parameter":
            last = end
            key = value.split(maxsplit=1)[0]
            if key in parameters:
                replaced |= {at: [] for at in range(begin, end)}
                replaced[begin] = [f"PARAMETER {key} {todo.pop(key)}"] if key in todo else []
    new = [] if has_from else [f"FROM {model}"]
    added = [f"PARAMETER {key} {value}" for key, value in todo.items()]
    head = [line for at in range(last) for line in replaced.get(at, [lines[at]])]
    tail = [line for at in range(last, len(lines)) for line in replaced.get(at, [lines[at]])]
    return "\n".join([*new, *head, *added, *tail]) + "\n"


def is_mine(name: str, text: str) -> bool:
    """A file with FROM in it."""
    return "modelfile" in name.lower() or bool(
        re.match(r"(?:\s*#[^\n]*\n|\s*\n)*\s*FROM\s", text, re.IGNORECASE)
    )


def read(text: str) -> list[Found]:
    """What Ollama would start llama-server with, for one slot. Raises SourceError."""
    model, values = "", {}
    for _, _, command, value in _statements(text):
        if command == "from":
            model = _unquoted(value)
        elif command == "parameter":
            key, _, rest = value.partition(" ")
            values[key] = _unquoted(rest.strip())
    if not model:
        raise SourceError("this Modelfile has no FROM")
    return [found_of(model, values)]


def found_of(model: str, values: dict[str, str], *, slots: int = 1) -> Found:
    """A launch by Ollama of a model with parameters. Raises SourceError for odd ones."""
    unread = []
    context = number(values, "num_ctx")
    if context is None:
        context = _DEFAULT_CONTEXT
        unread.append(phrase("without num_ctx Ollama takes {context:,} tokens below 23 GiB of GPU "
                             "memory, more above", context=context))  # fmt: skip
    batch = number(values, "num_batch", 512)
    mmap = values.get("use_mmap", "true").lower() not in ("false", "0", "f")
    layers = number(values, "num_gpu")
    words = flags(
        ("-m", _reference(model)), ("-c", context * slots), ("-np", slots), ("-b", batch),
        ("-ub", batch), ("-ngl", layers if layers is not None and layers >= 0 else None),
        ("-lm", None if mmap else "none"), ("--threads", number(values, "num_thread")),
        ("-sm", "none" if "main_gpu" in values else None),
        ("-mg", number(values, "main_gpu")),
    )  # fmt: skip
    return Found(words, "", "ollama", unread=tuple(unread))


def _reference(model: str) -> str:
    """MODEL for what stands after FROM: a file, or a name of Ollama's store."""
    if re.match(r"[/~.\\]|[A-Za-z]:[\\/]", model) or model.lower().endswith(".gguf"):
        return model
    for host in ("hf.co/", "huggingface.co/"):
        if model.startswith(host):
            return "hf:" + model.removeprefix(host)
    return f"ollama:{model}"
