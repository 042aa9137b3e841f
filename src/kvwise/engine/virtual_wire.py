"""The wire format of ggml's RPC protocol: requests in, answers out; knows no device.

A request is a command byte, a little-endian u64 length and a body; an answer is a u64 length and
a body. Nothing here trusts a length: bodies of known commands have a ceiling, bodies that may be
large (weights, graphs) are read past in small pieces and only their first bytes are kept.
Source: ggml/src/ggml-rpc/ggml-rpc.cpp, protocol 5.1 (b10605); 1 to 3 and 6 to 8 from its history.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from kvwise.gguf.types import BY_ID, GGMLType


class Command(IntEnum):
    """Command bytes (enum rpc_cmd); the first 15 have never moved."""

    ALLOC_BUFFER = 0
    GET_ALIGNMENT = 1
    GET_MAX_SIZE = 2
    BUFFER_GET_BASE = 3
    FREE_BUFFER = 4
    BUFFER_CLEAR = 5
    SET_TENSOR = 6
    SET_TENSOR_HASH = 7
    GET_TENSOR = 8
    COPY_TENSOR = 9
    GRAPH_COMPUTE = 10
    GET_DEVICE_MEMORY = 11
    INIT_TENSOR = 12
    GET_ALLOC_SIZE = 13
    HELLO = 14
    DEVICE_COUNT = 15
    GRAPH_RECOMPUTE = 16
    MEMSET_TENSOR = 17


_BULKY = frozenset({Command.SET_TENSOR, Command.GRAPH_COMPUTE})
BODY_LIMIT = 8192
"""Ceiling of a body that is kept: the largest, GET_ALLOC_SIZE, has 3,260 bytes."""
_PIECE = 1 << 16
_TENSOR = struct.Struct("<QIQ4I4II64sI80sQQQ64si")
TENSOR_BYTES = _TENSOR.size
_HEAD = struct.Struct("<BQ")


class WireError(Exception):
    """What came over the wire is not a request of this protocol; the connection ends."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `body` is whole, but for weights and graphs only its first bytes."""

    command: Command
    body: bytes
    length: int


@dataclass(frozen=True, slots=True)
class WireTensor:
    """A tensor as the client describes it. The strides `nb` are cut to 32 bits on the wire."""

    id: int
    type: GGMLType
    buffer: int
    ne: tuple[int, int, int, int]
    nb: tuple[int, int, int, int]
    params: bytes
    view_src: int
    view_offs: int

    @property
    def elements(self) -> int:
        return self.ne[0] * self.ne[1] * self.ne[2] * self.ne[3]

    @property
    def nbytes(self) -> int:
        """Bytes from first to last element (ggml_nbytes), with the strides' lost bits put back.

        A contiguous tensor's strides follow from its shape, so they are taken from there when the
        32 bits that arrived agree.
        """
        if 0 in self.ne:
            return 0
        strides = self._strides()
        first = (
            self.type.size
            if not self.type.quantized
            else self.ne[0] * strides[0] // self.type.block
        )
        start = 0 if not self.type.quantized else 1
        return first + sum((self.ne[i] - 1) * strides[i] for i in range(start, 4))

    def _strides(self) -> tuple[int, ...]:
        rows = self.ne[0] // self.type.block * self.type.size
        whole = (self.type.size, rows, rows * self.ne[1], rows * self.ne[1] * self.ne[2])
        return whole if tuple(n % (1 << 32) for n in whole) == self.nb else self.nb


@dataclass(frozen=True, slots=True)
class AllocSize:
    """The question how many bytes a tensor takes on a device; sources by position."""

    device: int
    tensor: WireTensor
    sources: tuple[WireTensor | None, ...]


def read_request(receive: Callable[[int], bytes]) -> Request | None:
    """The next request, or None at a clean end. `receive(n)` gives 1 to n bytes, or b"" at the end.

    Raises WireError for an unknown command, a length above the ceiling, or an end in the middle.
    """
    first = receive(1)
    if not first:
        return None
    code, length = _HEAD.unpack(first + _exactly(receive, _HEAD.size - 1))
    try:
        command = Command(code)
    except ValueError:
        raise WireError(f"unknown command {code}") from None
    if command not in _BULKY and length > BODY_LIMIT:
        raise WireError(f"{command.name} with {length} bytes")
    body = _exactly(receive, min(length, BODY_LIMIT))
    for size in _pieces(length - len(body)):
        _exactly(receive, size)
    return Request(command, body, length)


def _exactly(receive: Callable[[int], bytes], size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        piece = receive(size - len(got))
        if not piece:
            raise WireError(f"ended {size - len(got)} bytes early")
        got += piece
    return bytes(got)


def _pieces(size: int) -> Iterator[int]:
    while size > 0:
        step = min(size, _PIECE)
        yield step
        size -= step


def answer(*values: int, shape: str) -> bytes:
    """An answer: its length and the values packed little-endian by `shape` (struct letters)."""
    body = struct.pack("<" + shape, *values)
    return struct.pack("<Q", len(body)) + body


def zeros(size: int) -> Iterator[bytes]:
    """An answer of `size` zero bytes, in small pieces."""
    yield struct.pack("<Q", size)
    for step in _pieces(size):
        yield bytes(step)


def unpack(body: bytes, shape: str) -> tuple[int, ...]:
    """The values of a body of exactly that shape; raises WireError."""
    try:
        return struct.unpack("<" + shape, body)
    except struct.error:
        raise WireError(f"{len(body)} bytes where {struct.calcsize('<' + shape)} belong") from None


def with_device(body: bytes, rest: str) -> tuple[int, ...]:
    """Device number and the values of `rest`; before protocol 3 there was no device (0)."""
    if len(body) == struct.calcsize("<" + rest):
        return (0, *unpack(body, rest))
    return unpack(body, "I" + rest)


def parse_tensor(data: bytes) -> WireTensor | None:
    """A serialised tensor, None for an absent one; raises WireError for an unknown type."""
    if len(data) < TENSOR_BYTES:
        raise WireError(f"a tensor of {len(data)} bytes")
    got = _TENSOR.unpack(data[:TENSOR_BYTES])
    if got[0] == 0:
        return None
    kind = BY_ID.get(got[1])
    if kind is None:
        raise WireError(f"unknown tensor type {got[1]}")
    number, _, buffer, *_ = got
    return WireTensor(number, kind, buffer, got[3:7], got[7:11], got[12], got[15], got[16])


def parse_alloc_size(body: bytes) -> AllocSize:
    """The body of GET_ALLOC_SIZE, with or without device and sources; raises WireError."""
    rest = len(body) % TENSOR_BYTES
    if rest not in (0, 4):
        raise WireError(f"{len(body)} bytes for an allocation size")
    device = int.from_bytes(body[:rest], "little")
    rows = [body[at : at + TENSOR_BYTES] for at in range(rest, len(body), TENSOR_BYTES)]
    tensor = parse_tensor(rows[0]) if rows else None
    if tensor is None:
        raise WireError("no tensor in a question about its size")
    return AllocSize(device, tensor, tuple(parse_tensor(row) for row in rows[1:]))
