"""Bytes of an image encoder's compute buffers, on its device and on the host.

The scheduler has the encoder's device and the processor; nothing is pinned. Where the graph of
a kind is not known, the plain transformer of its weights gives an upper estimate.
Source: tools/mtmd/clip.cpp warmup, reserve_compute_meta, clip_encode, b10605.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvwise.memory.compute import ops
from kvwise.memory.compute.allocate import peaks
from kvwise.memory.compute.backend import Backend
from kvwise.memory.compute.graph import Graph, Tensor
from kvwise.memory.compute.ops import Unbuildable
from kvwise.memory.compute.schedule import schedule
from kvwise.memory.ledger import Basis
from kvwise.memory.parts.vision.eye import Eye
from kvwise.memory.parts.vision.sight import Picture, Sight
from kvwise.memory.parts.vision.towers import TOWERS, Tower

FLOAT = 4
ALIVE = 4
"""Rows as wide as the widest weight that a projector of unknown graph may hold at once."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes per backend (the processor last) for one image size; `why` says what is not known."""

    sizes: tuple[int, ...]
    basis: Basis
    n_nodes: int = 0
    why: str = ""


def measure(
    eye: Eye, grid: tuple[int, int], backends: Sequence[Backend], flash: str, tiles: int = 1
) -> Measured:
    """Compute buffers for an image of `grid` patches; `flash` is auto, on or off.

    Flash attention that was not asked for is off when the device does not run it.
    """
    picture = Picture(*grid, tiles, flash != "off")
    tower = TOWERS.get(eye.kind)
    why = "" if tower else f"no graph for the projector {eye.kind}"
    if tower is not None:
        try:
            graph = _graph(eye, picture, tower, backends, flash)
        except Unbuildable as reason:
            why = str(reason)
        else:
            return Measured(_sizes(graph, backends), "computed", len(graph.nodes))
    return _estimated(eye, picture, backends, flash, why)


def _graph(
    eye: Eye, picture: Picture, tower: Tower, backends: Sequence[Backend], flash: str
) -> Graph:
    sight = Sight(eye, picture)
    graph = sight.finish(tower(sight))
    if picture.flash and flash == "auto" and not _attends(graph, backends[0]):
        sight = Sight(eye, replace(picture, flash=False))
        graph = sight.finish(tower(sight))
    left = unused(eye, graph)
    if left:
        raise Unbuildable(f"the graph does not use {left}")
    return graph


def _attends(graph: Graph, backend: Backend) -> bool:
    found = (node for node in graph.nodes if node.op == "FLASH_ATTN_EXT")
    return all(backend.supports(node) for node in found)


def unused(eye: Eye, graph: Graph) -> str:
    """A loaded weight that the graph does not use; the last layers of LLaVA are never used."""
    skipped = {f"v.blk.{eye.n_layer - 1}."} if eye.kind == "mlp" else set()
    for tensor in eye.header.tensors:
        name = tensor.name
        if name in graph.weights or not name.startswith(("v.", "mm.")) or not loaded(name):
            continue
        if name.startswith("mm.a.") or name in {"v.image_newline", "v.view_seperator"}:
            continue
        if not name.startswith(tuple(skipped) or "\0"):
            return name
    return ""


def loaded(name: str) -> bool:
    """Bounds of clamped products are read as numbers and take no place in the buffer."""
    return not name.endswith((".input_max", ".input_min", ".output_max", ".output_min"))


def _sizes(graph: Graph, backends: Sequence[Backend]) -> tuple[int, ...]:
    return tuple(peaks(schedule(graph, backends), backends))


def _estimated(
    eye: Eye, picture: Picture, backends: Sequence[Backend], flash: str, why: str
) -> Measured:
    """The transformer alone, and room for a projector as wide as any weight."""
    widest = max(
        (side for t in eye.header.tensors if t.name.startswith("mm.") for side in t.shape),
        default=0,
    )
    room = ALIVE * max(widest, eye.n_embd) * picture.patches * picture.tiles * FLOAT
    try:
        sight = Sight(eye, picture)
        graph = sight.finish(_plain(sight))
        if picture.flash and flash == "auto" and not _attends(graph, backends[0]):
            sight = Sight(eye, replace(picture, flash=False))
            graph = sight.finish(_plain(sight))
        found = list(_sizes(graph, backends))
    except Unbuildable:
        found = [0] * len(backends)
        found[0] = _closed(eye, picture)
    if eye.masked:  # in f32, and in f16 for one layer and the next
        room += 2 * FLOAT * picture.patches**2
    found[0] += room
    return Measured(tuple(found), "estimated", why=why)


def _plain(sight: Sight) -> Tensor:
    """Positions as two rotations, so that no copy of Q and K is missed."""
    across, down = sight.grid_positions("pos_x", "pos_y")
    patches = sight.picture.patches
    return sight.vit(
        sight.embedded(), patches, rotate=lambda x: ops.rope(ops.rope(x, across), down)
    )


def _closed(eye: Eye, picture: Picture) -> int:
    """Scores of all heads, and a dozen rows as wide as the widest weight."""
    widest = max((max(t.shape, default=0) for t in eye.header.tensors), default=0)
    rows = picture.patches * picture.tiles
    wide = min(widest, 16 * eye.n_embd)
    scores = 0 if picture.flash else 2 * eye.n_head * rows * picture.patches
    return FLOAT * (scores + 12 * rows * wide)
