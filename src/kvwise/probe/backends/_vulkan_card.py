"""A Vulkan device that gives memory: blocks of the types llama.cpp would choose, filled by copies.

Order of memory types: ggml_vk_create_buffer_device (ggml-vulkan.cpp, b10605), without its switches
for host memory: those are no memory of the card.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvwise.probe.backends import _vulkan_abi as vk
from kvwise.probe.judge import Piece
from kvwise.probe.library import Calls, DriverError
from kvwise.probe.measure import PIECE
from kvwise.units import MIB

_ON_DEVICE, _VISIBLE, _COHERENT = 1, 2, 4
_USAGE = 0x20 | 1 | 2  # storage, transfer from and to, as llama.cpp's buffers
_COMPUTE_QUEUE = 2
_QUEUE_FAMILY_SIZE = 24
_WAIT_NS = 20 * 10**9
_TRANSFER, _HOST = 0x1000, 0x4000  # pipeline stages
_WRITTEN, _READ = 0x1000, 0x0800 | 0x2000  # accesses: transfer write; transfer and host read


@dataclass(frozen=True, slots=True)
class Block:
    """A buffer bound to memory of its own."""

    buffer: int
    memory: int


class VulkanCard:
    """A logical device; see `measure.Card`."""

    step = 2 * MIB

    def __init__(
        self,
        calls: Calls,
        handle: int,
        types: Sequence[tuple[int, int]],
        heaps: Sequence[int],
        memory: Callable[[], tuple[int, int]],
        *,
        max_block: int,
        integrated: bool,
    ) -> None:
        self._calls, self._types, self._heaps, self._memory = calls, types, heaps, memory
        self.max_block = max_block
        wanted = [_ON_DEVICE | _VISIBLE | _COHERENT, _ON_DEVICE]
        self._wanted = [*wanted, _VISIBLE | _COHERENT] if integrated else wanted
        family = self._family(handle)
        priority = ctypes.c_float(0.5)
        address = ctypes.addressof(priority)
        queue = vk.structure(40, 2, (20, "I", family), (24, "I", 1), (32, "Q", address))
        wanted_device = vk.structure(72, 3, (20, "I", 1), (24, "Q", ctypes.addressof(queue)))
        device = ctypes.c_void_p()
        calls("vkCreateDevice", handle, wanted_device, None, ctypes.byref(device))
        self._device = device
        self._queue = ctypes.c_void_p()
        calls.do("vkGetDeviceQueue", device, family, 0, ctypes.byref(self._queue))
        wanted_pool = vk.structure(24, 39, (16, "I", 2), (20, "I", family))
        pool = self._made("vkCreateCommandPool", wanted_pool)
        wanted_buffer = vk.structure(32, 40, (16, "Q", pool), (28, "I", 1))
        self._commands = ctypes.c_void_p()
        calls("vkAllocateCommandBuffers", device, wanted_buffer, ctypes.byref(self._commands))
        self._fence = self._made("vkCreateFence", vk.structure(24, 8))
        self._window = self._mapped(64)

    def memory(self) -> tuple[int, int]:
        """(free, total) in bytes, as llama.cpp adds them up."""
        return self._memory()

    def allocate(self, size: int) -> Block | None:
        """A buffer with memory bound to it, None when no fitting type has room."""
        return self._allocate(size, self._wanted)

    def release(self, block: Block) -> None:
        """Give a block back."""
        self._calls.do("vkDestroyBuffer", self._device, block.buffer, None)
        self._calls.do("vkFreeMemory", self._device, block.memory, None)

    def touch(self, block: Block, size: int, value: int) -> list[Piece]:
        """Fill a block, each piece in a submission of its own that is waited for."""
        pieces = []
        for start in range(0, size, PIECE):
            piece = min(PIECE, size - start)
            self._begin()
            self._calls.do(
                "vkCmdFillBuffer", self._commands, block.buffer, start, piece, value & 0xFFFFFFFF
            )
            begun = time.perf_counter()
            self._finish()
            pieces.append(Piece(piece, time.perf_counter() - begun))
        return pieces

    def peek(self, block: Block, offset: int) -> int:
        """The word at an offset, copied to memory that the host sees."""
        buffer, address = self._window
        region = (ctypes.c_uint64 * 3)(offset, 0, 4)
        self._begin()
        self._calls.do("vkCmdCopyBuffer", self._commands, block.buffer, buffer, 1, region)
        self._barrier()
        self._finish()
        return ctypes.c_uint32.from_address(address).value

    def close(self) -> None:
        """Let go of the device."""
        self._calls("vkDeviceWaitIdle", self._device)
        self._calls.do("vkDestroyDevice", self._device, None)

    # -- commands ---------------------------------------------------------------

    def _begin(self) -> None:
        self._calls("vkBeginCommandBuffer", self._commands, vk.structure(32, 42, (16, "I", 1)))
        self._barrier()

    def _barrier(self) -> None:
        """What was written so far is there for what follows."""
        memory = vk.structure(24, 46, (16, "I", _WRITTEN), (20, "I", _READ | _WRITTEN))
        stages = (_TRANSFER, _TRANSFER | _HOST)
        self._calls.do(
            "vkCmdPipelineBarrier", self._commands, *stages, 0, 1, memory, 0, None, 0, None
        )

    def _finish(self) -> None:
        self._calls("vkEndCommandBuffer", self._commands)
        commands = (ctypes.c_void_p * 1)(self._commands.value)
        submit = vk.structure(72, 4, (40, "I", 1), (48, "Q", ctypes.addressof(commands)))
        fences = (ctypes.c_uint64 * 1)(self._fence)
        self._calls("vkQueueSubmit", self._queue, 1, submit, self._fence)
        self._calls("vkWaitForFences", self._device, 1, fences, 1, _WAIT_NS)
        self._calls("vkResetFences", self._device, 1, fences)

    # -- making -----------------------------------------------------------------

    def _family(self, handle: int) -> int:
        """A queue family that computes, as llama.cpp's; such a one can fill and copy."""
        count = ctypes.c_uint32()
        name = "vkGetPhysicalDeviceQueueFamilyProperties"
        self._calls.do(name, handle, ctypes.byref(count), None)
        raw = ctypes.create_string_buffer(_QUEUE_FAMILY_SIZE * max(1, count.value))
        self._calls.do(name, handle, ctypes.byref(count), raw)
        for number in range(count.value):
            if vk.at(raw, "I", _QUEUE_FAMILY_SIZE * number)[0] & _COMPUTE_QUEUE:
                return number
        raise DriverError(name, 0, "no queue that computes")

    def _made(self, name: str, wanted: ctypes.Array[ctypes.c_char]) -> int:
        made = ctypes.c_uint64()
        self._calls(name, self._device, wanted, None, ctypes.byref(made))
        return made.value

    def _mapped(self, size: int) -> tuple[int, int]:
        """(buffer, address) of a little memory that the host sees."""
        block = self._allocate(size, [_VISIBLE | _COHERENT])
        if block is None:
            raise DriverError("vkAllocateMemory", vk.NO_ROOM[0], "no room for 64 bytes")
        address = ctypes.c_void_p()
        self._calls("vkMapMemory", self._device, block.memory, 0, size, 0, ctypes.byref(address))
        return block.buffer, address.value or 0

    def _allocate(self, size: int, wanted: Sequence[int]) -> Block | None:
        buffer = ctypes.c_uint64()
        made = vk.structure(56, 12, (24, "Q", size), (32, "I", _USAGE))
        code = self._calls.code("vkCreateBuffer", self._device, made, None, ctypes.byref(buffer))
        if code in vk.NO_ROOM:
            return None
        if code:
            raise self._calls.error("vkCreateBuffer", code)
        needs = ctypes.create_string_buffer(24)
        self._calls.do("vkGetBufferMemoryRequirements", self._device, buffer, needs)
        for kind in self._fitting(vk.at(needs, "I", 16)[0], vk.at(needs, "Q", 0)[0], wanted):
            memory = self._memory_of(kind, vk.at(needs, "Q", 0)[0])
            if memory is not None:
                self._calls("vkBindBufferMemory", self._device, buffer, memory, 0)
                return Block(buffer.value, memory)
        self._calls.do("vkDestroyBuffer", self._device, buffer, None)
        return None

    def _fitting(self, allowed: int, size: int, wanted: Sequence[int]) -> list[int]:
        """Memory types in llama.cpp's order: each wish in turn, heaps that could hold it."""
        found: list[int] = []
        for wish in wanted:
            for number, (flags, heap) in enumerate(self._types):
                fits = allowed >> number & 1 and self._heaps[heap] >= size
                if fits and flags & wish == wish and number not in found:
                    found.append(number)
        return found

    def _memory_of(self, kind: int, size: int) -> int | None:
        memory = ctypes.c_uint64()
        wanted = vk.structure(32, 5, (16, "Q", size), (24, "I", kind))
        code = self._calls.code(
            "vkAllocateMemory", self._device, wanted, None, ctypes.byref(memory)
        )
        if code and code not in vk.NO_ROOM:
            raise self._calls.error("vkAllocateMemory", code)
        return None if code else memory.value
