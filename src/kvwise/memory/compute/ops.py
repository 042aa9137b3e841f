"""The operations graphs are made of: what ggml_* returns, in shape, strides and sources.

Each method makes one tensor (or the few that the ggml function of that name makes). Nothing
is added to a graph here: `Builder.expand` does that, in llama.cpp's order.
Source: ggml/src/ggml.c, b10605. Arithmetic parameters are left out, they move no byte.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32, GGMLType
from kvwise.memory.compute.graph import Shape, Tensor, contiguous_strides, is_contiguous


class Unbuildable(Exception):
    """The header does not fit the graph that its architecture has: fall back, never guess."""


def new(
    op: str, kind: GGMLType, ne: Shape, src: tuple[Tensor | None, ...] = (), params: float = 0
) -> Tensor:
    """A tensor of its own bytes, without gaps."""
    made = Tensor(op, kind, ne, contiguous_strides(kind, ne), src)
    made.params = params
    return made


def like(op: str, x: Tensor, *src: Tensor | None) -> Tensor:
    """A new tensor with the type and shape of `x` (ggml_dup_tensor); sources: `x`, then `src`."""
    return new(op, x.type, x.ne, (x, *src))


def window(op: str, x: Tensor, ne: Shape, nb: Shape, offset: int = 0) -> Tensor:
    """A view into the storage of `x`."""
    base = x.base
    if base is None:
        return Tensor(op, x.type, ne, nb, (x,), x, offset)
    return Tensor(op, x.type, ne, nb, (x,), base, offset + x.offset)


def onto(op: str, x: Tensor, *src: Tensor | None) -> Tensor:
    """A result that lies in the storage of `x` (ggml_view_tensor), with sources `src`."""
    made = window(op, x, x.ne, x.nb)
    made.src = src
    return made


# -- shapes ---------------------------------------------------------------------------------


def reshape(x: Tensor, ne0: int, ne1: int = 1, ne2: int = 1, ne3: int = 1) -> Tensor:
    ne = (ne0, ne1, ne2, ne3)
    if ne0 * ne1 * ne2 * ne3 != x.elements or not is_contiguous(x):
        raise Unbuildable(f"cannot reshape {x} to {ne}")
    return window("RESHAPE", x, ne, contiguous_strides(x.type, ne))


def view_1d(x: Tensor, ne0: int, offset: int = 0) -> Tensor:
    return view(x, (ne0,), (), offset)


def view_2d(x: Tensor, ne0: int, ne1: int, nb1: int, offset: int = 0) -> Tensor:
    return view(x, (ne0, ne1), (nb1,), offset)


def view_3d(x: Tensor, ne: tuple[int, int, int], nb: tuple[int, int], offset: int = 0) -> Tensor:
    return view(x, ne, nb, offset)


def view(x: Tensor, ne: tuple[int, ...], nb: tuple[int, ...], offset: int = 0) -> Tensor:
    """A view with the strides `nb` of dimensions 1 and up; the rest is without gaps."""
    ne0, ne1, ne2, ne3 = (*ne, 1, 1, 1)[:4]
    size = x.type.size
    given = len(nb)
    nb1 = nb[0] if given else ne0 // x.type.block * size
    nb2 = nb[1] if given > 1 else nb1 * ne1
    nb3 = nb[2] if given > 2 else nb2 * ne2
    return window("VIEW", x, (ne0, ne1, ne2, ne3), (size, nb1, nb2, nb3), offset)


def permute(x: Tensor, a0: int, a1: int, a2: int, a3: int) -> Tensor:
    """Dimension i of `x` becomes dimension a_i."""
    ne, nb = [0] * 4, [0] * 4
    for old, place in enumerate((a0, a1, a2, a3)):
        ne[place], nb[place] = x.ne[old], x.nb[old]
    return window("PERMUTE", x, (*ne,), (*nb,))  # type: ignore[arg-type]


def transpose(x: Tensor) -> Tensor:
    ne, nb = x.ne, x.nb
    return window("TRANSPOSE", x, (ne[1], ne[0], ne[2], ne[3]), (nb[1], nb[0], nb[2], nb[3]))


def cont(x: Tensor, *ne: int) -> Tensor:
    """A copy without gaps, of the same shape or of `ne`."""
    shape = x.ne if not ne else (*ne, 1, 1, 1)[:4]
    return new("CONT", x.type, shape, (x,))  # type: ignore[arg-type]


def cast(x: Tensor, kind: GGMLType) -> Tensor:
    """A copy in another type; ggml makes it its own second source."""
    made = new("CPY", kind, x.ne, (x,))
    made.src = (x, made)
    return made


def cpy(x: Tensor, into: Tensor) -> Tensor:
    return onto("CPY", into, x, into)


def set_rows(into: Tensor, rows: Tensor, where: Tensor) -> Tensor:
    return onto("SET_ROWS", into, rows, where, into)


def get_rows(x: Tensor, which: Tensor) -> Tensor:
    kind = I32 if x.type is I32 else F32
    return new("GET_ROWS", kind, (x.ne[0], which.ne[0], which.ne[1], which.ne[2]), (x, which))


def concat(a: Tensor, b: Tensor, dim: int) -> Tensor:
    ne = list(a.ne)
    ne[dim] += b.ne[dim]
    return new("CONCAT", a.type, (*ne,), (a, b), dim)  # type: ignore[arg-type]


def repeat(x: Tensor, ne0: int, ne1: int = 1, ne2: int = 1, ne3: int = 1) -> Tensor:
    return new("REPEAT", x.type, (ne0, ne1, ne2, ne3), (x,))


def pad(x: Tensor, p0: int, p1: int = 0, p2: int = 0, p3: int = 0) -> Tensor:
    """More elements at the end (or in all) of each dimension."""
    ne = x.ne
    return new("PAD", x.type, (ne[0] + p0, ne[1] + p1, ne[2] + p2, ne[3] + p3), (x,))


# -- arithmetic -----------------------------------------------------------------------------


def add(a: Tensor, b: Tensor) -> Tensor:
    return new("ADD", a.type, a.ne, (a, b))


def add_inplace(a: Tensor, b: Tensor) -> Tensor:
    return onto("ADD", a, a, b)


def sub(a: Tensor, b: Tensor) -> Tensor:
    return new("SUB", a.type, a.ne, (a, b))


def mul(a: Tensor, b: Tensor) -> Tensor:
    return new("MUL", a.type, a.ne, (a, b))


def div(a: Tensor, b: Tensor) -> Tensor:
    return new("DIV", a.type, a.ne, (a, b))


def add_id(x: Tensor, bias: Tensor, ids: Tensor) -> Tensor:
    return new("ADD_ID", x.type, x.ne, (x, bias, ids))


def scale(x: Tensor) -> Tensor:
    return new("SCALE", x.type, x.ne, (x,))


def scale_inplace(x: Tensor) -> Tensor:
    return onto("SCALE", x, x)


def clamp(x: Tensor) -> Tensor:
    return new("CLAMP", x.type, x.ne, (x,))


def sqr(x: Tensor) -> Tensor:
    return new("SQR", x.type, x.ne, (x,))


def sqrt(x: Tensor) -> Tensor:
    return new("SQRT", x.type, x.ne, (x,))


def fill(x: Tensor) -> Tensor:
    return new("FILL", x.type, x.ne, (x,))


def unary(function: str, x: Tensor) -> Tensor:
    """SILU, GELU, RELU, TANH, SIGMOID, EXP, SOFTPLUS, NEG...: ggml's name in capitals."""
    return new("UNARY:" + function, x.type, x.ne, (x,))


def glu(function: str, a: Tensor, b: Tensor | None = None) -> Tensor:
    """SWIGLU, GEGLU, REGLU, SWIGLU_OAI: of two halves, or of one tensor that holds both."""
    if b is not None:
        return new("GLU:" + function, a.type, a.ne, (a, b))
    return new("GLU:" + function, a.type, (a.ne[0] // 2, *a.ne[1:]), (a,))


def rms_norm(x: Tensor) -> Tensor:
    return new("RMS_NORM", x.type, x.ne, (x,))


def layer_norm(x: Tensor) -> Tensor:
    return new("NORM", x.type, x.ne, (x,))


def group_norm(x: Tensor) -> Tensor:
    return new("GROUP_NORM", x.type, x.ne, (x,))


def l2_norm(x: Tensor) -> Tensor:
    return new("L2_NORM", x.type, x.ne, (x,))


def sum_rows(x: Tensor) -> Tensor:
    return new("SUM_ROWS", x.type, (1, *x.ne[1:]), (x,))


def mean(x: Tensor) -> Tensor:
    return new("MEAN", F32, (1, *x.ne[1:]), (x,))


def pool_rows(x: Tensor, size: int) -> Tensor:
    """The maximum of every `size` elements of a row (ggml_pool_2d)."""
    return new("POOL_2D", F32, (x.ne[0] // size, *x.ne[1:]), (x,))


def argsort(x: Tensor) -> Tensor:
    return new("ARGSORT", I32, x.ne, (x,))


def argsort_top_k(x: Tensor, k: int) -> Tensor:
    """The first `k` of a full sort, as a view."""
    order = argsort(x)
    return view(order, (k, *x.ne[1:]), order.nb[1:])


def top_k(x: Tensor, k: int) -> Tensor:
    return new("TOP_K", I32, (k, *x.ne[1:]), (x,))


# -- products and attention -----------------------------------------------------------------


def mul_mat(w: Tensor, x: Tensor) -> Tensor:
    if w.ne[0] != x.ne[0]:
        raise Unbuildable(f"cannot multiply {w} and {x}")
    return new("MUL_MAT", F32, (w.ne[1], x.ne[1], x.ne[2], x.ne[3]), (w, x))


def mul_mat_id(w: Tensor, x: Tensor, ids: Tensor) -> Tensor:
    if w.ne[0] != x.ne[0]:
        raise Unbuildable(f"cannot multiply {w} and {x}")
    return new("MUL_MAT_ID", F32, (w.ne[1], ids.ne[0], x.ne[2], 1), (w, x, ids))


def rope(x: Tensor, positions: Tensor, factors: Tensor | None = None) -> Tensor:
    return new("ROPE", x.type, x.ne, (x, positions) if factors is None else (x, positions, factors))


def rope_back(x: Tensor, positions: Tensor) -> Tensor:
    return new("ROPE_BACK", x.type, x.ne, (x, positions))


def soft_max(x: Tensor, mask: Tensor | None = None, sinks: Tensor | None = None) -> Tensor:
    src = (x,) if mask is None and sinks is None else (x, mask)
    return new("SOFT_MAX", x.type, x.ne, src if sinks is None else (*src, sinks))


def flash_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    sinks: Tensor | None = None,
    max_bias: float = 0.0,
) -> Tensor:
    src = (q, k, v, mask) if sinks is None else (q, k, v, mask, sinks)
    return new("FLASH_ATTN_EXT", F32, (v.ne[0], q.ne[2], q.ne[1], q.ne[3]), src, max_bias)


def mul_mat_hadamard(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotate in pieces of the rotation's size (llama-impl.h, llama_mul_mat_hadamard)."""
    size = rotation.ne[0]
    rows = x.elements // size
    flat = reshape(x, size, rows) if is_contiguous(x) else cont(x, size, rows)
    return reshape(mul_mat(rotation, flat), *x.ne)
