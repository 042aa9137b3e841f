"""The extension that measures and plans whenever text-generation-webui loads a model.

Read off oobabooga/text-generation-webui v4.7.3: there is no hook for loading a model, and
extensions are set up after the first one; so the script replaces LlamaServer._start_server for
later loads, and can be run by itself before the program starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from kvwise.errors import SourceError
from kvwise.export import Written
from kvwise.text import template

ABOUT = template("an extension of text-generation-webui that measures and plans at each load")
FILE = "script.py"
PLACE = template("user_data/extensions/kvwise/script.py; start text-generation-webui with "
                 "--extensions kvwise, or run the file itself with a model before")  # fmt: skip
SCRIPT = True
"""It needs no model: the options of a plan go into the script."""

_SOURCE = "text_generation_webui_hook.py"
_MINE = "kvwise in text-generation-webui"


def write_script(program: Sequence[str], options: Sequence[str], old: str | None) -> Written:
    """The script; `program` starts kvwise, `options` are those of a plan. Raises SourceError."""
    if old is not None and old.strip() and _MINE not in old:
        raise SourceError("the script was not written by kvwise", hint="give another --out")
    text = files("kvwise").joinpath("data", _SOURCE).read_text("utf-8")
    for name, value in (("KVWISE", program), ("OPTIONS", options)):
        line = f"{name}: list[str] = {list(value)!r}"
        begin = text.index(f"\n{name}: list[str] = ") + 1
        text = text[:begin] + line + text[text.index("\n", begin) :]
    return Written(text)
