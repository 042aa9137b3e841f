"""Whether a plan uses a card up to the last step, for the tests and for benchmarks/tight.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kvwise.device import Device
from kvwise.errors import Refused
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.options import change
from kvwise.plan.candidate import missing
from kvwise.plan.choose import Choice, Impossible, plan
from kvwise.plan.goal import Goal
from kvwise.units import GIB

from .setup import ZOO, gpu, model

NAMES = sorted(path.name.removesuffix(".json.gz") for path in ZOO.glob("*.json.gz"))
LARGE = re.compile(r"deepseek-v[34]|480b|glm-4.5|minimax-m2|kimi|smallthinker|dots1|hunyuan-a13b")
"""Models whose graphs take long to build: the slow test has them."""
HEADS = ("tiny-eagle3",)
"""They cannot be created without a target."""

SIZES = (2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 80)
KINDS = ("cuda", "generic")
HOST = None  # the host's memory is no limit here
GOALS = ("chat", "document", "max-context")


def machines() -> list[tuple[Device, ...]]:
    """One card, and two unequal ones: a size and one a third of it."""
    found: list[tuple[Device, ...]] = []
    for kind in KINDS:
        for size in SIZES:
            found.append((gpu(size, kind=kind),))
            found.append((gpu(size, kind=kind), gpu(max(1, size / 3), kind=kind, index=1)))
    return found


def check(name: str, devices: Sequence[Device], purpose: str) -> str:
    """What binds the plan, after it was made sure of; empty = there is none."""
    try:
        made = plan(model(name), devices, Goal(purpose), host=HOST)
    except (Impossible, Refused):
        return ""
    choice = made.choice
    assert _short(name, choice.launch, devices) == 0
    binds = choice.binds
    assert binds is not None
    more = change(choice.launch, n_ctx=choice.ledger.context.n_ctx + binds.step_tokens)
    if binds.context == "memory":
        assert binds.device
        assert binds.misses_by_bytes > 0
        for launch in _split_otherwise(more, devices):
            assert (_short(name, launch, devices) or 0) > 0
    elif binds.context == "training":
        assert choice.slot_tokens == model(name).n_ctx_train
    elif binds.context == "goal":
        assert choice.slot_tokens >= min(made.goal.enough, model(name).n_ctx_train)
    else:
        assert binds.context == "refused"
        assert _short(name, more, devices) is None
    _check_layers(name, choice, devices)
    return f"{binds.context} {binds.layers}"


def _check_layers(name: str, choice: Choice, devices: Sequence[Device]) -> None:
    binds, launch = choice.binds, choice.launch
    assert binds is not None
    everything = model(name).n_layer_all + 1
    if binds.layers is None:
        assert launch.n_gpu_layers in (-1, everything)
        assert not launch.n_cpu_moe
        assert all(buffer != "CPU" for _, buffer in launch.override_tensor)
        assert launch.offload_kqv
    elif binds.layers == "memory":
        assert binds.layers_device
        assert binds.layers_miss_bytes > 0
        if launch.n_gpu_layers < everything:
            above = replace(launch, n_gpu_layers=launch.n_gpu_layers + 1, tensor_split=())
            if len(devices) == 1:
                assert (_short(name, above, devices) or 0) > 0


def _split_otherwise(launch: Launch, devices: Sequence[Device]) -> Iterator[Launch]:
    """The launch, and those with one layer moved from a GPU to its neighbour."""
    yield launch
    counts = list(launch.tensor_split)
    for giver, taker in zip(range(len(counts)), range(1, len(counts)), strict=False):
        for a, b in ((giver, taker), (taker, giver)):
            moved = list(counts)
            moved[a] -= 1
            moved[b] += 1
            if min(moved) >= 0 and any(moved):
                yield replace(launch, tensor_split=tuple(moved))


def _short(name: str, launch: Launch, devices: Sequence[Device]) -> int | None:
    """Bytes by which a launch misses, its reserve kept; None = llama.cpp refuses it."""
    try:
        return missing(account(model(name), launch, devices, host=HOST))
    except Refused:
        return None


def about_its_size(name: str, share: float, *, two: bool, kind: str) -> tuple[Device, ...]:
    """A card (or two) on which a share of the model's weights fits, and a little more."""
    size = model(name).header.tensor_bytes / GIB * share + 0.3
    if not two:
        return (gpu(size, kind=kind),)
    return (gpu(size * 0.7 + 0.3, kind=kind), gpu(size * 0.3 + 0.3, kind=kind, index=1))


def places(name: str) -> Iterator[tuple[str, tuple[Device, ...], str]]:
    """Every place where a model is checked: how it is called, the cards, and the goal."""
    for devices in machines():
        sizes = "+".join(f"{gpu.free_bytes / GIB:.3g}" for gpu in devices)
        yield f"{sizes} GiB {devices[0].kind} chat", devices, "chat"
    for share in (0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.5, 2):
        for two in (True, False):
            for kind in KINDS:
                devices = about_its_size(name, share, two=two, kind=kind)
                called = f"{share:g} of its size on {len(devices)} {kind} document"
                yield called, devices, "document"
