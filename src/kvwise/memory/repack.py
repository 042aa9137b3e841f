"""CPU weights that the CPU backend stores rearranged, in a buffer of their own.

Which ones depends on the processor that runs the engine, so it is a property of the host, not of
the model. Source: ggml/src/ggml-cpu/repack.cpp (get_optimal_repack_type, supports_op), b10605.
The AMX and KleidiAI buffers of special builds are not covered.
"""

from __future__ import annotations

from collections.abc import Collection

from kvwise.gguf.header import Tensor

BUFFER = "CPU_REPACK"

_ROWS: tuple[tuple[frozenset[str], dict[str, int]], ...] = (
    (frozenset({"avx2"}), {"q4_0": 8, "q4_K": 8, "iq4_nl": 8, "mxfp4": 8}),
    (frozenset({"avx512f"}), {"q2_K": 8}),
    (
        frozenset({"asimddp"}),
        {
            "q4_0": 4, "q4_K": 8, "q5_K": 8, "q6_K": 8, "iq4_nl": 4, "mxfp4": 4, "q8_0": 4,
        },
    ),
)  # fmt: skip
"""Processor features (as Linux names them) -> type -> what the number of rows must divide by."""

ASSUMED = ("avx2",)
"""Features taken for granted when nothing is known about the processor."""


def is_repacked(op: str, tensor: Tensor, features: Collection[str]) -> bool:
    """Whether a host weight goes into the repacked buffer."""
    dimensions = _dimensions(tensor.shape)
    if (op, dimensions) not in {("MUL_MAT", 2), ("MUL_MAT_ID", 3)}:
        return False
    for needed, types in _ROWS:
        multiple = types.get(tensor.type.name)
        if multiple and needed <= set(features) and tensor.shape[1] % multiple == 0:
            return True
    return False


def _dimensions(shape: tuple[int, ...]) -> int:
    """ggml_n_dims: trailing ones do not count."""
    count = len(shape)
    while count > 1 and shape[count - 1] == 1:
        count -= 1
    return count
