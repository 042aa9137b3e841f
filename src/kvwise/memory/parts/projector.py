"""`--mmproj`: a projector's weights and compute buffers, and where they are.

All weights of one encoder are one buffer on the first GPU (or the device of -mmdev), on the
processor with --no-mmproj-offload or without a GPU. The compute buffer is reserved for a middling
image at start and grows with the first larger one: the line counts the largest.

Source: tools/mtmd/clip.cpp (clip_ctx, load_tensors, clip_init), tools/server/server-context.cpp
load_model, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvwise.device import Device
from kvwise.errors import ModelError, UsageError
from kvwise.gguf.header import Header, Tensor
from kvwise.launch import Launch
from kvwise.memory.backends import kind_of, tensor_size
from kvwise.memory.compute.devices import backends_for
from kvwise.memory.ledger import Basis, Extra
from kvwise.memory.loader import CPU
from kvwise.memory.parts.seats import Seats
from kvwise.memory.parts.vision.eye import Eye, eye_of, projector
from kvwise.memory.parts.vision.measure import Measured, loaded, measure
from kvwise.memory.placement import HOST, buffer_name
from kvwise.options import asked
from kvwise.text import Phrase, phrase

BATCH_TOKENS = 1024
NO_AUDIO = frozenset({"gemma3nv"})
"""Kinds whose audio tensors are in the file and are not loaded."""

KEPT = 64
"""Measurements that are remembered; the header is kept so that its identity stays its own."""

_KNOWN: dict[tuple[object, ...], tuple[Header, Measured, Measured]] = {}

AUDIO_FRAMES = 1500
"""Positions of half a minute of sound after the first convolutions."""


def extras(
    header: Header, launch: Launch, devices: Sequence[Device], seats: Seats
) -> Iterator[Extra]:
    """The lines of an mmproj file.

    Raises ModelError for a file with neither eyes nor ears, which llama-server refuses, UsageError
    for a device that is not there.
    """
    if not (_has(header, "vision") or _has(header, "audio")):
        raise ModelError(
            "{architecture} is no projector: the file has neither a vision nor an audio encoder",
            hint="--mmproj takes the mmproj file that comes with the model",
            architecture=header.architecture or "?",
        )
    device = _device(launch, devices)
    place = HOST if device is None else seats.number(device)
    buffer = CPU if device is None else buffer_name(device)
    if _has(header, "vision"):
        yield _line(header, _weights(header, device, sound=False), buffer, place, launch)
        yield from _images(header, launch, device, seats)
    if _has(header, "audio") and projector(header) not in NO_AUDIO:
        yield _line(header, _weights(header, device, sound=True), buffer, place, launch)
        yield _sound(header, buffer, place)


def _has(header: Header, modality: str) -> bool:
    return header.get(f"clip.has_{modality}_encoder") is True


def _device(launch: Launch, devices: Sequence[Device]) -> Device | None:
    """The encoder's device; it does not follow -dev, -sm or -mg."""
    if not devices or asked.has(launch, "--no-mmproj-offload"):
        return None
    named = asked.values(launch, "-mmdev")
    if not named:
        return devices[0]
    if named[-1].lower() in {"none", "cpu"}:
        return None
    for device in devices:
        if named[-1].lower() in {buffer_name(device).lower(), device.name.lower()}:
            return device
    raise UsageError(
        "no device is called {name!r}",
        hint="devices here: {known}",
        name=named[-1],
        known=", ".join(buffer_name(device) for device in devices) or "none",
    )


def _weights(header: Header, device: Device | None, *, sound: bool) -> int:
    kind = None if device is None else kind_of(device)
    return sum(
        tensor_size(kind, t.type, t.shape[0] if t.shape else 0, t.nbytes)
        for t in header.tensors
        if _is_sound(t) is sound and loaded(t.name)
    )


def _is_sound(tensor: Tensor) -> bool:
    return tensor.name.startswith(("a.", "mm.a."))


def _name(header: Header) -> str:
    name = header.get("general.name")
    return name if isinstance(name, str) and name else header.path


def _line(header: Header, size: int, buffer: str, place: int, launch: Launch) -> Extra:
    why = phrase(
        "all tensors of the encoder in one buffer (tools/mtmd/clip.cpp, {build})",
        build=launch.build,
    )
    return Extra(
        of="mmproj",
        name=_name(header),
        buffer=buffer,
        device=place,
        weights_bytes=size,
        basis={"weights": "computed"},
        reasons={"weights": why},
    )


def _images(header: Header, launch: Launch, device: Device | None, seats: Seats) -> Iterator[Extra]:
    eye = eye_of(
        header,
        max(0, asked.number(launch, "--image-max-tokens", 0)),
        asked.number(launch, "--mtmd-batch-max-tokens", BATCH_TOKENS),
    )
    if eye is None:
        yield _unknown(header, device, seats)
        return
    gpus = () if device is None else (device,)
    backends = backends_for(gpus)
    warm = "--no-warmup" not in launch.extra
    start, most = _measured(eye, gpus, launch.flash_attn)
    for number, backend in enumerate(backends):
        own = number == 0 and device is not None
        size = max(start.sizes[number], most.sizes[number])
        if not size:
            continue
        basis: Basis = "computed" if start.basis == most.basis == "computed" else "estimated"
        yield Extra(
            of="mmproj",
            name=_name(header),
            buffer=buffer_name(device) if own and device is not None else backend.name,
            device=seats.number(device) if own and device is not None else HOST,
            compute_bytes=size,
            at_start_bytes=start.sizes[number] if warm else 0,
            basis={"compute": basis},
            reasons={"compute": _why(eye, most)},
        )


def _measured(eye: Eye, gpus: tuple[Device, ...], flash: str) -> tuple[Measured, Measured]:
    """For the image at start and for the largest; a plan asks for the same ones many times."""
    sizes = (eye.start_grid, eye.largest_grid, eye.tiles)
    key = (id(eye.header), sizes, tuple(kind_of(gpu).name for gpu in gpus), flash)
    known = _KNOWN.get(key)
    if known is None or known[0] is not eye.header:
        backends = backends_for(gpus)
        start = measure(eye, eye.start_grid, backends, flash)
        most = measure(eye, eye.largest_grid, backends, flash, eye.tiles)
        if len(_KNOWN) >= KEPT:
            _KNOWN.clear()
        known = _KNOWN[key] = (eye.header, start, most)
    return known[1], known[2]


def _why(eye: Eye, most: Measured) -> Phrase:
    wide, high = eye.largest_grid
    if most.basis == "computed":
        return phrase(
            "simulated allocation of the encoder's {nodes} nodes for the largest image: "
            "{wide} x {high} patches, {tiles} at once",
            nodes=most.n_nodes,
            wide=wide,
            high=high,
            tiles=eye.tiles,
        )
    return phrase(
        "upper estimate for an image of {wide} x {high} patches ({why})",
        wide=wide,
        high=high,
        why=most.why,
    )


def _unknown(header: Header, device: Device | None, seats: Seats) -> Extra:
    """A kind of encoder that nothing is known of: as much again as its weights."""
    return Extra(
        of="mmproj",
        name=_name(header),
        buffer=CPU if device is None else buffer_name(device),
        device=HOST if device is None else seats.number(device),
        compute_bytes=_weights(header, device, sound=False),
        basis={"compute": "estimated"},
        reasons={
            "compute": phrase(
                "the projector {kind} is not known: as much as its weights is assumed",
                kind=projector(header) or "?",
            )
        },
    )


def _sound(header: Header, buffer: str, place: int) -> Extra:
    """Audio encoders: scores of all heads and a dozen wide rows for half a minute of sound."""
    width = max((max(t.shape, default=0) for t in header.tensors if _is_sound(t)), default=0)
    heads = header.get("clip.audio.attention.head_count")
    n_head = heads if isinstance(heads, int) else 0
    size = 4 * AUDIO_FRAMES * (12 * width + 2 * n_head * AUDIO_FRAMES)
    return Extra(
        of="mmproj",
        name=_name(header),
        buffer=buffer,
        device=place,
        compute_bytes=size,
        basis={"compute": "estimated"},
        reasons={
            "compute": phrase("upper estimate for half a minute of sound: no audio graph is built")
        },
    )
