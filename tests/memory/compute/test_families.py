"""The index of graphs says where each one really is."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

from kvwise.memory.compute import families


def test_the_index_names_every_row_once() -> None:
    found: dict[str, str] = {}
    drafts: dict[str, str] = {}
    for module in iter_modules(families.__path__):
        rows = getattr(import_module(f"{families.__name__}.{module.name}"), "ROWS", {})
        if module.name in families._DRAFTS:
            assert not set(rows) & set(drafts), module.name
            drafts |= dict.fromkeys(rows, module.name)
            continue
        assert not set(rows) & set(found), module.name
        found |= dict.fromkeys(rows, module.name)
    assert dict(families._HOMES) == found
    assert dict(families._MTP_HOMES) == drafts


def test_lookups() -> None:
    dense = import_module("kvwise.memory.compute.families.dense")
    assert families.BUILDERS["llama"] is dense.ROWS["llama"]
    assert families.BUILDERS.get("nothing") is None
    assert families.DRAFTS["glm4moe"] is not families.BUILDERS["glm4moe"]
    assert families.DRAFTS["llama"] is families.BUILDERS["llama"]


def test_only_what_is_asked_for_is_loaded() -> None:
    code = (
        "import sys; from kvwise.memory.compute.families import BUILDERS; BUILDERS['rwkv7']; "
        "print(any(name.endswith('families.encoders') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
