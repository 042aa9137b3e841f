"""The whole machine: every backend is asked for its devices, then each device is measured.

Each question runs in a child of its own, one at a time: two probes of one card would take each
other's memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from kvwise.probe import backends
from kvwise.probe.ask import Answer, ask
from kvwise.probe.driver import driver_of
from kvwise.probe.host import host, limits
from kvwise.probe.measure import SMALLEST
from kvwise.probe.notes import Note
from kvwise.probe.report import DeviceReport, Report, environment
from kvwise.units import MIB

_DISPLAY_MARGIN, _PER_MILLE, _MARGIN = 256 * MIB, 30, 64 * MIB
_OTHERS = 512 * MIB  # what other computing programs may hold before a card counts as in use
_SEARCH_S = 40.0
_OF_A_CARD = ("others_bytes", "card_free_bytes")
_HIDES = "CUDA_VISIBLE_DEVICES"
_SHARES = {"failed": (7, 6, 4), "hung": (4,)}  # eighths to try when all could not be written
ENGINES = ("llama-server", "llama-cli", "llama-bench", "llama-run", "llama-perplexity", "koboldcpp",
           "ollama_llama_server", "lms", "vllm")  # fmt: skip
"""Programs that are likely to hold a model on a GPU."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What to find out.

    `quick`: nothing is taken. `full`: measure even what other programs use. `margin` bytes stay
    free on each device (None: by display). `only`: these backends. `libraries`: a driver's library
    by backend (also `nvml`, `dxgi`, `pdh`) instead of the one that the system finds. `patience`
    multiplies the time that a driver is given for an answer.
    """

    quick: bool = False
    full: bool = False
    margin: int | None = None
    only: tuple[str, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)
    patience: float = 1.0


def survey(wish: Wish, tell: Callable[[str], None] = lambda _device: None) -> Report:
    """Ask and measure everything; `tell` is given each device's name before it is measured."""
    busy = () if wish.quick or wish.full else running_engines()
    found: list[DeviceReport] = []
    failures: list[tuple[str, Note]] = []
    remarks: list[tuple[str, Note]] = []
    for name in wish.only or expected(wish.libraries):
        answer = _asked(wish, {"task": "list", "backend": name, "library": _given(wish, name)})
        if answer.done:
            backend = _Backend(name, wish, busy)
            found += backend.all(answer.devices, tell)
            remarks += [(name, note) for note in backend.remarks]
        elif answer.ending != "missing":
            failures += [(name, note) for note in answer.notes]
    return Report(
        time=datetime.now(UTC),
        system=sys.platform,
        devices=tuple(found),
        host=host(),
        host_limits=tuple(asdict(limit) for limit in limits()),
        failures=tuple(failures),
        environment=environment(),
        remarks=tuple(remarks),
        drivers={each.backend: driver_of(each.backend) for each in found},
    )


def expected(libraries: Iterable[str] = ()) -> list[str]:
    """The backends that can be there on this system, and those that a library is given for."""
    return [
        name
        for name in backends.names()
        if name in libraries
        or import_module(f"kvwise.probe.backends.{name}").expected(sys.platform)
    ]


def running_engines() -> tuple[str, ...]:
    """Names of running programs that are likely to hold a model on a GPU."""
    import psutil  # noqa: PLC0415  (not needed for a quick look)

    names = {str(process.info["name"] or "") for process in psutil.process_iter(["name"])}
    return tuple(sorted(each for each in names if each.lower().removesuffix(".exe") in ENGINES))


def _asked(wish: Wish, request: Mapping[str, Any]) -> Answer:
    return ask(request, patience=wish.patience)


def _given(wish: Wish, name: str) -> str | None:
    return wish.libraries.get(name)


class _Backend:
    """One backend's devices, from what their driver says to what can be had."""

    def __init__(self, name: str, wish: Wish, busy: tuple[str, ...]) -> None:
        self._name, self._wish, self._busy = name, wish, busy
        self._module = import_module(f"kvwise.probe.backends.{name}")
        self._stuck = False
        self._nvml: str | bool = False
        self.remarks: list[Note] = []

    def all(self, devices: list[dict[str, Any]], tell: Callable[[str], None]) -> list[DeviceReport]:
        """A report for each, in the engine's order."""
        hidden = os.environ.get(_HIDES)
        cards = {}
        if self._name == "cuda" and (devices or hidden is not None):
            cards = self._nvml_cards()
            seen = {facts.get("pci") for facts in devices}
            others = [pci for pci, card in cards.items() if pci not in seen and not card.get("mig")]
            if hidden is not None and others:
                said = {"variable": _HIDES, "value": hidden[:80]}
                self.remarks.append(Note("hidden", {"count": len(others), **said}))
        found = []
        for facts in devices:
            each = DeviceReport(name="GPU", backend=self._name).with_fields(facts)
            more = cards.get(each.pci, {})
            if more.get("mig"):  # these are the whole card's, and this is a slice of it
                more = {name: more[name] for name in more if name not in _OF_A_CARD}
            if "driver" in more:
                more = {**more, "driver": f"{each.driver} ({more['driver']})"}
            each = each.with_fields(more)
            each = replace(each, device=f"{self._module.PREFIX}{each.index}")
            tell(each.name)
            found.append(self._finished(self._figures(self._noted(each))))
        return found

    def _nvml_cards(self) -> dict[str, dict[str, Any]]:
        """NVIDIA's management facts by PCI address; a card that they hang on is left alone."""
        given = _given(self._wish, "nvml")
        answer = _asked(self._wish, {"task": "nvml", "backend": "nvml", "library": given})
        self._nvml = (given or True) if answer.done else False
        return {str(card.get("pci")): card for card in answer.devices}

    def _noted(self, each: DeviceReport) -> DeviceReport:
        """Remarks that follow from what the driver says."""
        if self._module.PROVEN == "fakes":
            each = each.noted("fakes", backend=self._name)
        elif not each.software:
            each = each.noted("software_only", backend=self._name)
        if each.mig:
            each = each.noted("mig")
        if each.compute_mode:
            each = each.noted("prohibited")
        if each.driver_model == "WDDM":
            each = each.noted("wsl" if sys.platform != "win32" else "fallback_policy")
        return each

    def _figures(self, each: DeviceReport) -> DeviceReport:
        """The figures of a device: measured, or only asked with the reason why."""
        margin = self._margin(each)
        each = replace(each, margin_bytes=margin)
        if self._name == "metal":
            return each.noted("metal_limit")
        why = self._why_not(each)
        if self._stuck:
            return replace(each.noted("stuck"), outcome="failed")
        if why:
            each = each.noted(why.code, **why.values)
            if each.free_bytes is None:
                return self._told(each, self._ask("ask", each), "asked")
            return each
        return self._measured(each)

    def _measured(self, each: DeviceReport) -> DeviceReport:
        """A device whose memory was taken; what cannot be written is not counted as memory.

        A driver may give what it cannot make resident (WSL2 says so at the first write only): then
        less is tried.
        """
        answer = self._ask("measure", each)
        first = self._told(each, answer, "measured")
        if first.written or not first.all_blocks_bytes:
            return first
        given = first.all_blocks_bytes
        for eighths in _SHARES.get(answer.ending, ()):
            if self._stuck:
                break
            again = self._told(each, self._ask("measure", each, given * eighths // 8), "measured")
            if again.written:
                again = replace(again, ceiling_bytes=first.ceiling_bytes)
                had = again.all_blocks_bytes or 0
                return again.noted("unwritten", given_bytes=given, written_bytes=had)
        return replace(first.noted("never_written", given_bytes=given), outcome="failed")

    def _why_not(self, each: DeviceReport) -> Note | None:
        """Why nothing is taken from a device."""
        others = each.others_bytes or 0
        reasons = (
            (self._wish.quick, Note("quick")),
            (each.unified, Note("unified")),
            (each.software and not _address_space_is_limited(), Note("software")),
            (bool(self._busy), Note("busy", {"names": ", ".join(self._busy)})),
            (others > _OTHERS and not self._wish.full, Note("others", {"others_bytes": others})),
        )
        return next((note for applies, note in reasons if applies), None)

    def _margin(self, each: DeviceReport) -> int:
        """Bytes that stay free: more where a display or Windows itself needs some."""
        if self._wish.margin is not None:
            return self._wish.margin
        if each.display or each.driver_model in ("WDDM", "MCDM"):
            return max(_DISPLAY_MARGIN, each.total_bytes * _PER_MILLE // 1000)
        return _MARGIN

    def _ask(self, task: str, each: DeviceReport, ceiling: int | None = None) -> Answer:
        if each.software:
            half = host().usable_bytes // 2
            ceiling = half if ceiling is None else min(half, ceiling)
        windows = each.driver_model in ("WDDM", "MCDM") and (
            sys.platform == "win32" or "dxgi" in self._wish.libraries
        )
        return _asked(
            self._wish,
            {
                "task": task,
                "backend": self._name,
                "library": _given(self._wish, self._name),
                "index": each.index,
                "uuid": each.uuid,
                "pci": each.pci,
                "windows": windows,
                "luid": each.luid,
                "name": each.name,
                "dxgi": _given(self._wish, "dxgi"),
                "pdh": _given(self._wish, "pdh"),
                "nvml": False if each.mig else self._nvml,
                "margin": each.margin_bytes,
                "ceiling": ceiling,
                "seconds": _SEARCH_S,
                "judge_spill": not (each.software or each.unified),
                "bus": each.bus_bytes_per_s or 0,
            },
        )

    def _told(self, each: DeviceReport, answer: Answer, outcome: str) -> DeviceReport:
        """The device with what its child told, whatever became of the child."""
        self._stuck = answer.stuck
        each = each.with_fields(answer.fields)
        enough = answer.done or each.all_blocks_bytes is not None
        return replace(
            each,
            notes=(*each.notes, *answer.notes),
            outcome=outcome if enough else "failed",
        )

    @staticmethod
    def _finished(each: DeviceReport) -> DeviceReport:
        """Figures that no device can have are clamped, and the remarks that follow are made."""
        free = each.free_bytes
        if free is not None:
            if each.unified and each.backend == "cuda" and sys.platform.startswith("linux"):
                # ggml_backend_cuda_device_get_memory (ggml-cuda.cpp, b10605) does the same
                free, each = host().available_bytes, each.noted("host_free")
            free = min(free, each.total_bytes)
            if each.unified or each.software:
                free = min(free, host().usable_bytes)
            each = replace(each, free_bytes=free)
        return _shortfalls(each)


def _shortfalls(each: DeviceReport) -> DeviceReport:
    """Remarks on what could not be had of what was tried."""
    had, largest, ceiling = each.all_blocks_bytes, each.largest_block_bytes, each.ceiling_bytes
    if each.outcome != "measured" or had is None or largest is None or ceiling is None:
        return each
    free, margin = each.free_bytes or 0, each.margin_bytes or 0
    if ceiling < SMALLEST:
        return each.noted("nothing", free_bytes=free, margin_bytes=margin)
    if "time_limit" not in each.has:
        if had < ceiling - SMALLEST:
            each = each.noted("free_over_reported", free_bytes=free, had_bytes=had)
        else:
            each = each.noted("ceiling", ceiling_bytes=ceiling, margin_bytes=margin)
    if largest < had - SMALLEST:
        each = each.noted("largest_block", largest_bytes=largest, all_bytes=had)
    return each


def _address_space_is_limited() -> bool:
    if os.name != "posix":
        return False
    import resource  # noqa: PLC0415  (not on Windows)

    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
