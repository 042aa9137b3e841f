"""LoRA adapters: each pair of matrices is in the buffer of the weight that it changes.

Source: src/llama-adapter.cpp llama_adapter_lora_init_impl, src/llama-graph.cpp build_lora_mm,
b10605.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvwise.errors import ModelError
from kvwise.gguf.header import Header, Tensor
from kvwise.memory.backends import kind_of, tensor_size
from kvwise.memory.ledger import Extra
from kvwise.memory.loader import CPU, OUTPUT, Spot
from kvwise.memory.made import Made, host_compute_buffer
from kvwise.memory.parts.seats import Seats
from kvwise.memory.placement import HOST, buffer_name
from kvwise.memory.repack import BUFFER as REPACKED
from kvwise.text import Phrase, phrase

ENDINGS = (".lora_a", ".lora_b")
NORM = "_norm.weight"
"""Norms of an adapter, which the engine does not load."""

FLOAT = 4
ALIVE = 2
"""Results of an adapter's last product and its scaled copy that stand beside the plain one."""


def extras(target: Made, adapters: tuple[Header, ...], seats: Seats) -> Iterator[Extra]:
    """A line per adapter and buffer. Raises ModelError for an adapter of another model."""
    for adapter in adapters:
        yield from _weights(target, adapter, seats)
    if adapters:
        yield from _compute(target, adapters, seats)


def _weights(target: Made, adapter: Header, seats: Seats) -> Iterator[Extra]:
    if adapter.architecture != target.model.architecture:
        raise ModelError(
            "the adapter is for {theirs}, the model is {ours}",
            hint="an adapter only fits the model it was trained on",
            theirs=adapter.architecture or "?",
            ours=target.model.architecture,
        )
    homes = _homes(target)
    sizes: Counter[Spot] = Counter()
    counts: Counter[Spot] = Counter()
    for tensor in pairs(adapter):
        spot = homes.get(base_name(tensor.name))
        if spot is None:
            raise ModelError(
                "the adapter changes {tensor}, which the model does not have",
                hint="an adapter only fits the model it was trained on",
                tensor=base_name(tensor.name),
            )
        kind = None if spot.device == HOST else kind_of(target.devices[spot.device])
        row = tensor.shape[0] if tensor.shape else 0
        sizes[spot] += tensor_size(kind, tensor.type, row, tensor.nbytes)
        counts[spot] += 1
    for spot, size in sizes.items():
        yield Extra(
            of="lora",
            name=_name(adapter),
            buffer=spot.buffer,
            device=_seat(target, spot.device, seats),
            weights_bytes=size,
            basis={"weights": "computed"},
            reasons={
                "weights": phrase(
                    "{count} tensors in the buffers of the weights they change "
                    "(src/llama-adapter.cpp, {build})",
                    count=counts[spot],
                    build=target.launch.build,
                )
            },
        )


def pairs(adapter: Header) -> Iterator[Tensor]:
    """The tensors of an adapter that are loaded. Raises ModelError for one of another kind."""
    for tensor in adapter.tensors:
        if tensor.name.endswith(ENDINGS):
            yield tensor
        elif not tensor.name.endswith(NORM):
            raise ModelError("{tensor} is no tensor of a LoRA adapter", tensor=tensor.name)


def base_name(name: str) -> str:
    """The weight that a tensor of an adapter belongs to."""
    return name.removesuffix(ENDINGS[0]).removesuffix(ENDINGS[1])


def _homes(target: Made) -> dict[str, Spot]:
    """The buffer of every loaded weight; repacked ones have their adapter in plain memory."""
    found: dict[str, Spot] = {}
    for load in target.weights.loads:
        spot = load.spot
        plain = Spot(HOST, CPU) if spot.buffer == REPACKED else spot
        for slot in load.slots:
            # a tied output is a tensor of the same name: the engine finds the embeddings first
            found.setdefault(slot, plain)
    return found


def _seat(target: Made, number: int, seats: Seats) -> int:
    return HOST if number == HOST else seats.number(target.devices[number])


def _name(adapter: Header) -> str:
    name = adapter.get("general.name")
    return name if isinstance(name, str) and name else adapter.path


def _compute(target: Made, adapters: tuple[Header, ...], seats: Seats) -> Iterator[Extra]:
    """Room for the products of the widest adapted weight on each device: an upper estimate.

    Each adapted product becomes B(A x) scaled and added: rank and width rows per token.
    """
    n_tokens = min(target.context.n_ctx, target.context.n_ubatch)
    homes = _homes(target)
    room: dict[int, int] = {}
    for adapter in adapters:
        for tensor in pairs(adapter):
            if not tensor.name.endswith(ENDINGS[1]) or len(tensor.shape) < 2:
                continue
            base = base_name(tensor.name)
            rows = min(n_tokens, target.context.n_outputs_max) if base == OUTPUT else n_tokens
            size = ALIVE * sum(tensor.shape[:2]) * rows * FLOAT  # rank and width
            device = homes[base].device
            room[device] = max(room.get(device, 0), size)
    why: Phrase = phrase(
        "upper estimate: the products of the widest adapted weight for {tokens} tokens",
        tokens=n_tokens,
    )
    for device, size in room.items():
        own = device == HOST
        buffer = host_compute_buffer(target.devices) if own else buffer_name(target.devices[device])
        yield Extra(
            of="lora",
            name=", ".join(_name(adapter) for adapter in adapters),
            buffer=buffer,
            device=_seat(target, device, seats),
            compute_bytes=size,
            basis={"compute": "estimated"},
            reasons={"compute": why},
        )
