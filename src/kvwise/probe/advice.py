"""What to plan with on a probed device: free, largest block, reserve, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC

from kvwise.catalogue import context_bytes, of_driver
from kvwise.catalogue.start import Start, largest_at_start, start_of, traits
from kvwise.device import KINDS, Device
from kvwise.probe.measure import SMALLEST
from kvwise.probe.report import DeviceReport, Report, environment
from kvwise.text import Phrase, phrase
from kvwise.units import MIB, show

_OS = {"linux": "linux", "win32": "windows", "darwin": "macos"}
_ORDER = {"cuda": 0, "hip": 1, "metal": 2, "vulkan": 3}
_VENDORS = (("nvidia", "NVIDIA"), ("amd", "AMD"), ("radeon", "AMD"), ("intel", "Intel"))
_JETSON = ("orin", "thor", "xavier", "tegra")
_MOST = 16  # llama_max_devices (src/llama.cpp, b10605)
_STEADY = 768 * MIB
"""Left by nvidia-smi's count on Windows, 12 of 12 runs were steady (one RTX 4070 SUPER)."""


@dataclass(frozen=True, slots=True)
class Advice:
    """`missing_bytes` is what the driver calls free and cannot be had; `max_block_bytes` None =
    no limit was seen; `pieces` where the memory was found in some."""

    free_bytes: int
    missing_bytes: int
    max_block_bytes: int | None
    reserve_bytes: int
    reserve_reason: Phrase
    pieces: tuple[int, ...] = ()


def advise(found: DeviceReport, system: str, *, engine_context: bool = False) -> Advice:
    """What a measured or asked device offers; `system` as in sys.platform.

    `engine_context`: what is free was read by an engine, whose context is taken off already.
    """
    free = max(0, found.total_bytes if found.free_bytes is None else found.free_bytes)
    free = min(free, found.total_bytes) if found.outcome != "failed" else 0
    row = _row(found, system)
    had = _had(found, free)
    reserve, why = _reserve(found, row, engine_context=engine_context)
    if found.card_free_bytes is not None and row.os == "windows" and found.backend == "cuda":
        # CUDA's free is blind for other programs there, NVML's is not; its rest stays free
        had = max(0, min(had, found.card_free_bytes + reserve - _STEADY))
    return Advice(had, free - had, _block(found, row, had), reserve, why, _pieces(found))


def planned(found: DeviceReport, system: str) -> Device:
    """The device to plan with."""
    advice = advise(found, system)
    known = of_driver(found.name, found.total_bytes)
    bandwidth = found.bus_bytes_per_s or None
    if known and known.bandwidth_gb_s:
        bandwidth = round(known.bandwidth_gb_s * 10**9)
    return Device(
        name=found.name,
        kind=found.backend if found.backend in KINDS else "generic",
        total_bytes=found.total_bytes,
        free_bytes=advice.free_bytes,
        index=found.index,
        bandwidth_bytes_per_s=bandwidth,
        compute_capability=found.compute_capability
        or (known.compute_capability if known else None),
        sm_count=found.sm_count or (known.sm_count if known else None),
        reserve_bytes=advice.reserve_bytes,
        unified=found.unified,
        source="probe",
        max_block_bytes=advice.max_block_bytes,
        reserve_reason=advice.reserve_reason,
        pieces=advice.pieces,
    )


def usable(report: Report) -> tuple[Device, ...]:
    """The devices that llama.cpp would use of a probed machine, in its order.

    A card that two backends show is used once, and a GPU that shares the host's memory only where
    there is no other (llama_prepare_model_devices, src/llama.cpp, b10605). A software GPU is there
    only where GGML_VK_VISIBLE_DEVICES names it, and is then used like any other.
    """
    found: list[DeviceReport] = []
    for each in sorted(report.devices, key=lambda each: _ORDER.get(each.backend, len(_ORDER))):
        twin = any(
            one.backend != each.backend and (one.pci == each.pci != "" or one.name == each.name)
            for one in found
        )
        if each.outcome != "failed" and not twin:
            found.append(each)
    cards = [each for each in found if not each.unified] or found
    return tuple(
        replace(planned(each, report.system), note=_measured(each, report))
        for each in cards[:_MOST]
    )


def with_probe(
    listed: Sequence[Device], report: Report, fresh: Sequence[DeviceReport]
) -> list[Device]:
    """The devices that an engine listed now, with what a probe found out about them.

    Reserve, limits and facts of a card hold; for the `fresh` ones the measurement does too, and
    then what was missing from the free memory is missing again.
    """
    return [_with(device, _found(device, listed, report), report, fresh) for device in listed]


def _with(
    device: Device, found: DeviceReport | None, report: Report, fresh: Sequence[DeviceReport]
) -> Device:
    if found is None:
        return device
    advice = advise(found, report.system, engine_context=True)
    device = replace(
        device,
        compute_capability=found.compute_capability or device.compute_capability,
        sm_count=found.sm_count or device.sm_count,
        unified=found.unified or device.unified,
        reserve_bytes=advice.reserve_bytes,
        reserve_reason=advice.reserve_reason,
    )
    if found not in fresh:
        return replace(device, max_block_bytes=found.max_buffer_bytes)
    free = max(0, device.free_bytes - advice.missing_bytes)
    return replace(
        device,
        free_bytes=free,
        max_block_bytes=advice.max_block_bytes,
        pieces=advice.pieces,
        note=_measured(found, report) or device.note,
    )


def _measured(found: DeviceReport, report: Report) -> Phrase | None:
    """When the figures of a device were measured, None if they were not."""
    if found.outcome != "measured" or report.time.timestamp() <= 0:
        return None
    return phrase(
        "{name}: what can be had was measured at {time} (kvwise probe)",
        name=found.name,
        time=report.time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _found(device: Device, listed: Sequence[Device], report: Report) -> DeviceReport | None:
    """What the probe says of a listed device; None if it can mean another one.

    Numbers hold only where the same variables hide and order the devices as did for the probe;
    else only a name that one card has, here and there.
    """
    alike = [
        each
        for each in report.devices
        if (each.backend, each.name) == (device.kind, device.name) and each.outcome != "failed"
    ]
    if report.environment == environment():
        return next((each for each in alike if each.index == device.index), None)
    namesakes = [each for each in listed if (each.kind, each.name) == (device.kind, device.name)]
    return alike[0] if len(alike) == len(namesakes) == 1 else None


def _had(found: DeviceReport, free: int) -> int:
    """What can be planned with: the driver's free, unless less than was tried could be had."""
    if found.outcome != "measured" or found.all_blocks_bytes is None:
        return free
    if "time_limit" in found.has and not found.spilled_bytes:
        return free
    had = found.all_blocks_bytes - found.spilled_bytes
    if found.ceiling_bytes is None:
        return min(free, had)
    if had > found.ceiling_bytes - SMALLEST:  # all that was tried: the margin is there as well
        return min(free, found.ceiling_bytes + (found.margin_bytes or 0) + SMALLEST)
    return max(0, min(free, had))


def _block(found: DeviceReport, row: Start, had: int) -> int | None:
    """The largest single block, when one was refused that less than everything would have held."""
    limits = [each for each in (found.max_buffer_bytes, largest_at_start(row, had)) if each]
    largest, everything = found.largest_block_bytes, found.all_blocks_bytes
    if found.outcome == "measured" and largest is not None and everything is not None:
        if largest < everything - SMALLEST:
            limits.append(largest)
        elif had < everything:  # part of that one block spilled
            limits.append(had)
    return min(limits, default=None)


def _pieces(found: DeviceReport) -> tuple[int, ...]:
    """The blocks, where smaller ones follow the largest.

    Equal ones, or the largest that a rule allows, tell of a limit on one allocation: they may lie
    side by side.
    """
    blocks = found.blocks
    if found.outcome != "measured" or found.spilled_bytes or len(blocks) < 2:
        return ()
    limit = found.max_buffer_bytes
    if blocks[0] == blocks[1] or (limit is not None and blocks[0] > limit - SMALLEST):
        return ()
    return blocks


def _row(found: DeviceReport, system: str) -> Start:
    """What is known of such a card under such a system, by the display as it was found."""
    os = "windows" if found.driver_model in ("WDDM", "MCDM") else _OS.get(system, "linux")
    display = found.display if found.display is not None else os == "windows"
    if os == "windows" and found.backend == "cuda" and found.card_free_bytes is not None:
        display = False  # what other programs hold was counted
    return start_of(os, found.backend, _traits(found), display)


def _reserve(found: DeviceReport, row: Start, *, engine_context: bool) -> tuple[int, Phrase]:
    """What grows after loading, and the margin that was not tried; more for an engine's context
    that is larger than the probe's."""
    growth = max(row.reserve * MIB, found.margin_bytes or 0)
    context = 0
    if found.backend == "cuda" and found.context_bytes is not None and not engine_context:
        context = max(0, context_bytes(found.sm_count) - found.context_bytes)
    if context:
        return growth + context, phrase(
            "{growth} kept free ({why}), and {context} that an engine's context takes more than "
            "the probe's",
            growth=show(growth),
            why=phrase(row.why),
            context=show(context),
        )
    return growth, phrase("{growth} kept free: {why}", growth=show(growth), why=phrase(row.why))


def _traits(found: DeviceReport) -> frozenset[str]:
    known = of_driver(found.name, found.total_bytes)
    if known:
        return traits(known.vendor, known.family, known.memory_mib_nominal, unified=found.unified)
    name = found.name.lower()
    vendor = next((vendor for word, vendor in _VENDORS if word in name), "")
    family = ""
    if found.unified and found.backend == "cuda":
        family = "Jetson" if any(word in name for word in _JETSON) else "DGX Spark"
    return traits(vendor, family, found.total_bytes // MIB, unified=found.unified)
