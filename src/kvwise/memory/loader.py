"""Where llama.cpp's loader puts each weight: the buffer type of every tensor of a model.

A weight goes to the first buffer type on the list of its part (input: host; layer: the layer's
device, then the host; output: the output's device, then the host) whose device runs the
operation it is for. Host lists are: pinned memory of the first GPU that has it, the repacked
buffer, plain memory.

Source: src/llama-model.cpp load_tensors and make_cpu_buft_list, src/llama-model-loader.cpp
create_tensor and select_weight_buft, src/models/*.cpp load_arch_tensors, b10605.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from kvwise.errors import Refused
from kvwise.gguf.header import Tensor
from kvwise.gguf.model import Model
from kvwise.memory import repack, support
from kvwise.memory.backends import BackendKind, tensor_size
from kvwise.memory.placement import HOST
from kvwise.memory.roles import Part, Role, role_of
from kvwise.memory.skipped import is_skipped

CPU = "CPU"

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

EXPERTS = frozenset(
    f"ffn_{part}_{kind}"
    for part in ("up", "down", "gate", "gate_up")
    for kind in ("exps", "chexps")
)
"""What `-cmoe` and `-ncmoe` keep on the host (common/common.h LLM_FFN_EXPS_REGEX)."""

OUTPUT = "output.weight"
EMBEDDINGS = "token_embd.weight"


class Spot(NamedTuple):
    """One buffer type: device number (`HOST` = host memory) and its name on that device."""

    device: int
    buffer: str


class Piece(NamedTuple):
    """A weight to place: `slot` says what it is loaded as; `shared` ones are once in a buffer."""

    slot: str
    tensor: Tensor
    role: Role
    shared: bool


class Load(NamedTuple):
    """Weights of one layer (or part) that land in one buffer.

    `name` is set for a load of one weight that may be there already; `spans` are byte ranges of
    the file's data, `(shard, first, last)`; `largest` is the size of the largest weight.
    """

    spot: Spot
    size: int
    slots: tuple[str, ...]
    spans: tuple[tuple[int, int, int], ...]
    name: str = ""
    shared: bool = False
    largest: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides besides the tensor: kinds of the devices, pinned memory, overrides.

    `pinned` is the device whose pinned host memory is used, or HOST; `features` those of the
    processor, empty = no repacking; an override to None is to the host's own list; experts of the
    first `n_cpu_moe` layers stay on the host. `fused_left`: builds.FUSED_EXPERTS_LEFT.
    """

    kinds: tuple[BackendKind, ...] = ()
    names: tuple[str, ...] = ()
    pinned: int = HOST
    features: tuple[str, ...] = ()
    mmap: bool = False
    load_mtp: bool = False
    fused_left: bool = False
    n_cpu_moe: int = 0
    overrides: tuple[tuple[re.Pattern[str], Spot | None], ...] = ()


Group = tuple[Part, int]


@dataclass(eq=False)
class Shelf:
    """The weights of a model under some rules, settled group by group when asked."""

    model: Model
    rules: Rules
    groups: Mapping[Group, Sequence[Piece]]
    skipped: tuple[str, ...]
    plain: Shelf | None = None  # the same without overrides, for what none of them hits
    _settled: dict[tuple[Group, int], tuple[Load, ...]] = field(default_factory=dict)

    def settle(self, group: Group, home: int) -> tuple[Load, ...]:
        """Where the weights of a group go when its part is placed on device `home`."""
        key = (group, home)
        found = self._settled.get(key)
        if found is None:
            if self.plain is not None and not self._is_moved(group):
                found = self.plain.settle(group, home)
            else:
                found = tuple(_loads(self.model, self.groups.get(group, ()), home, self.rules))
            self._settled[key] = found
        return found

    def _is_moved(self, group: Group) -> bool:
        """Whether an override hits a weight of the group, or its experts stay on the host."""
        if 0 <= group[1] < self.rules.n_cpu_moe:
            return True
        return any(group in _hit(self.model, pattern) for pattern, _ in self.rules.overrides)


@lru_cache(maxsize=64)
def shelf(model: Model, rules: Rules) -> Shelf:
    """The weights of a model, grouped. Raises Refused when a needed matrix is missing."""
    groups, skipped = _grouped(model, rules.load_mtp, rules.fused_left)
    plain = None
    if rules.overrides or rules.n_cpu_moe:
        plain = shelf(model, replace(rules, overrides=(), n_cpu_moe=0))
    return Shelf(model, rules, groups, skipped, plain)


@lru_cache(maxsize=16)
def _grouped(
    model: Model, load_mtp: bool, fused_left: bool
) -> tuple[Mapping[Group, Sequence[Piece]], tuple[str, ...]]:
    groups: dict[Group, list[Piece]] = {}
    skipped: list[str] = []
    for tensor in model.header.tensors:
        role = role_of(tensor.name, model.architecture)
        if is_skipped(model, role, load_mtp=load_mtp, fused_left=fused_left):
            skipped.append(tensor.name)
            continue
        piece = Piece(tensor.name, tensor, role, shared=role.part == "rope")
        groups.setdefault(_group_of(model, role), []).append(piece)
    tied = _tied_output(model)
    if tied is not None:
        role = role_of(OUTPUT, model.architecture)
        # loaded first it finds no embeddings to share, loaded last it may
        shared = model.architecture not in OUTPUT_FIRST
        groups.setdefault(("output", -1), []).append(Piece(OUTPUT, tied, role, shared))
    output = model.header.by_name.get(OUTPUT)
    if looks_up_output(model) and output is not None:
        piece = Piece(EMBEDDINGS, output, role_of(OUTPUT, model.architecture), False)
        groups.setdefault(("output", -1), []).append(piece)
    return groups, tuple(skipped)


def looks_up_output(model: Model) -> bool:
    """CodeShell without token embeddings takes the output matrix for them: a second copy of it,
    with the output. Source: src/models/codeshell.cpp, b10605."""
    return model.architecture == "codeshell" and EMBEDDINGS not in model.header.by_name


def _group_of(model: Model, role: Role) -> Group:
    return role.part, min(role.layer, max(model.n_layer_all - 1, 0))


@lru_cache(maxsize=1024)
def _hit(model: Model, pattern: re.Pattern[str]) -> frozenset[Group]:
    """Groups with a weight whose name the pattern finds."""
    return frozenset(
        _group_of(model, role_of(tensor.name, model.architecture))
        for tensor in model.header.tensors
        if pattern.search(tensor.name)
    ) | (frozenset({("output", -1)}) if _tied_output(model) is not None else frozenset())


def _tied_output(model: Model) -> Tensor | None:
    names = model.header.by_name
    if OUTPUT in names or not names or model.architecture in NO_TIE:
        return None
    if model.architecture in OUTPUT_NEEDED:
        raise Refused(
            "missing_tensor",
            "missing tensor 'output.weight': {arch} has no tied embeddings",
            hint="the file is incomplete, or made for another engine",
            arch=model.architecture,
        )
    return names.get(EMBEDDINGS)


def rope_layers(model: Model) -> Iterator[int]:
    """Layers that hold RoPE factors: Gemma 4 only those without a window, loops only once."""
    count = model.n_layer // max(1, model.n_loops)
    for layer in range(count or model.n_layer_all):  # an assistant is nothing but MTP layers
        if not (model.architecture.startswith("gemma4") and model.is_swa(layer)):
            yield layer


def _loads(model: Model, pieces: Iterable[Piece], home: int, rules: Rules) -> Iterator[Load]:
    heaps: dict[Spot, list[Piece]] = {}
    for piece in pieces:
        spot = _spot(model, piece, home, rules)
        if piece.shared or piece.slot == EMBEDDINGS:
            yield _load(spot, [piece], rules, name=piece.tensor.name, shared=piece.shared)
        else:
            heaps.setdefault(spot, []).append(piece)
    for spot, members in heaps.items():
        yield _load(spot, members, rules)


def _load(
    spot: Spot, pieces: list[Piece], rules: Rules, *, name: str = "", shared: bool = False
) -> Load:
    kind = None if spot.device == HOST else rules.kinds[spot.device]
    size = largest = 0
    spans: dict[int, tuple[int, int]] = {}
    for piece in pieces:
        tensor = piece.tensor
        row = tensor.shape[0] if tensor.shape else 0
        one = tensor_size(kind, tensor.type, row, tensor.nbytes)
        size, largest = size + one, max(largest, one)
        first, last = spans.get(tensor.shard, (tensor.offset, 0))
        end = tensor.offset + tensor.nbytes
        spans[tensor.shard] = (min(first, tensor.offset), max(last, end))
    slots = tuple(piece.slot for piece in pieces)
    ranges = tuple((shard, first, last) for shard, (first, last) in spans.items())
    return Load(spot, size, slots, ranges, name, shared, largest)


def _spot(model: Model, piece: Piece, home: int, rules: Rules) -> Spot:
    for pattern, target in rules.overrides:
        if pattern.search(piece.tensor.name):
            return _host_spot(model, piece, rules) if target is None else target
    if 0 <= piece.role.layer < rules.n_cpu_moe and piece.role.base in EXPERTS:
        return _host_spot(model, piece, rules)
    if home != HOST and support.runs(model, rules.kinds[home], piece.role.op, piece.tensor):
        return Spot(home, rules.names[home])
    return _host_spot(model, piece, rules)


def _host_spot(model: Model, piece: Piece, rules: Rules) -> Spot:
    op, tensor = piece.role.op, piece.tensor
    if rules.pinned != HOST and support.runs(model, rules.kinds[rules.pinned], op, tensor):
        # a mapped file is read in place: no pinned copy
        return Spot(HOST, CPU if rules.mmap else rules.kinds[rules.pinned].host_buffer)
    if rules.features and repack.is_repacked(op, tensor, rules.features):
        return Spot(HOST, repack.BUFFER)
    return Spot(HOST, CPU)
