"""kvwise: what fits, how long a context, at what speed and quality, and why it crashed.

    import kvwise

    model = kvwise.open_model("model.gguf")  # header only
    launch = kvwise.Launch.parse(["-c", "8192", "-ctk", "q8_0"])  # llama.cpp's own flags
    gpu = kvwise.Device.of("RTX 4060")  # or kvwise.devices()
    ledger = kvwise.account(model, launch, [gpu])  # raises kvwise.Refused
    plan = kvwise.plan(model, [gpu], kvwise.Goal(prompt_tokens=3982))
    cause = kvwise.diagnose(open("server.log", "rb")).findings[0].cause

The names are loaded when they are first used, so that `import kvwise` costs nothing.
"""

from __future__ import annotations

from kvwise import _interrupt

_interrupt.at_once()  # before anything else is loaded; only in the program `kvwise` itself

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402

if TYPE_CHECKING:
    from kvwise.device import Device, Host
    from kvwise.diagnose.finding import Diagnosis
    from kvwise.diagnose.read import diagnose
    from kvwise.errors import (
        DoesNotFit,
        EngineError,
        HeaderError,
        Interrupted,
        KvwiseError,
        ModelError,
        Refused,
        SourceError,
        UsageError,
    )
    from kvwise.gguf.model import Model
    from kvwise.here import devices
    from kvwise.launch import Launch
    from kvwise.memory.account import account
    from kvwise.memory.ledger import Ledger
    from kvwise.opening import open_model
    from kvwise.plan.choose import Choice, Impossible, Plan, plan
    from kvwise.plan.goal import Goal

__version__ = "0.1.0"

__all__ = [
    "Choice",
    "Device",
    "Diagnosis",
    "DoesNotFit",
    "EngineError",
    "Goal",
    "HeaderError",
    "Host",
    "Impossible",
    "Interrupted",
    "KvwiseError",
    "Launch",
    "Ledger",
    "Model",
    "ModelError",
    "Plan",
    "Refused",
    "SourceError",
    "UsageError",
    "account",
    "devices",
    "diagnose",
    "open_model",
    "plan",
]

_HOME = {
    "Choice": "plan.choose",
    "Device": "device",
    "Diagnosis": "diagnose.finding",
    "DoesNotFit": "errors",
    "EngineError": "errors",
    "Goal": "plan.goal",
    "HeaderError": "errors",
    "Host": "device",
    "Impossible": "plan.choose",
    "Interrupted": "errors",
    "KvwiseError": "errors",
    "Launch": "launch",
    "Ledger": "memory.ledger",
    "Model": "gguf.model",
    "ModelError": "errors",
    "Plan": "plan.choose",
    "Refused": "errors",
    "SourceError": "errors",
    "UsageError": "errors",
    "account": "memory.account",
    "devices": "here",
    "diagnose": "diagnose.read",
    "open_model": "opening",
    "plan": "plan.choose",
}

# `kvwise.plan` and `kvwise.diagnose` are functions and packages. Importing a package binds it here
# only the first time, so do that now and let the names go: the functions are what stays.
for _name in ("diagnose", "plan"):
    import_module(f"kvwise.{_name}")
    globals().pop(_name, None)


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'kvwise' has no attribute {name!r}")
    value = getattr(import_module(f"kvwise.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
