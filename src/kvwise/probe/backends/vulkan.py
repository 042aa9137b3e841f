"""Vulkan: heaps, budgets and limits of each device, chosen and ordered as llama.cpp does.

Rules: ggml_vk_instance_init and ggml_backend_vk_get_device_memory (ggml-vulkan.cpp, b10605).
Budget and usage are unsigned there and can wrap, and a driver may grant more than the heap: both
are clamped here. A budget of zero means that the driver has none, not that there is no memory.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvwise.probe.backends import _vulkan_abi as vk
from kvwise.probe.backends._vulkan_card import VulkanCard
from kvwise.probe.library import Calls, DriverError, Missing
from kvwise.units import GIB

PREFIX = "Vulkan"
PROVEN = "software"
_INTEGRATED, _DISCRETE, _SOFTWARE = 1, 2, 4
_HEAP_ON_DEVICE = 1
_BUDGET, _PCI = "VK_EXT_memory_budget", "VK_EXT_pci_bus_info"
_MAINTENANCE_4 = "VK_KHR_maintenance4"
_MOLTENVK = 14
_DOZEN = 23  # Mesa's driver on top of Direct3D 12: last choice
_PRIORITIES = {  # vendor -> driver ids, best first
    0x1002: (3, 2, 1),
    0x8086: (6, 5),
    0x10DE: (4, 24),
    0x5143: (8, 18),
}
_VERSION_1_3 = (1 << 22) | (3 << 12)


def expected(system: str) -> bool:
    """Whether this backend exists there at all."""
    return system in ("linux", "win32", "darwin")


def open_driver(given: str | None = None) -> VulkanDriver:
    """Load the loader and make an instance. Raises Missing, DriverError."""
    return VulkanDriver(vk.calls(given), os.environ)


@dataclass(frozen=True, slots=True)
class Seen:
    """A physical device: its handle, its kind (1 integrated, 2 discrete, 4 a CPU), its identity."""

    handle: int
    kind: int
    vendor: int
    driver: int
    uuid: bytes
    luid: int | None
    supported: bool


def chosen(devices: Sequence[Seen], visible: str | None) -> list[int]:
    """Places of the devices that llama.cpp uses, in its order.

    `visible` is GGML_VK_VISIBLE_DEVICES; without it GPUs only, one for each that several drivers
    show. Raises DriverError for a place that does not exist, as llama.cpp does.
    """
    if visible is not None:
        places = _places(visible)
        for place in places:
            if place >= len(devices):
                raise DriverError("GGML_VK_VISIBLE_DEVICES", place, "no such device")
        return places
    found: list[int] = []
    for place, device in enumerate(devices):
        if device.kind not in (_INTEGRATED, _DISCRETE) or not device.supported:
            continue
        twin = next((one for one in found if _same(devices[one], device)), None)
        if twin is None:
            found.append(place)
        elif _priority(device, devices[twin]) < _priority(devices[twin], devices[twin]):
            found.remove(twin)
            found.append(place)
    if not found:
        found = [at for at, device in enumerate(devices) if device.kind != _SOFTWARE][:1]
    return found


def _places(text: str) -> list[int]:
    """Numbers up to the first word that is none."""
    places = []
    for word in text.replace(",", " ").split():
        if not (word.isascii() and word.isdigit()):
            break
        places.append(int(word))
    return places


def _same(one: Seen, other: Seen) -> bool:
    if one.driver == other.driver == _MOLTENVK:
        return False
    return one.uuid == other.uuid or (one.luid is not None and one.luid == other.luid)


def _priority(device: Seen, known: Seen) -> int:
    order = _PRIORITIES.get(known.vendor, ())
    if device.driver == _DOZEN:
        return 100
    return order.index(device.driver) if device.driver in order else 1 << 31


@dataclass(frozen=True, slots=True)
class Memory:
    """Heaps and types of a device: (size, flags) and (flags, heap); budgets if there are any."""

    heaps: tuple[tuple[int, int], ...]
    types: tuple[tuple[int, int], ...]
    budgets: tuple[tuple[int, int], ...] | None = None  # (budget, usage) per heap

    def free_and_total(self, *, integrated: bool) -> tuple[int, int]:
        """llama.cpp's sums over the device's heaps, no heap above its size or below zero."""
        free = total = 0
        for number, (size, flags) in enumerate(self.heaps):
            if integrated or flags & _HEAP_ON_DEVICE:
                total += size
                free += self.free_of(number)
        return free, total

    def free_of(self, number: int) -> int:
        """Bytes of a heap that are left for this process."""
        size = self.heaps[number][0]
        if self.budgets is None or not self.budgets[number][0]:
            return size
        budget, usage = self.budgets[number]
        return max(0, min(size, budget) - usage)


class VulkanDriver:
    """An instance and its devices."""

    def __init__(self, calls: Calls, environ: Mapping[str, str]) -> None:
        self._calls, self._environ = calls, environ
        version = ctypes.c_uint32()
        calls("vkEnumerateInstanceVersion", ctypes.byref(version))
        application = vk.structure(48, 0, (44, "I", version.value))
        wanted = vk.structure(64, 1, (24, "Q", ctypes.addressof(application)))
        self._instance = ctypes.c_void_p()
        code = calls.code("vkCreateInstance", wanted, None, ctypes.byref(self._instance))
        if code == vk.NO_DRIVER:
            raise Missing("no Vulkan driver")
        if code:
            raise calls.error("vkCreateInstance", code)
        self._seen = [self._look(handle) for handle in self._handles()]
        self._chosen = chosen(self._seen, environ.get("GGML_VK_VISIBLE_DEVICES"))

    def devices(self) -> list[dict[str, Any]]:
        """What the drivers say of the devices that llama.cpp uses."""
        return [self._facts(index, self._seen[at]) for index, at in enumerate(self._chosen)]

    def open(self, index: int) -> VulkanCard:
        """A logical device with a queue."""
        seen = self._seen[self._chosen[index]]
        facts = self._facts(index, seen)
        return VulkanCard(
            self._calls,
            seen.handle,
            self._memory(seen.handle).types,
            [size for size, _ in self._memory(seen.handle).heaps],
            lambda: self._memory(seen.handle).free_and_total(integrated=facts["unified"]),
            max_block=facts["max_buffer_bytes"],
            integrated=facts["unified"],
        )

    def _handles(self) -> list[int]:
        count = ctypes.c_uint32()
        name = "vkEnumeratePhysicalDevices"
        code = self._calls.code(name, self._instance, ctypes.byref(count), None)
        if code == vk.NOT_STARTED or not count.value:  # a driver whose hardware is absent
            return []
        handles = (ctypes.c_void_p * count.value)()
        self._calls(name, self._instance, ctypes.byref(count), handles)
        return [handle for handle in handles if handle]

    def _look(self, handle: int) -> Seen:
        identity = vk.structure(64, 1000071004)
        driver = vk.structure(536, 1000196000, following=identity)
        properties = vk.structure(840, 1000059001, following=driver)
        self._calls.do("vkGetPhysicalDeviceProperties2", handle, properties)
        eleven = vk.structure(64, 49)
        features = vk.structure(240, 1000059000, following=eleven)
        self._calls.do("vkGetPhysicalDeviceFeatures2", handle, features)
        (kind,), (vendor,) = vk.at(properties, "I", 32), vk.at(properties, "I", 24)
        luid, valid = vk.at(identity, "Q", 48)[0], vk.at(identity, "I", 60)[0]
        return Seen(
            handle=handle,
            kind=kind,
            vendor=vendor,
            driver=vk.at(driver, "I", 16)[0],
            uuid=identity.raw[16:32],
            luid=luid if valid else None,
            supported=bool(vk.at(eleven, "I", 16)[0]),  # 16-bit storage buffers
        )

    def _facts(self, index: int, seen: Seen) -> dict[str, Any]:
        extensions = self._extensions(seen.handle)
        driver = vk.structure(536, 1000196000)
        maintenance3 = vk.structure(32, 1000168000, following=driver)
        maintenance4 = vk.structure(24, 1000413001, following=maintenance3)
        bus = vk.structure(32, 1000212000, following=maintenance3)
        properties = vk.structure(840, 1000059001, following=maintenance3)
        self._calls.do("vkGetPhysicalDeviceProperties2", seen.handle, properties)
        api = vk.at(properties, "I", 16)[0]
        if api >= _VERSION_1_3 or _MAINTENANCE_4 in extensions:
            more = vk.structure(840, 1000059001, following=maintenance4)
            self._calls.do("vkGetPhysicalDeviceProperties2", seen.handle, more)
        pci = ""
        if _PCI in extensions:
            more = vk.structure(840, 1000059001, following=bus)
            self._calls.do("vkGetPhysicalDeviceProperties2", seen.handle, more)
            pci = "{:04x}:{:02x}:{:02x}.{}".format(*vk.at(bus, "4I", 16))
        memory = self._memory(seen.handle)
        free, total = memory.free_and_total(integrated=seen.kind == _INTEGRATED)
        told = vk.at(maintenance3, "Q", 24)[0]
        return {
            "name": vk.text(properties, 36, 256),
            "index": index,
            "total_bytes": total,
            "free_bytes": free,
            "uuid": seen.uuid.hex(),
            "luid": seen.luid,
            "pci": pci,
            "driver": f"{vk.text(driver, 20, 256)} {vk.text(driver, 276, 256)}".strip(),
            "driver_model": "WDDM" if sys.platform == "win32" else None,
            "unified": seen.kind == _INTEGRATED,
            "software": seen.kind == _SOFTWARE,
            **self._limits(
                told or max((size for size, _ in memory.heaps), default=0),  # 0 = not told
                vk.at(maintenance4, "Q", 16)[0],
            ),
            "heaps": [
                {
                    "size_bytes": size,
                    "on_device": bool(flags & _HEAP_ON_DEVICE),
                    "budget_bytes": memory.budgets[number][0] if memory.budgets else None,
                }
                for number, (size, flags) in enumerate(memory.heaps)
            ],
        }

    def _limits(self, allocation: int, buffer: int) -> dict[str, int]:
        """llama.cpp's largest allocation, buffer and chunk on a device that told these two."""
        environ = self._environ
        told = min(allocation, buffer) if buffer else allocation
        most = vk.number(environ, "GGML_VK_FORCE_MAX_ALLOCATION_SIZE") or told
        chunk = vk.number(environ, "GGML_VK_SUBALLOCATION_BLOCK_SIZE") or GIB
        return {
            "max_allocation_bytes": most,
            "max_buffer_bytes": vk.number(environ, "GGML_VK_FORCE_MAX_BUFFER_SIZE")
            or buffer
            or most,
            "chunk_bytes": min(chunk, most),
        }

    def _memory(self, handle: int) -> Memory:
        budget = vk.structure(272, 1000237000)
        has_budget = _BUDGET in self._extensions(handle)
        raw = vk.structure(536, 1000059006, following=budget if has_budget else None)
        self._calls.do("vkGetPhysicalDeviceMemoryProperties2", handle, raw)
        types, heaps = vk.at(raw, "I", 16)[0], vk.at(raw, "I", 276)[0]
        granted = vk.at(budget, "16Q", 16), vk.at(budget, "16Q", 144)
        return Memory(
            heaps=tuple(_pair(vk.at(raw, "QI", 280 + 16 * n)) for n in range(min(16, heaps))),
            types=tuple(_pair(vk.at(raw, "2I", 20 + 8 * n)) for n in range(min(32, types))),
            budgets=tuple(zip(*granted, strict=True)) if has_budget else None,
        )

    def _extensions(self, handle: int) -> set[str]:
        count = ctypes.c_uint32()
        name = "vkEnumerateDeviceExtensionProperties"
        self._calls(name, handle, None, ctypes.byref(count), None)
        raw = ctypes.create_string_buffer(260 * max(1, count.value))
        self._calls(name, handle, None, ctypes.byref(count), raw)
        return {vk.text(raw, 260 * number, 256) for number in range(count.value)}


def _pair(numbers: tuple[int, ...]) -> tuple[int, int]:
    first, second = numbers
    return first, second
