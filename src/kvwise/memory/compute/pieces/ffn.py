"""Dense feed-forward networks: with a gate or without, biases and scales where the file has them.

Source: src/llama-graph.cpp build_ffn, b10605.
"""

from __future__ import annotations

from typing import Literal

from kvwise import builds
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor

Act = Literal[
    "silu", "gelu", "relu", "relu_sqr", "swiglu", "geglu", "reglu", "swiglu_oai",
    "situ", "situ_both",
]  # fmt: skip

Clamp = Literal["", "before", "after", "within"]
"""Gate limited before its activation (DeepSeek V4), after it, as part of it, or not."""

LEAST_LIMIT = 1e-6
_WITHIN = frozenset({"maple", "hy_v4"})  # experts' limits are part of the activation

_GLU = {"silu": "SWIGLU", "gelu": "GEGLU", "relu": "REGLU", "swiglu_oai": "SWIGLU_OAI"}
_HALVES = {"swiglu": "SWIGLU", "geglu": "GEGLU", "reglu": "REGLU"}


def ffn(
    b: Builder,
    x: Tensor,
    il: int,
    act: Act = "silu",
    *,
    suffix: str = "",
    gate: bool | None = None,
    parallel: bool = True,
    bias: bool = True,
    act_scales: Tensor | None = None,
    down: bool = True,
    optional: bool = False,
) -> Tensor:
    """Up, gate (None: if the file has one), activation, down.

    `suffix` names a second network of the layer (`_shexp`); `act` swiglu, geglu, reglu split one
    product into halves; `parallel` False feeds the gate with the up projection; `optional`: a
    matrix that the file lacks is passed over.
    """
    up = _project(b, x, il, "ffn_up" + suffix, bias=bias, optional=optional)
    name = "ffn_gate" + suffix
    if gate is None:
        gate = b.has(il, name + ".weight")
    cur = _project(b, x if parallel else up, il, name, bias=bias) if gate else up
    cur = activate(
        cur, up, act, gated=gate and parallel, act_scales=act_scales, clamp=clamp_of(b, il, "shexp")
    )
    if not down:
        return cur
    return _project(b, cur, il, "ffn_down" + suffix, bias=bias, optional=optional)


def clamp_of(b: Builder, il: int, kind: Literal["exp", "shexp"]) -> Clamp:
    """Whether this layer limits gate and up: of experts, or of every other network."""
    model = b.model
    limits = model.swiglu_clamp_exp if kind == "exp" else model.swiglu_clamp_shexp
    if il >= len(limits) or limits[il] <= LEAST_LIMIT:
        return ""
    if kind == "exp" and model.architecture in _WITHIN:
        return "within"
    if not model.dsv4_hc_mult:
        return "after"
    return "within" if b.since(builds.CLAMPED_SWIGLU) else "before"


def activate(
    cur: Tensor,
    up: Tensor,
    act: Act,
    *,
    gated: bool,
    act_scales: Tensor | None = None,
    clamp: Clamp = "",
) -> Tensor:
    """The activation of `cur`, times `up` when gated."""
    if act in _HALVES or act == "relu_sqr":
        made = ops.glu(_HALVES[act], cur) if act in _HALVES else ops.sqr(ops.unary("RELU", cur))
        return ops.mul(made, up) if gated else made
    if act in ("situ", "situ_both"):
        return _situ(cur, up, both=act == "situ_both")
    if gated:
        return _limited(cur, up, clamp) if clamp and act == "silu" else ops.glu(_GLU[act], cur, up)
    made = ops.unary(act.upper(), cur)
    return made if act_scales is None else ops.div(made, act_scales)


def _limited(gate: Tensor, up: Tensor, clamp: Clamp) -> Tensor:
    """The gate's activation times `up`, both limited."""
    if clamp == "within":
        return ops.glu("SWIGLU_CLAMP", gate, up)
    up = ops.clamp(up)
    if clamp == "before":
        return ops.glu("SWIGLU", ops.clamp(gate), up)
    return ops.mul(ops.clamp(ops.unary("SILU", gate)), up)


def _situ(gate: Tensor, up: Tensor, *, both: bool) -> Tensor:
    """A bounded gate times its sigmoid, times `up`, which is bounded too if `both`."""
    made = ops.scale(ops.unary("TANH", ops.scale(gate)))
    made = ops.mul(made, ops.unary("SIGMOID", gate))
    if both:
        up = ops.scale(ops.unary("TANH", ops.scale(up)))
    return ops.mul(made, up)


def _project(
    b: Builder, x: Tensor, il: int, name: str, *, bias: bool, optional: bool = False
) -> Tensor:
    """Product, bias, scale: this order, unlike attention's."""
    if optional and not b.has(il, name + ".weight"):
        return x
    cur = ops.mul_mat(b.need(il, name + ".weight"), x)
    extra = b.w(il, name + ".bias") if bias else None
    if extra is not None:
        cur = ops.add(cur, extra)
    scale = b.w(il, name + ".scale")
    return cur if scale is None else ops.mul(cur, scale)
