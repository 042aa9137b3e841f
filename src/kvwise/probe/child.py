"""The probing child: one task with one driver, told line by line; started by `ask`, not imported.

A driver can crash, hang or end the process in any call, so every phase is written before it
begins and every figure as soon as it is known; only a last line `done` means success. What a
driver prints goes nowhere. The child ends when its stdin does, even while a driver's call hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from kvwise.probe.library import DriverError, Missing
from kvwise.probe.measure import Terms, measure

ORPHANED = 3
"""Exit code of a child whose parent is gone."""


def main() -> None:
    """Read the request, do it, end without running the drivers' own endings."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _be_the_first_to_go()
    speaker = _Speaker(out)
    try:
        _TASKS[request["task"]](request, speaker)
        speaker(done=True)
    except Missing:
        speaker(missing=True)
    except DriverError as error:
        speaker(failed=True, call=error.call, code=error.code, text=error.text)
    except Exception as error:  # noqa: BLE001  (told to the parent, which words it)
        speaker(broken=True, error=f"{type(error).__name__}: {error}"[:300])
    os._exit(0)


class _Speaker:
    """Writes one JSON object a line, at once."""

    def __init__(self, out: Any) -> None:
        self._out = out

    def __call__(self, **fields: object) -> None:
        self._out.write(json.dumps(fields) + "\n")
        self._out.flush()


def _list(request: dict[str, Any], say: _Speaker) -> None:
    """Start the driver and tell its devices."""
    driver = _driver(request, say)
    say(phase="list")
    say(devices=driver.devices())


def _ask(request: dict[str, Any], say: _Speaker) -> None:
    """Open a device for its free memory; take nothing."""
    card = _card(request, say)
    say(phase="memory")
    free, total = card.memory()
    say(free_bytes=min(free, total), total_bytes=total)
    say(phase="end")
    card.close()


def _measure(request: dict[str, Any], say: _Speaker) -> None:
    """Take a device's memory, touch it, give it back."""
    card = _card(request, say)
    ceiling, witnesses = _windows(request, say)
    if request["ceiling"] is not None:
        ceiling = min(request["ceiling"], request["ceiling"] if ceiling is None else ceiling)
    terms = Terms(
        margin=request["margin"],
        ceiling=ceiling,
        seconds=request["seconds"],
        judge_spill=request["judge_spill"],
        bus=request["bus"],
        witnesses=witnesses,
    )
    measure(card, terms, say)
    say(phase="end")
    card.close()


def _nvml(request: dict[str, Any], say: _Speaker) -> None:
    from kvwise.probe.nvml import Nvml  # noqa: PLC0415  (this task only)

    say(phase="load")
    library = Nvml(request.get("library"))
    say(phase="list")
    say(devices=library.cards())


_TASKS = {"list": _list, "ask": _ask, "measure": _measure, "nvml": _nvml}


def _driver(request: dict[str, Any], say: _Speaker) -> Any:
    say(phase="load")
    backend = import_module(f"kvwise.probe.backends.{request['backend']}")
    say(phase="init")
    return backend.open_driver(request.get("library"))


def _card(request: dict[str, Any], say: _Speaker) -> Any:
    """The device of the request; what the context takes is read from NVML where it is there."""
    driver = _driver(request, say)
    say(phase="list")
    found = driver.devices()[request["index"]]
    if (found.get("uuid", ""), found.get("pci", "")) != (request["uuid"], request["pci"]):
        raise DriverError("list", 0, "moved")
    before = _nvml_free(request)
    say(phase="context")
    card = driver.open(request["index"])
    after = _nvml_free(request)
    if before is not None and after is not None:
        say(context_bytes=max(0, before - after))
    return card


def _nvml_free(request: dict[str, Any]) -> int | None:
    """Free bytes of the card for everybody, where NVML answered in a child of its own before."""
    if not request.get("nvml"):
        return None
    from kvwise.probe.nvml import Nvml  # noqa: PLC0415

    with contextlib.suppress(Missing, DriverError):
        return Nvml(request["nvml"] if isinstance(request["nvml"], str) else None).free(
            request["pci"]
        )
    return None


Witness = Callable[[], int | None]


def _windows(request: dict[str, Any], say: _Speaker) -> tuple[int | None, list[Witness]]:
    """What Windows grants this process of the card (None = not told), and who counts what it moves
    to shared memory; nothing outside Windows."""
    if not request["windows"]:
        return None, []
    from kvwise.probe.dxgi import Adapter  # noqa: PLC0415
    from kvwise.probe.pdh import SharedUsage  # noqa: PLC0415

    luid, room, witnesses = request["luid"], None, []
    say(phase="budget")
    with contextlib.suppress(Missing, DriverError):
        adapter = Adapter(luid, request.get("dxgi"), name=request["name"])
        local, luid = adapter.local(), adapter.luid
        shared = adapter.shared()
        say(
            note="windows_budget",
            local_bytes=local.budget_bytes,
            used_bytes=local.usage_bytes,
            shared_bytes=shared.budget_bytes,
        )
        room = max(0, local.budget_bytes - local.usage_bytes - request["margin"])
        witnesses.append(_told_by(lambda: adapter.shared().usage_bytes))
        say(note="dxgi_fakes")
    say(phase="count")
    with contextlib.suppress(Missing, DriverError):
        if luid is not None:
            counter = SharedUsage(luid, request.get("pdh"))
            counter.bytes_of()
            witnesses.append(_told_by(counter.bytes_of))
            say(note="pdh_fakes")
    if room is None:
        say(note="no_budget")
    return room, witnesses


def _told_by(count: Callable[[], int]) -> Witness:
    """A witness that has nothing to say when its library refuses."""

    def witness() -> int | None:
        with contextlib.suppress(DriverError):
            return count()
        return None

    return witness


def _end_with_parent() -> None:
    """Nobody writes to our stdin: it ends when the parent does."""
    os.read(0, 1)
    os._exit(ORPHANED)


def _be_the_first_to_go() -> None:
    """When the machine runs out of memory because of us, the kernel takes us."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    if sys.platform != "win32":
        import resource  # noqa: PLC0415  (not on Windows)

        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
