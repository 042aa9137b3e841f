"""Vulkan: operations that run, and what it takes from the processor. Unverified: no such device was
at hand.

Source: ggml/src/ggml-vulkan/ggml-vulkan.cpp (device_supports_op, device_offload_op), b10605.
"""

from __future__ import annotations

from kvwise.memory import kernels
from kvwise.memory.compute.devices.cuda import wants
from kvwise.memory.compute.graph import Tensor


def supports(tensor: Tensor) -> bool:
    """Whether Vulkan runs this node; of other operations than attention all are assumed."""
    if tensor.op != "FLASH_ATTN_EXT":
        return True
    k, v = tensor.src[1], tensor.src[2]
    if k is None or v is None:
        return False
    return kernels.vulkan(k.ne[0], v.ne[0], k.type.name, v.type.name)


__all__ = ["supports", "wants"]
