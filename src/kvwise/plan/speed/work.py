"""What one token costs on each device: bytes read, arithmetic, and what crosses the bus.

Counted from the ledger's own placement: every tensor where the loader puts it, every cache on its
layer's device. A token that is generated reads every weight that takes part in it (of the experts
those it uses) and the cache up to its depth, a sliding window no further than the window, and
reads and writes a recurrent state. A token of a prompt shares the weights with its micro-batch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kvwise.gguf.header import Tensor
from kvwise.gguf.model import Model
from kvwise.gguf.types import by_name
from kvwise.memory import flash
from kvwise.memory.ledger import Cache, Ledger
from kvwise.memory.placement import HOST
from kvwise.memory.weights import Weights, weigh
from kvwise.plan.speed.reads import EXPERTS, LAYER, ONE_ROW_PER_TOKEN, share_used

_OUTPUT = "output.weight"
_EMBEDDINGS = "token_embd.weight"
_STATE_OPERATIONS = 6  # multiplications and additions per element of a recurrent state and token


@dataclass(frozen=True, slots=True)
class Work:
    """One device's part, per token. Bytes and floating point operations.

    `weights` is read per generated token, `all_weights` is everything there, of it `expert_bytes`
    of experts; `matrix_flops` counts the matrices without the output, which a prompt needs for its
    last token only, of it `expert_flops` in the experts a token uses; `cache` and
    `attention_flops` are those at the depth; `foreign_cache` is cache of another device that the
    attention here reads over the bus.
    """

    device: int
    layers: int = 0
    weights: int = 0
    all_weights: int = 0
    cache: int = 0
    foreign_cache: int = 0
    matrix_flops: int = 0
    output_flops: int = 0
    attention_flops: int = 0
    expert_bytes: int = 0
    expert_flops: int = 0
    quantized: bool = False

    @property
    def read_bytes(self) -> int:
        """Bytes that generating one token reads from this device's own memory."""
        return self.weights + self.cache


@dataclass(slots=True)
class _Sum:
    """Parts of one device while they are added up."""

    layers: int = 0
    weights: int = 0
    all_weights: int = 0
    cache: int = 0
    foreign_cache: int = 0
    matrix_flops: int = 0
    output_flops: int = 0
    attention_flops: int = 0
    expert_bytes: int = 0
    expert_flops: int = 0
    quantized_bytes: int = 0

    def done(self, device: int) -> Work:
        return Work(
            device=device,
            layers=self.layers,
            weights=self.weights,
            all_weights=self.all_weights,
            cache=self.cache,
            foreign_cache=self.foreign_cache,
            matrix_flops=self.matrix_flops,
            output_flops=self.output_flops,
            attention_flops=self.attention_flops,
            expert_bytes=self.expert_bytes,
            expert_flops=self.expert_flops,
            quantized=2 * self.quantized_bytes > self.all_weights,
        )


def work(ledger: Ledger, depth: int) -> tuple[Work, ...]:
    """Each device's part with `depth` tokens in one slot's context: the GPUs in order, the host
    last. The parts run one after the other."""
    sums = {number: replace(each) for number, each in _weights(ledger).sums.items()}
    for device in ledger.placement.layers:
        sums[device].layers += 1
    leaves = flash.attention_leaves(ledger.model, ledger.context, ledger.placement, ledger.devices)
    for cache in ledger.caches:
        _add_cache(ledger, cache, depth, sums, leaves=leaves)
    return tuple(each.done(device) for device, each in sums.items())


@dataclass(frozen=True, slots=True)
class _Weighed:
    """What the weights of one placement cost on each device, and layers whose experts are away."""

    weights: Weights  # kept, so that its identity stays its own
    sums: dict[int, _Sum]
    away: frozenset[int]


_KNOWN: OrderedDict[tuple[int, int], _Weighed] = OrderedDict()
_MOST_KNOWN = 256


def _weights(ledger: Ledger) -> _Weighed:
    """The same placement is asked about at many contexts and cache types: each is counted once."""
    model = ledger.model
    devices = ledger.devices[: ledger.placement.n_gpu]
    found = weigh(model, ledger.launch, ledger.placement, devices)
    key = id(found), ledger.placement.n_gpu
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.popitem(last=False)
        sums = {number: _Sum() for number in (*range(ledger.placement.n_gpu), HOST)}
        _add_weights(model, found.where, sums)
        _KNOWN[key] = _Weighed(found, sums, _away(found.where, ledger.placement.layers))
    return _KNOWN[key]


def _add_weights(model: Model, where: Mapping[str, int], sums: dict[int, _Sum]) -> None:
    if model.tied_embeddings and _EMBEDDINGS in where:  # on one device they are loaded once
        where = {_OUTPUT: where[_EMBEDDINGS], **where}
    for slot, device in where.items():
        tensor = _tensor(model, slot)
        if tensor is None or (slot != _OUTPUT and slot.startswith(ONE_ROW_PER_TOKEN)):
            continue
        total, size = sums[device], tensor.nbytes
        experts = EXPERTS.search(slot) is not None
        share = share_used(model, tensor) if experts else 1.0
        total.weights += round(size * share)
        total.all_weights += size
        if tensor.type.quantized:
            total.quantized_bytes += size
        if len(tensor.shape) > 1:
            flops = round(2 * tensor.elements * share)
            if slot == _OUTPUT:
                total.output_flops += flops
            else:
                total.matrix_flops += flops
                total.expert_flops += flops if experts else 0
        total.expert_bytes += size if experts else 0


def _away(where: Mapping[str, int], homes: Sequence[int]) -> frozenset[int]:
    """Layers whose experts are not at home."""
    found = set()
    for slot, device in where.items():
        match = LAYER.match(slot) if "exps" in slot else None
        if match and EXPERTS.search(slot) and int(match[1]) < len(homes):
            layer = int(match[1])
            if homes[layer] != device:
                found.add(layer)
    return frozenset(found)


def switches(ledger: Ledger) -> int:
    """How often the work of one token goes from one device to another."""
    homes = ledger.placement.layers
    away = set(_weights(ledger).away)  # there and back
    for cache in ledger.caches if not ledger.context.offload_kqv else ():
        away |= {layer for layer in cache.layers if layer < len(homes) and homes[layer] != HOST}
    borders = sum(1 for one, other in pairwise((*homes, ledger.placement.output)) if one != other)
    return 2 * len(away) + borders


def _tensor(model: Model, slot: str) -> Tensor | None:
    """The row of the tensor table behind a slot of the loader; a tied output is the embeddings."""
    found = model.header.by_name.get(slot)
    if found is None and slot == _OUTPUT:
        return model.header.by_name.get(_EMBEDDINGS)
    return found


def _add_cache(
    ledger: Ledger, cache: Cache, depth: int, sums: dict[int, _Sum], *, leaves: bool
) -> None:
    rows = max(1, min(cache.cells, -(-depth // max(1, cache.ratio))))
    for index, layer in enumerate(cache.layers):
        home = ledger.placement.of(layer) if layer < len(ledger.placement.layers) else HOST
        lies = home if ledger.context.offload_kqv else HOST
        attends = HOST if leaves else lies
        total = sums[attends]
        size, flops = _layer(ledger.model, cache, index, layer, rows)
        if attends == lies:
            total.cache += size
        else:
            total.foreign_cache += size
        total.attention_flops += flops


def _layer(model: Model, cache: Cache, index: int, layer: int, rows: int) -> tuple[int, int]:
    """(bytes read, operations) of one layer of a cache for one token."""
    if cache.kind != "kv":
        held = 1 + cache.n_rs_seq
        whole = cache.nbytes // max(1, len(cache.layers) * cache.cells * held)
        return 2 * whole, _STATE_OPERATIONS * whole // 4
    k_row = cache.k_row[index]
    v_row = cache.v_row[index] if index < len(cache.v_row) else 0
    size = (_row_bytes(cache.type_k, k_row) + _row_bytes(cache.type_v, v_row)) * rows
    heads = max(1, model.n_head[layer]) if layer < len(model.n_head) else 1
    kv_heads = max(1, model.n_head_kv[layer]) if layer < len(model.n_head_kv) else 1
    if model.is_mla:  # every head attends to the same latent row
        return size, 2 * heads * (k_row + model.n_lora_kv) * rows
    return size, 2 * heads * (k_row + v_row) // kv_heads * rows


def _row_bytes(name: str, elements: int) -> int:
    element = by_name(name) if elements else None
    return element.row_bytes(elements) if element else 0
