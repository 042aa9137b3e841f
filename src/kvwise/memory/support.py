"""Whether a device can run the operation that a weight is for; if not, the host keeps it.

Source: src/llama-model-loader.cpp weight_buft_supported (the probe operation and its shapes) and
ggml-cuda.cu device_supports_op, b10605.
"""

from __future__ import annotations

from kvwise.gguf.header import Tensor
from kvwise.gguf.model import Model
from kvwise.memory.backends import BackendKind

_NO_MATRIX = frozenset({"tq1_0", "tq2_0", "f64", "i8", "i16", "i32", "i64", "q8_1"})
_ROWS = frozenset(
    {
        "f16", "f32", "bf16", "i32", "q1_0", "q2_0", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0",
        "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",
        "iq1_s", "iq1_m", "iq4_xs",
    }
)  # fmt: skip
_WHOLE_ROWS = frozenset({"iq4_nl", "mxfp4"})
_PLAIN = frozenset({"f32", "f16"})


def runs(model: Model, kind: BackendKind, op: str, tensor: Tensor) -> bool:
    """Whether a device of `kind` runs `op` on this weight. Only CUDA and HIP restrict it here."""
    if not kind.row_padding:
        return True
    name = tensor.type.name
    answers = {
        "MUL_MAT": lambda: name not in _NO_MATRIX,
        "MUL_MAT_ID": lambda: name not in _NO_MATRIX,
        "GET_ROWS": lambda: name in _ROWS or (name in _WHOLE_ROWS and _dim(tensor, 0) % 256 == 0),
        "ADD": lambda: name in _PLAIN,
        "MUL": lambda: name in _PLAIN,
        "DIV": lambda: name in _PLAIN,
        "SSM_CONV": lambda: _dim(tensor, 1) % 128 == 0,
        "SSM_SCAN": lambda: _scans(model, tensor),
    }
    answer = answers.get(op)
    return answer is None or answer()


def _dim(tensor: Tensor, index: int) -> int:
    return tensor.shape[index] if index < len(tensor.shape) else 1


def _scans(model: Model, tensor: Tensor) -> bool:
    """The scan kernels' shapes: Mamba-2 when the decay is one number per head, else Mamba."""
    first, heads = _dim(tensor, 0), _dim(tensor, 1)
    head = model.ssm_d_inner // heads
    if first == 1:
        return model.ssm_d_state in {128, 256} and head % 16 == 0
    groups = model.ssm_n_group or 1
    return first == 16 and head == 1 and heads % 128 == 0 and groups == 1
