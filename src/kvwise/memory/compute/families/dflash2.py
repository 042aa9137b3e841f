"""DFlash 2: short convolutions around attention and network, and a selector of pairs of tokens.

Source: src/models/dflash.cpp build_dflash2_conv and build_dflash2_selector, b11549.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.graph import Tensor

SELECTOR = "selector_hidden.weight"


def _key(b: Builder, name: str) -> int:
    value = b.model.header.get(name)
    if not isinstance(value, int) or value <= 0:
        raise Unbuildable(f"dflash{name}")
    return value


def selects(b: Builder) -> bool:
    """Whether the file has a selector."""
    return b.top(SELECTOR) is not None


def before(b: Builder, x: Tensor, il: int, part: str) -> tuple[Tensor, Tensor | None]:
    """The convolution before `part` (attn, ffn), and the coefficients of both."""
    if not b.has(il, f"{part}_conv_proj.weight"):
        return x, None
    mixed = ops.mul_mat(b.need(il, f"{part}_conv_proj.weight"), x)
    return _convolved(b, x, mixed, b.need(il, f"{part}_conv_base"), 0), mixed


def after(b: Builder, x: Tensor, mixed: Tensor | None, il: int, part: str) -> Tensor:
    """The convolution after it."""
    if mixed is None:
        return x
    return _convolved(b, x, mixed, b.need(il, f"{part}_conv_base"), 1)


def _convolved(b: Builder, x: Tensor, mixed: Tensor, base: Tensor, side: int) -> Tensor:
    """Each token mixed with those before it in its block, by weights of its own."""
    kernel, group = _key(b, ".conv_kernel_size"), _key(b, ".conv_group_size")
    width, n, blocks = x.ne[0], x.ne[1], b.n_seqs
    if n % blocks or width % group:
        raise Unbuildable("blocks of unequal length")
    groups, length = width // group, n // blocks
    rows = ops.reshape(x, width, length, blocks)
    each = ops.reshape(mixed, groups, kernel, 2, n)
    mine = ops.view_3d(each, (groups, kernel, n), (each.nb[1], each.nb[3]), side * each.nb[2])
    weights = ops.reshape(ops.cont(mine), 1, groups, kernel, n)
    weights = ops.repeat(weights, group, groups, kernel, n)
    start = ops.view_1d(base, width * kernel, side * base.nb[2])
    weights = ops.add(weights, ops.reshape(start, group, groups, kernel, 1))
    result: Tensor | None = None
    for tap in range(min(kernel, length)):
        values = rows
        if tap:
            kept = ops.view_3d(rows, (width, length - tap, blocks), (rows.nb[1], rows.nb[2]))
            values = ops.pad(kept, 0, tap)
        values = ops.reshape(values, width, n)
        weight = ops.view(weights, (group, groups, 1, n), weights.nb[1:], tap * weights.nb[2])
        term = ops.mul(ops.reshape(ops.cont(weight), width, n), values)
        result = term if result is None else ops.add(result, term)
    if result is None:
        raise Unbuildable("an empty block")
    return result


def transformed(b: Builder, x: Tensor) -> Tensor:
    """Scores as the target would give them out."""
    if b.model.f_logit_scale:
        x = ops.scale(x)
    said = b.model.header.get(".final_logit_softcapping")
    if isinstance(said, (int, float)) and said > 0:
        x = ops.scale(ops.unary("TANH", ops.scale(x)))
    return x


def select(b: Builder, scores: Tensor, hidden: Tensor) -> None:
    """Candidates of every position and how well each follows those before it, handed out."""
    best, rank = _key(b, ".selector_top_k"), _key(b, ".selector_rank")
    blocks, width = b.n_seqs, b.n_embd
    if scores.ne[1] % blocks:
        raise Unbuildable("blocks of unequal length")
    each = scores.ne[1] // blocks
    length = min(each, _key(b, ".block_size"))
    found = ops.top_k(scores, best)
    rows = ops.reshape(scores, 1, scores.ne[0], scores.ne[1])
    own = ops.reshape(ops.get_rows(rows, found), best, scores.ne[1])
    gate = ops.mul_mat(b.need_top(SELECTOR), hidden)
    table = (
        ops.reshape(found, best, each, blocks),
        ops.reshape(own, best, each, blocks),
        ops.reshape(gate, rank, each, blocks),
    )
    packed = ops.fill(ops.new("NONE", F32, (width, 1, blocks, 1)))
    if length > 1:
        tokens = b.input("tokens", I32, b.n_tokens)
        anchors = ops.cont(ops.view_2d(tokens, 1, blocks, each * tokens.nb[0]), blocks)
        packed = ops.concat(packed, _run(b, table, 1, 1, anchors), 1)
    if length > 2:
        ids = table[0]
        steps = (ids.nb[1], ids.nb[2])
        earlier = ops.cont(ops.view_3d(ids, (best, length - 2, blocks), steps, ids.nb[1]))
        earlier = ops.reshape(earlier, best * (length - 2) * blocks)
        packed = ops.concat(packed, _run(b, table, 2, length - 2, earlier), 1)
    b.outputs.append(ops.reshape(packed, width, length * blocks))
    b.expand(b.outputs[-1])


def _run(
    b: Builder, table: tuple[Tensor, Tensor, Tensor], start: int, count: int, earlier: Tensor
) -> Tensor:
    """Scores of `count` positions from `start`, whose tokens follow those of `earlier`."""
    blocks = b.n_seqs
    ids, own, gate = (
        ops.cont(ops.view_3d(x, (x.ne[0], count, blocks), x.nb[1:3], start * x.nb[1]))
        for x in table
    )
    best, rank, places = ids.ne[0], gate.ne[0], count * blocks
    many = earlier.ne[0] // places
    later = ops.get_rows(b.need_top("selector_successor.weight"), ops.reshape(ids, best * places))
    later = ops.reshape(later, rank, best, count, blocks)
    first = ops.get_rows(b.need_top("selector_predecessor.weight"), earlier)
    first = ops.reshape(first, rank, many, count, blocks)
    gates = ops.repeat(ops.reshape(gate, rank, 1, count, blocks), *first.ne)
    score = ops.mul_mat(later, ops.mul(first, gates))
    if many == 1:
        score = ops.repeat(score, best, best, count, blocks)
    unary = ops.repeat(ops.reshape(own, best, 1, count, blocks), *score.ne)
    score = ops.add(score, unary)
    flat = ops.reshape(score, best * best, count, blocks)
    row = ops.concat(ops.cast(ids, F32), flat, 0)
    return ops.pad(row, b.n_embd - row.ne[0])
