"""Which weight lands in which buffer of which device, and the bytes of each buffer.

llama.cpp makes one buffer per buffer type. A weight goes to the first buffer type on the list of
its part (input: host; layer: the layer's device, then the host; output: the output's device,
then the host) whose device runs the operation it is for. Host lists are: pinned memory of the
first GPU that has it, the repacked buffer, plain memory.

Source: src/llama-model.cpp load_tensors and make_cpu_buft_list, src/llama-model-loader.cpp
create_tensor, select_weight_buft and get_mapping_range, b10605.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from kvwise.device import Device, Host
from kvwise.errors import Refused, UsageError
from kvwise.gguf.header import Tensor
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory import repack, support
from kvwise.memory.backends import BackendKind, kind_of, tensor_size
from kvwise.memory.placement import HOST, Placement, buffer_name
from kvwise.memory.roles import Role, role_of
from kvwise.memory.skipped import is_skipped

CPU = "CPU"
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""What `-cmoe` and `-ncmoe` keep on the host (common/common.h LLM_FFN_EXPS_REGEX)."""

NO_TIE = frozenset(
    {
        "bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert",
        "neo-bert", "eurobert", "bitnet", "eagle3", "dflash",
    }
)  # fmt: skip
"""Architectures that never load the token embeddings a second time as the output matrix."""

OUTPUT_FIRST = frozenset({"gemma3n", "gemma4"})
"""Architectures that load the tied output before the embeddings: always two copies."""

OUTPUT_NEEDED = frozenset(
    {
        "apertus", "arwkv7", "baichuan", "bailingmoe", "bailingmoe2", "codeshell", "dbrx",
        "deepseek4", "dots1", "exaone-moe", "gpt-oss", "gptneox", "internlm2", "jais", "kimi-k3",
        "kimi-linear", "llada-moe", "mellum", "mimo2", "minimax-m2", "minimax-m3", "muse-glimmer",
        "nemotron", "olmo2", "olmoe", "orion", "phi2", "phimoe", "plamo", "qwen", "qwen2moe",
        "rwkv6", "rwkv6qwen2", "rwkv7", "stablelm", "talkie", "wavtokenizer-dec", "xverse",
    }
)  # fmt: skip
"""Architectures whose loader insists on `output.weight`."""


class Spot(NamedTuple):
    """One buffer type: device number (`HOST` = host memory) and its name on that device."""

    device: int
    buffer: str


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes per buffer, and where each tensor went.

    `mapped` are the spots whose bytes are a span of the file itself, mapped, one span per shard
    (the engine prints them as `CPU_Mapped`). `where` gives the device number of each loaded
    tensor; a tied output is under `output.weight`, RoPE factors are on every device of a layer.
    """

    by_spot: dict[Spot, int]
    mapped: dict[Spot, tuple[int, ...]]
    where: dict[str, int]
    skipped: tuple[str, ...] = ()

    def on(self, device: int) -> int:
        """Bytes on one device."""
        return sum(size for spot, size in self.by_spot.items() if spot.device == device)


class _Piece(NamedTuple):
    """A weight to place: `slot` is its name in `where`; `shared` ones are once in a buffer."""

    slot: str
    tensor: Tensor
    role: Role
    shared: bool


@dataclass(slots=True)
class _Heap:
    """One buffer while it is filled."""

    size: int = 0
    names: set[str] = field(default_factory=set)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What decides besides the tensor: kinds of the devices, pinned memory, overrides."""

    kinds: tuple[BackendKind, ...]
    names: tuple[str, ...]
    pinned: int  # the device whose pinned host memory is used, or HOST
    features: tuple[str, ...]  # of the processor; empty = no repacking
    mmap: bool
    overrides: tuple[tuple[re.Pattern[str], Spot | None], ...]  # None = the host's own list


def weigh(
    model: Model,
    launch: Launch,
    placement: Placement,
    devices: Sequence[Device],
    host: Host | None = None,
) -> Weights:
    """Place every weight; `devices` are those that `placement.select` chose.

    Raises UsageError for an override that is no pattern or names no buffer, Refused when the
    file lacks a matrix that the architecture needs.
    """
    features = tuple(host.cpu_features) if host and host.cpu_features else repack.ASSUMED
    key = _Key(
        layers=placement.layers,
        output=placement.output,
        devices=tuple((kind_of(device), buffer_name(device)) for device in devices),
        override_tensor=launch.override_tensor,
        n_cpu_moe=launch.n_cpu_moe,
        load_mtp=launch.load_mtp,
        mmap=launch.mmap,
        features=features if launch.repack else (),
    )
    return _weigh(model, key)


class _Key(NamedTuple):
    """All that decides where the weights of a model go."""

    layers: tuple[int, ...]
    output: int
    devices: tuple[tuple[BackendKind, str], ...]
    override_tensor: tuple[tuple[str, str], ...]
    n_cpu_moe: int
    load_mtp: bool
    mmap: bool
    features: tuple[str, ...]


@lru_cache(maxsize=256)
def _weigh(model: Model, key: _Key) -> Weights:
    kinds, names = tuple(kind for kind, _ in key.devices), tuple(name for _, name in key.devices)
    pinned = next((number for number, kind in enumerate(kinds) if kind.host_buffer), HOST)
    rules = _Rules(kinds, names, pinned, key.features, key.mmap, _overrides(key, names))
    pieces, skipped = _pieces(model, key.load_mtp)
    heaps: dict[Spot, _Heap] = {}
    where: dict[str, int] = {}
    for piece in pieces:
        for home in _homes(model, piece, key.layers, key.output):
            spot = _spot(model, piece, home, rules)
            where[piece.slot] = spot.device
            _put(heaps.setdefault(spot, _Heap()), spot, piece, rules)
    return _totals(heaps, where, skipped, rules)


def _totals(
    heaps: dict[Spot, _Heap], where: dict[str, int], skipped: tuple[str, ...], rules: _Rules
) -> Weights:
    mapped = {
        spot: tuple(last - first for first, last in heap.spans.values())
        for spot, heap in heaps.items()
        if rules.mmap and _maps(spot, rules)
    }
    by_spot = {
        spot: sum(mapped[spot]) if spot in mapped else heap.size for spot, heap in heaps.items()
    }
    return Weights(by_spot, mapped, where, skipped)


def _maps(spot: Spot, rules: _Rules) -> bool:
    if spot.device == HOST:
        return spot.buffer == CPU
    return rules.kinds[spot.device].maps_host


@lru_cache(maxsize=64)
def _pieces(model: Model, load_mtp: bool) -> tuple[tuple[_Piece, ...], tuple[str, ...]]:
    """The weights in the order in which they are loaded, and the names of those left out."""
    pieces, skipped = [], []
    for tensor in model.header.tensors:
        role = role_of(tensor.name, model.architecture)
        if is_skipped(model, role, load_mtp=load_mtp):
            skipped.append(tensor.name)
        else:
            pieces.append(_Piece(tensor.name, tensor, role, shared=role.part == "rope"))
    tied = _tied_output(model)
    if tied is not None:
        role = role_of("output.weight", model.architecture)
        # made first it finds no embeddings to share; made last it may
        alone = model.architecture in OUTPUT_FIRST
        pieces.append(_Piece("output.weight", tied, role, shared=not alone))
    return tuple(pieces), tuple(skipped)


def _tied_output(model: Model) -> Tensor | None:
    names = model.header.by_name
    if "output.weight" in names or not names or model.architecture in NO_TIE:
        return None
    if model.architecture in OUTPUT_NEEDED:
        raise Refused(
            "missing_tensor",
            "missing tensor 'output.weight': {arch} has no tied embeddings",
            hint="the file is incomplete, or made for another engine",
            arch=model.architecture,
        )
    return names.get("token_embd.weight")


def _homes(model: Model, piece: _Piece, layers: tuple[int, ...], output: int) -> Iterator[int]:
    """Device numbers whose list this weight is placed by: one, or one per layer for RoPE."""
    part = piece.role.part
    if part == "input":
        yield HOST
    elif part == "output":
        yield output
    elif part == "layer":
        yield layers[min(piece.role.layer, len(layers) - 1)] if layers else HOST
    else:
        yield from dict.fromkeys(layers[layer] for layer in _rope_layers(model))


def _rope_layers(model: Model) -> Iterator[int]:
    """Layers that hold RoPE factors: Gemma 4 only those without a window."""
    for layer in range(model.n_layer):
        if not (model.architecture.startswith("gemma4") and model.is_swa(layer)):
            yield layer


def _spot(model: Model, piece: _Piece, home: int, rules: _Rules) -> Spot:
    for pattern, target in rules.overrides:
        if pattern.search(piece.tensor.name):
            return _host_spot(model, piece, rules) if target is None else target
    if home != HOST and support.runs(model, rules.kinds[home], piece.role.op, piece.tensor):
        return Spot(home, rules.names[home])
    return _host_spot(model, piece, rules)


def _host_spot(model: Model, piece: _Piece, rules: _Rules) -> Spot:
    op, tensor = piece.role.op, piece.tensor
    if rules.pinned != HOST and support.runs(model, rules.kinds[rules.pinned], op, tensor):
        # a mapped file is read in place: no pinned copy
        return Spot(HOST, CPU if rules.mmap else rules.kinds[rules.pinned].host_buffer)
    if rules.features and repack.is_repacked(op, tensor, rules.features):
        return Spot(HOST, repack.BUFFER)
    return Spot(HOST, CPU)


def _put(heap: _Heap, spot: Spot, piece: _Piece, rules: _Rules) -> None:
    tensor = piece.tensor
    if piece.shared and tensor.name in heap.names:
        return
    kind = None if spot.device == HOST else rules.kinds[spot.device]
    heap.size += tensor_size(
        kind, tensor.type, tensor.shape[0] if tensor.shape else 0, tensor.nbytes
    )
    heap.names.add(tensor.name)
    first, last = tensor.offset, tensor.offset + tensor.nbytes
    old = heap.spans.get(tensor.shard)
    heap.spans[tensor.shard] = (min(first, old[0]), max(last, old[1])) if old else (first, last)


def _overrides(
    key: _Key, names: tuple[str, ...]
) -> tuple[tuple[re.Pattern[str], Spot | None], ...]:
    asked = [(_pattern(text), _target(target, names)) for text, target in key.override_tensor]
    experts = (
        (re.compile(rf"blk\.{layer}{EXPERTS}"), None)
        for layer in range(min(key.n_cpu_moe, len(key.layers)))
    )
    return (*asked, *experts)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(
            "{text!r} is not a pattern: {why}", text=text, why=str(error), hint="see -ot"
        ) from error


def _target(name: str, names: tuple[str, ...]) -> Spot | None:
    if name.upper() == CPU:
        return None
    if name in names:
        return Spot(names.index(name), name)
    raise UsageError(
        "-ot names the buffer {name!r}, which is not there",
        hint="buffers here: {known}",
        name=name,
        known=", ".join((CPU, *names)),
    )
