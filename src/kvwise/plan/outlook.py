"""What a plan would be with more memory, or with the same model in another quantization.

Each is planned anew by the same rules with the choice's cache types and micro-batch kept, so the
difference is that of the one thing. The weights of another quantization are estimated
(`quants.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvwise.device import Device, Host
from kvwise.errors import KvwiseError
from kvwise.gguf.model import Model
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.plan.choose import Choice, Plan
from kvwise.plan.choose import plan as make_plan
from kvwise.plan.experts import count_on_host, matrices
from kvwise.plan.quality import Grades
from kvwise.plan.quants import QUANTS, requantized
from kvwise.plan.speed import Measured
from kvwise.plan.speed.words import span
from kvwise.text import Phrase, phrase
from kvwise.units import MIB, show

MORE_BYTES = 500 * MIB
_QUANTS = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M")
_EACH_WAY = 2  # so many larger and so many smaller ones
_KEPT = frozenset({"type_k", "type_v", "n_ubatch"})
_PLAIN: dict[str, Any] = {
    "n_ctx": 0, "n_gpu_layers": -1, "n_cpu_moe": 0, "offload_kqv": True, "tensor_split": (),
    "override_tensor": (),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One other case: `kind` is `memory` or `quant`; `choice` None = it would not fit at all.

    `basis` is `computed` (the same file) or `estimated` (weights by llama-quantize's recipe).
    """

    kind: str
    name: str
    basis: str
    weights_bytes: int
    choice: Choice | None
    sentence: Phrase

    def as_json(self) -> dict[str, Any]:
        """One entry of `what_if` in kvwise/plan/1, without its sentence."""
        made = self.choice
        return {
            "kind": self.kind,
            "name": self.name,
            "basis": self.basis,
            "weights_bytes": self.weights_bytes,
            "fits": made is not None,
            "slot_tokens": made.slot_tokens if made else None,
            "gpu_layers": made.ledger.placement.gpu_layers if made else None,
            "expert_matrices_on_host": count_on_host(made.ledger) if made else None,
            "decode_tokens_per_s": made.speed.decode_tokens_per_s if made else None,
        }


def outlook(
    plan: Plan,
    model: Model,
    devices: Sequence[Device],
    *,
    host: Host | None = None,
    companions: Companions = NONE,
    grades: Grades | None = None,
    results: Sequence[Measured] = (),
) -> tuple[WhatIf, ...]:
    """More memory first, then other quantizations from large to small.

    `model`, `devices`, `host`, `companions`, `grades` and `results` are those of the plan.
    """
    case = _Case(plan, model, tuple(devices), host, companions, grades, tuple(results))
    return (*_more_memory(case), *_other_quants(case))


@dataclass(frozen=True, slots=True)
class _Case:
    plan: Plan
    model: Model
    devices: tuple[Device, ...]
    host: Host | None
    companions: Companions
    grades: Grades | None
    results: tuple[Measured, ...]

    def again(
        self,
        model: Model | None = None,
        devices: Sequence[Device] | None = None,
        host: Host | None = None,
    ) -> Choice | None:
        """The choice of the same request where one thing is different."""
        chosen = self.plan.choice.launch
        kept = set(self.plan.fixed) | _KEPT
        free = {name: plain for name, plain in _PLAIN.items() if name not in kept}
        base = replace(chosen, **free)
        try:
            made = make_plan(
                model or self.model,
                self.devices if devices is None else devices,
                self.plan.goal,
                launch=base,
                fixed=kept,
                host=host or self.host,
                companions=self.companions,
                grades=self.grades,
                results=self.results,
            )
        except KvwiseError:
            return None
        return made.choice


def _more_memory(case: _Case) -> Iterator[WhatIf]:
    choice = case.plan.choice
    weights = case.model.header.tensor_bytes
    if case.devices:
        number = _tightest(choice)
        name = choice.ledger.lines[number].buffer
        devices = [
            replace(
                each,
                total_bytes=each.total_bytes + MORE_BYTES,
                free_bytes=each.free_bytes + MORE_BYTES,
            )
            if each == choice.ledger.devices[number]
            else each
            for each in case.devices
        ]
        made = case.again(devices=devices)
    elif case.host and case.host.available_bytes:
        name = choice.ledger.host.buffer
        limit = case.host.limit_bytes
        made = case.again(
            host=replace(
                case.host,
                total_bytes=case.host.total_bytes + MORE_BYTES,
                available_bytes=case.host.available_bytes + MORE_BYTES,
                limit_bytes=None if limit is None else limit + MORE_BYTES,
            )
        )
    else:
        return
    if made is None:
        return
    said = phrase(
        "{size} more on {name}: {gain}",
        size=show(MORE_BYTES), name=name, gain=_gain(choice, made),
    )  # fmt: skip
    yield WhatIf("memory", name, "computed", weights, made, said)


def _tightest(choice: Choice) -> int:
    """The GPU with the least left beside its reserve."""
    devices = choice.ledger.devices
    left = [
        (line.headroom_bytes or 0) - (device.reserve_bytes or 0)
        for line, device in zip(choice.ledger.lines, devices, strict=False)
    ]
    return min(range(len(left)), key=left.__getitem__)


def _gain(before: Choice, after: Choice) -> Phrase:
    tokens = after.slot_tokens - before.slot_tokens
    layers = after.ledger.placement.gpu_layers - before.ledger.placement.gpu_layers
    experts = count_on_host(before.ledger) - count_on_host(after.ledger)
    parts = []
    if tokens > 0:
        parts.append(phrase("{more:,} tokens more", more=tokens))
    if layers > 0:
        parts.append(phrase("{count} layers more on GPUs", count=layers))
    if experts > 0:
        parts.append(phrase("{count} expert matrices more on GPUs", count=experts))
    if after.launch.offload_kqv and not before.launch.offload_kqv:
        parts.append(phrase("the cache on the GPU"))
    if not parts:
        return phrase("nothing, memory is not the limit")
    said = parts[0]
    for part in parts[1:]:
        said = phrase("{first}, {then}", first=said, then=part)
    return said


def _other_quants(case: _Case) -> Iterator[WhatIf]:
    own = case.model.header.tensor_bytes
    sizes: dict[str, int] = {}
    for tensor in case.model.header.tensors:
        sizes[tensor.type.name] = sizes.get(tensor.type.name, 0) + tensor.nbytes
    most = max(sizes, key=sizes.__getitem__, default="")
    if not own or most not in {rule.base for rule in QUANTS.values()}:
        return  # trained in its own type, or nothing that could be written otherwise
    others = [
        (name, requantized(case.model, name)) for name in _QUANTS if QUANTS[name].base != most
    ]
    larger = [each for each in others if each[1].header.tensor_bytes > own][-_EACH_WAY:]
    smaller = [each for each in others if each[1].header.tensor_bytes < own][:_EACH_WAY]
    for name, model in (*larger, *smaller):
        size = model.header.tensor_bytes
        made = case.again(model)
        yield WhatIf("quant", name, "estimated", size, made, _quant_sentence(name, size, made))


def _quant_sentence(name: str, size: int, made: Choice | None) -> Phrase:
    fields = {"name": name, "size": show(size)}
    if made is None:
        return phrase("as {name}, about {size} of weights: does not fit", **fields)
    said = phrase(
        "as {name}, about {size} of weights: {tokens:,} tokens per slot",
        tokens=made.slot_tokens, **fields,
    )  # fmt: skip
    everything = made.ledger.model.n_layer_all + 1
    layers = made.ledger.placement.gpu_layers
    if made.ledger.devices and layers < everything:
        said = phrase(
            "{said}, {layers} of {all} layers on GPUs", said=said, layers=layers, all=everything
        )
    elif away := count_on_host(made.ledger):
        said = phrase(
            "{said}, {count} of {all} expert matrices on the host",
            said=said, count=away, all=len(matrices(made.ledger.model)),
        )  # fmt: skip
    if made.speed.decode:
        said = phrase("{said}, {speed} tokens per second", said=said, speed=span(made.speed.decode))
    return said
