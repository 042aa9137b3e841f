"""Vulkan's functions, codes and structures as bytes at offsets (vulkan_core.h 1.3.239, 64-bit)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping

from kvwise.probe.library import Calls, load

LIBRARIES = ("libvulkan.so.1", "vulkan-1.dll", "libvulkan.1.dylib", "libMoltenVK.dylib")
_SIGNATURES = {
    "vkEnumerateInstanceVersion": "p", "vkCreateInstance": "ppp",
    "vkEnumeratePhysicalDevices": "ppp", "vkGetPhysicalDeviceProperties2": "pp",
    "vkGetPhysicalDeviceMemoryProperties2": "pp", "vkGetPhysicalDeviceFeatures2": "pp",
    "vkEnumerateDeviceExtensionProperties": "pppp",
    "vkGetPhysicalDeviceQueueFamilyProperties": "ppp", "vkCreateDevice": "pppp",
    "vkDestroyDevice": "pp", "vkGetDeviceQueue": "puup", "vkDeviceWaitIdle": "p",
    "vkCreateBuffer": "pppp", "vkDestroyBuffer": "pqp", "vkGetBufferMemoryRequirements": "pqp",
    "vkAllocateMemory": "pppp", "vkFreeMemory": "pqp", "vkBindBufferMemory": "pqqq",
    "vkMapMemory": "pqqqup", "vkCreateCommandPool": "pppp", "vkAllocateCommandBuffers": "ppp",
    "vkBeginCommandBuffer": "pp", "vkEndCommandBuffer": "p", "vkCmdFillBuffer": "pqqqu",
    "vkCmdCopyBuffer": "pqqup", "vkCmdPipelineBarrier": "puuuupupup", "vkQueueSubmit": "pupq",
    "vkCreateFence": "pppp", "vkWaitForFences": "pupuq", "vkResetFences": "pup",
}  # fmt: skip
_ERRORS = {
    2: "VK_TIMEOUT", -1: "VK_ERROR_OUT_OF_HOST_MEMORY", -2: "VK_ERROR_OUT_OF_DEVICE_MEMORY",
    -3: "VK_ERROR_INITIALIZATION_FAILED", -4: "VK_ERROR_DEVICE_LOST",
    -7: "VK_ERROR_EXTENSION_NOT_PRESENT", -9: "VK_ERROR_INCOMPATIBLE_DRIVER",
    -10: "VK_ERROR_TOO_MANY_OBJECTS",
}  # fmt: skip
NO_ROOM = (-1, -2)
NO_DRIVER, NOT_STARTED = -9, -3

Field = tuple[int, str, int]  # offset, struct letter, value


def calls(given: str | None) -> Calls:
    """The loader. Raises Missing, DriverError."""
    library = load([given] if given else LIBRARIES)
    return Calls(library, _SIGNATURES, lambda _library, code: _ERRORS.get(code, ""))


def structure(
    size: int, kind: int, *fields: Field, following: ctypes.Array[ctypes.c_char] | None = None
) -> ctypes.Array[ctypes.c_char]:
    """A structure of `size` bytes with its sType, the next of its chain, and fields."""
    raw = ctypes.create_string_buffer(size)
    struct.pack_into("<I", raw, 0, kind)
    if following is not None:
        struct.pack_into("<Q", raw, 8, ctypes.addressof(following))
    for offset, letter, value in fields:
        struct.pack_into("<" + letter, raw, offset, value)
    return raw


def at(raw: ctypes.Array[ctypes.c_char], letters: str, offset: int) -> tuple[int, ...]:
    """Numbers of a structure."""
    return struct.unpack_from("<" + letters, raw, offset)


def text(raw: ctypes.Array[ctypes.c_char], offset: int, size: int) -> str:
    """A string of a structure."""
    return raw.raw[offset : offset + size].split(b"\0")[0].decode("utf-8", "replace")


def number(environ: Mapping[str, str], name: str) -> int | None:
    """A size in bytes that llama.cpp reads from its environment."""
    value = environ.get(name, "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
