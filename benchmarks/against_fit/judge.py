"""One launch on the cards of a case: what it takes, what it leaves, what stays on the host."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger

_LAYER = re.compile(r"^blk\.(\d+)\.")
_EXPERTS = re.compile(r"_(?:up|gate|down|gate_up)_(?:ch)?exps\.")
_LOOKED_UP = ("token_embd.", "position_embd.", "token_types.", "per_layer_token_embd.")


@dataclass(frozen=True, slots=True)
class Judged:
    """`left` bytes per card beside its margin, as really reserved (negative = breaks it); `read` =
    bytes of weights that a token reads from the host; `trained` = the longest context that makes
    sense; `layers` wholly on the cards, the output among them, of `of`; `pipeline` = several cards
    read a prompt in turns."""

    n_ctx: int
    trained: int
    layers: int
    of: int
    read: int
    cache_on_gpu: bool
    pipeline: bool
    left: tuple[int, ...]
    exact: bool
    types: tuple[str, str]
    n_ubatch: int

    @property
    def keeps_margin(self) -> bool:
        return min(self.left) >= 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def judge(model: Model, launch: Launch, devices: tuple[Device, ...]) -> Judged:
    """By kvwise's ledger of what is really reserved, which is checked against the engine elsewhere.

    Raises Refused, UsageError.
    """
    return judged(account(model, launch, devices))


def judged(ledger: Ledger) -> Judged:
    """The same of a ledger that is there already."""
    model, launch = ledger.model, ledger.launch
    read, layers = on_host(model, launch)
    lines = zip(ledger.devices, ledger.lines, strict=False)
    return Judged(
        n_ctx=ledger.context.n_ctx,
        trained=model.n_ctx_train,
        layers=layers,
        of=model.n_layer_all + 1,
        read=read,
        cache_on_gpu=launch.offload_kqv,
        pipeline=ledger.placement.pipeline_parallel,
        left=tuple(
            device.free_bytes - (device.reserve_bytes or 0) - line.total_bytes
            for device, line in lines
        ),
        exact=ledger.verified and not _estimated(ledger),
        types=(launch.type_k, launch.type_v),
        n_ubatch=launch.n_ubatch,
    )


def _estimated(ledger: Ledger) -> bool:
    return any(line.basis["compute"] == "estimated" for line in ledger.lines)


def on_host(model: Model, launch: Launch) -> tuple[int, int]:
    """Bytes of weights that a token reads from the host, and layers wholly on the cards.

    The same rules for both sides: `-ngl` from the back, then the first pattern of `-ot` that
    matches, then `--n-cpu-moe`. Rows that are looked up one by one do not count.
    """
    everything = model.n_layer_all + 1
    asked = launch.n_gpu_layers if launch.n_gpu_layers >= 0 else everything
    first = max(everything - asked, 0)
    moves = [(re.compile(pattern), buffer) for pattern, buffer in launch.override_tensor]
    share = model.n_expert_used / model.n_expert if model.n_expert else 1.0
    read, broken = 0, set(range(first))
    if not asked:
        broken.add(model.n_layer_all)
    for tensor in model.header.tensors:
        match = _LAYER.match(tensor.name)
        layer = int(match[1]) if match else model.n_layer_all
        if tensor.name.startswith(_LOOKED_UP):
            continue
        experts = _EXPERTS.search(tensor.name) is not None
        moved = next((b for pattern, b in moves if pattern.search(tensor.name)), None)
        if moved is None and experts and match and layer < launch.n_cpu_moe:
            moved = "CPU"
        home_is_host = layer < first or (layer == model.n_layer_all and not asked)
        if moved == "CPU" or (moved is None and home_is_host):
            read += round(tensor.nbytes * (share if experts else 1.0))
            broken.add(layer)
    return read, everything - len(broken)
