"""A line of Python that loads a model with llama-cpp-python."""

from __future__ import annotations

from kvwise.export import Written, _block
from kvwise.export import llama_cpp_python as server
from kvwise.export.settings import Settings
from kvwise.text import template

ABOUT = template("Python code for llama-cpp-python")
FILE = "load.py"
PLACE = template("paste it, or import `llm` from {file}")

_HEAD = "from llama_cpp import Llama\n\n"
_TYPES = ("type_k", "type_v")


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that is not kvwise's, UsageError without a file's path."""
    values, left = server.arguments(settings)
    launch = settings.launch
    lines = [f"    model_path={settings.file!r},"]
    for key, value in values.items():
        comment = f"  # {getattr(launch, key)}" if key in _TYPES else ""
        lines.append(f"    {key}={value!r},{comment}")
    block = "\n".join(["llm = Llama(", *lines, ")"]) + "\n"
    return Written(_block.merge(old, block, settings.name, comment="#", head=_HEAD), left)
