"""For which heads and cache types Vulkan and Metal have flash attention. Unverified: no such device
was at hand. (CUDA's rules stand in `flash.py` and in `compute/devices/cuda.py`.)

Source: ggml/src/ggml-vulkan/ggml-vulkan.cpp (device_supports_op, for a device with subgroup
shuffles, which every desktop card has), ggml/src/ggml-metal/ggml-metal-device.m (supports_op, for a
device with simdgroup matrices), b10605.
"""

from __future__ import annotations

VULKAN_TYPES = frozenset({"f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"})
VULKAN_HEAD_STEP = 8
"""Head sizes are multiples of this."""

METAL_HEADS = frozenset({32, 40, 48, 64, 72, 80, 96, 112, 128, 192, 256, 320, 512, 576})
METAL_TYPES = frozenset({"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"})


def vulkan(k_head: int, v_head: int, k_type: str, v_type: str) -> bool:
    """Whether Vulkan's flash attention takes these heads and cache types."""
    if k_head % VULKAN_HEAD_STEP or v_head % VULKAN_HEAD_STEP:
        return False
    known = k_type in VULKAN_TYPES and v_type in VULKAN_TYPES
    return known and (k_type == "bf16") == (v_type == "bf16")


def metal(k_head: int, v_head: int, k_type: str, v_type: str) -> bool:  # noqa: ARG001
    """Whether Metal's flash attention takes these heads and cache types."""
    return k_head in METAL_HEADS and k_type == v_type and k_type in METAL_TYPES


ATTENDS = {"vulkan": vulkan, "metal": metal}
"""Kind of device -> its rule."""
